"""The front level of a URL: how soon it is fetched.

Rule: it follows from what is known when the URL is found, and never changes afterwards.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from crawler.model.types import ConfigError


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a URL when it is found."""

    depth: int = 0  # hops from a seed
    is_seed: bool = False
    sitemap_priority: float | None = None  # 0 to 1, in its host's own sitemap; None: unknown
    modified: float | None = None  # epoch seconds, as a sitemap or feed says
    is_sitemap: bool = False  # it lists pages and is none itself
    priority: int = 0  # of a Scrapy request: above 0 is sooner, below 0 later


class Prioritizer(Protocol):
    """What CRAWLER_PRIORITIZER names. Made once a crawl, with the number of levels."""

    def level(self, hints: Hints) -> int:
        """Return the front level, from 0 (best) to the number of levels less one."""


HIGH_SITEMAP_PRIORITY: Final = 0.8
"""guess: generators write 0.5 for everything (sitemaps.org's default), 0.8 and more for sections"""


class DepthPrioritizer:
    """Seeds first, then by depth, twice as wide a band each level: 0, 1-2, 3-6, 7-14, ...
    With three levels the last therefore holds all that is deeper than 2."""

    def __init__(self, levels: int) -> None:
        if levels < 1:
            raise ConfigError(f"want at least one front level, got {levels}")
        self._last = levels - 1

    def level(self, hints: Hints) -> int:
        """Return the front level. The priority of a spider's request overrides everything else."""
        if hints.priority:
            return 0 if hints.priority > 0 else self._last
        if hints.is_sitemap:
            return self._last  # a sitemap must not take a turn from the pages themselves
        if hints.is_seed or (hints.sitemap_priority or 0.0) >= HIGH_SITEMAP_PRIORITY:
            return 0
        return min((hints.depth + 1).bit_length() - 1, self._last)
