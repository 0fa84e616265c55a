"""The settings about URLs: which are worth a visit, which are one, which links count.

Rule: as in config.py, of which these groups are a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crawler.core.choices import ByScope, Scope
from crawler.core.file_types import UNWANTED
from crawler.core.kinds import flag, many, or_none, or_word, suffix, whole
from crawler.core.knobs import knob

BROAD_URLS_PER_DOMAIN: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which URLs are not worth a visit."""

    max_redirects: int = knob(10, whole("redirects"), "Redirects followed in a row.")
    max_url_length: int = knob(
        2048,
        # 4096: longer texts are not parsed at all
        whole("characters", least=64, most=4096),
        "Longest URL that is fetched.",
    )
    max_path_segments: int = knob(
        10, whole("segments", least=1), "Most path segments of a URL that is fetched."
    )
    max_urls_per_domain: int | None | ByScope = knob(
        ByScope.AUTO,
        or_word(or_none(whole("URLs", least=1)), ByScope),
        "Most URLs of a registered domain; auto: 10,000 if the scope is any, else none.",
    )
    max_urls_per_host: int | None = knob(
        None, or_none(whole("URLs", least=1)), "Most URLs of a host."
    )
    deny_extensions: tuple[str, ...] = knob(
        UNWANTED, many(suffix()), "URLs whose path ends so are not fetched."
    )

    def urls_per_domain(self, scope: Scope) -> int | None:
        """The URL budget of a registered domain in a crawl of *scope*. None: no limit."""
        if self.max_urls_per_domain is not ByScope.AUTO:
            return self.max_urls_per_domain
        return BROAD_URLS_PER_DOMAIN if scope is Scope.ANY else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sameness:
    """Which different URLs count as one."""

    strip_tracking: bool = knob(True, flag(), "Tracking parameters (utm_source...) do not count.")
    strip_session_ids: bool = knob(False, flag(), "Session ids (PHPSESSID...) do not count.")
    sort_query: bool = knob(True, flag(), "The order of query parameters does not count.")
    merge_trailing_slash: bool = knob(False, flag(), "/a and /a/ are one.")
    merge_www: bool = knob(False, flag(), "www.a.org and a.org are one.")
    merge_https: bool = knob(False, flag(), "http and https are one.")
    canonical_identity: bool = knob(
        False, flag(), "A page that names another URL as its canonical one is that URL."
    )
