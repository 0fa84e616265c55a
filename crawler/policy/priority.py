"""The front level of a URL: how soon it is fetched.

Rule: it follows from what is known when the URL is found, and never changes afterwards.
"""

from __future__ import annotations

from math import log2
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


DOUBLING: Final = 256
"""Cash is a logarithm: by so much more it is twice as much."""
NO_CASH: Final = 256  # the least, of a URL that no page with cash links to
SEED_CASH: Final = 1 << 15
MOST_CASH: Final = (1 << 16) - 1


def cash_of_links(cash: int, links: int) -> int:
    """Return the cash of each of so many links of a page with *cash*, among which it is divided
    (OPIC: Abiteboul, Preda and Cobena, 2003, with cash for the seeds only)."""
    return max(NO_CASH, cash - round(DOUBLING * log2(max(links, 1))))


_START_CASH: Final = SEED_CASH - 8 * DOUBLING
"""As of a link two links from a seed, on pages of 16. With a seed's own, ranks from outside hide
what the links of the crawl say: docs/decisions/0064."""


def cash_of_weight(weight: float) -> int:
    """Return the least cash of a link from elsewhere to a host with *weight* in a list of ranks,
    in which the best has 1 and one that is not there 0."""
    return max(NO_CASH, _START_CASH + round(DOUBLING * log2(weight))) if weight else NO_CASH


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
        return min(self._of_depth(hints.depth), self._last)

    def _of_depth(self, depth: int) -> int:
        return (depth + 1).bit_length() - 1


class CashPrioritizer(DepthPrioritizer):
    """Seeds first, then all links, whose order is that of their cash, however deep they are."""

    def _of_depth(self, depth: int) -> int:
        return min(depth, 1)
