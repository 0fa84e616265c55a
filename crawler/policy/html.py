"""What a page says about itself and where it points: HTML in, links out.

Rule: HTML5's own parsing (lexbor), so broken markup gives what a browser would see. No tree
outlives this file, and none is built so deep that its time would not be linear in the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from crawler.policy.charset import text_of
from crawler.policy.content import HTML_TYPES, media_type
from crawler.policy.nesting import flat

# Where a link may stand: element and attribute.
_LINKS: Final = (("a", "href"), ("area", "href"), ("frame", "src"), ("iframe", "src"))
# HTML's white space: what stands around a URL in an attribute is not part of it.
_SPACE: Final = " \t\n\f\r"
_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})
# guess: a page of honest use has fewer; one with more is cut, not refused
MAX_LINKS: Final = 20_000
_MAX_TITLE_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ParsedHtml:
    links: tuple[str, ...]  # as written; those marked nofollow left out if so asked
    base: str  # <base href>, as written; empty: none
    title: str
    nofollow: bool  # the whole page asks that its links are left alone
    noindex: bool


def is_html(content_type: str) -> bool:
    """By its declared type; one that declares nothing, or nothing sensible, may be HTML."""
    kind = media_type(content_type.encode("latin-1", "replace"))
    return not kind or kind in HTML_TYPES


def read_html(body: bytes, content_type: str, *, skip_nofollow: bool) -> ParsedHtml:
    """*skip_nofollow*: leave out links whose rel says nofollow, ugc or sponsored."""
    tree = LexborHTMLParser(flat(text_of(body, content_type)))
    words = robots_words(list(_robots(tree)))
    bases = (node.attributes for node in tree.tags("base"))
    base = next((given["href"] or "" for given in bases if "href" in given), "")
    title = next((node.text() for node in tree.tags("title")), "")
    return ParsedHtml(
        links=tuple(islice(_links(tree, skip_nofollow=skip_nofollow), MAX_LINKS)),
        base=base.strip(_SPACE),
        title=" ".join(title.split())[:_MAX_TITLE_CHARS],
        nofollow="nofollow" in words,
        noindex="noindex" in words,
    )


def robots_words(values: list[str]) -> set[str]:
    """The words of robots meta tags or X-Robots-Tag headers. `none` is both of them."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return words | {"nofollow", "noindex"} if "none" in words else words


def _robots(tree: LexborHTMLParser) -> Iterator[str]:
    for node in tree.tags("meta"):
        given = node.attributes
        if (given.get("name") or "").strip(_SPACE).lower() == "robots":
            yield given.get("content") or ""


def _links(tree: LexborHTMLParser, *, skip_nofollow: bool) -> Iterator[str]:
    for element, attribute in _LINKS:
        for node in tree.tags(element):
            given = node.attributes
            if skip_nofollow and _is_unfollowed(given.get("rel")):
                continue
            target = (given.get(attribute) or "").strip(_SPACE)
            if target and not target.startswith("#"):
                yield target


def _is_unfollowed(rel: str | None) -> bool:
    return rel is not None and not _UNFOLLOWED.isdisjoint(rel.lower().split())
