"""Which links of a page are followed, and which words its author has for crawlers.

Rule: pure; what a page says and what its headers say count alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from crawler.core.content_settings import Links
from crawler.core.parsed import Link, LinkKind, Parsed

_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})


def robots_words(values: Iterable[str]) -> frozenset[str]:
    """The words of robots meta tags or X-Robots-Tag headers. `none` is both of them."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return frozenset(words | {"nofollow", "noindex"} if "none" in words else words)


def robots_header(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """What X-Robots-Tag says to everybody (a value "bot: word" speaks to another)."""
    return robots_words(
        value.decode("latin-1") for name, value in headers if name.lower() == b"x-robots-tag"
    )


def with_headers(parsed: Parsed, links: Sequence[Link], words: frozenset[str]) -> Parsed:
    """*parsed*, and what the headers of its answer say. The page's own canonical counts first."""
    told = (link.url for link in links if link.kind is LinkKind.CANONICAL)
    return replace(
        parsed,
        links=(*parsed.links, *links),
        canonical=parsed.canonical or next(told, ""),
        robots=parsed.robots | words,
    )


def followed(links: Iterable[Link], robots: frozenset[str], rules: Links) -> tuple[Link, ...]:
    """Those that the settings and the author of their page leave to be followed. *robots*: words
    of the page for crawlers."""
    if rules.respect_nofollow and "nofollow" in robots:
        return ()
    kinds = frozenset(rules.follow_kinds)
    return tuple(
        link
        for link in links
        if link.kind in kinds
        and not (
            link.rel and rules.respect_nofollow and not _UNFOLLOWED.isdisjoint(link.rel.split())
        )
    )
