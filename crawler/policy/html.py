"""What a page says about itself and where it points: HTML in, links out.

Rule: HTML5's own parsing (lexbor), so broken markup gives what a browser would see. No
tree outlives this file. Time and memory are those of the parser: linear in the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from selectolax.lexbor import LexborHTMLParser
from w3lib.encoding import html_to_unicode

# Where a link may stand: element and attribute.
_LINKS: Final = (("a", "href"), ("area", "href"), ("frame", "src"), ("iframe", "src"))
# HTML's white space: what stands around a URL in an attribute is not part of it.
_SPACE: Final = " \t\n\f\r"
# guess: a page of honest use has fewer; one with more is cut, not refused
MAX_LINKS: Final = 20_000
_MAX_TITLE_CHARS: Final = 1_000
HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml", ""})


@dataclass(frozen=True, slots=True)
class ParsedHtml:
    links: tuple[str, ...]  # as written; those marked nofollow left out if so asked
    base: str  # <base href>, as written; empty: none
    title: str
    nofollow: bool  # the whole page asks that its links are left alone
    noindex: bool


def is_html(content_type: str) -> bool:
    """By its declared type; one that declares nothing may be HTML."""
    return content_type.partition(";")[0].strip().lower() in HTML_TYPES


def read_html(body: bytes, content_type: str, *, skip_nofollow: bool) -> ParsedHtml:
    """*skip_nofollow*: leave out links whose rel says nofollow, ugc or sponsored."""
    _, text = html_to_unicode(content_type or None, body)
    tree = LexborHTMLParser(text)
    robots = _robots(tree)
    base = next((_attribute(node, "href") for node in tree.tags("base")), "")
    title = next((node.text() for node in tree.tags("title")), "")
    links: list[str] = []
    for link in _links(tree, skip_nofollow=skip_nofollow):
        links.append(link)
        if len(links) == MAX_LINKS:
            break
    return ParsedHtml(
        links=tuple(links),
        base=base,
        title=" ".join(title.split())[:_MAX_TITLE_CHARS],
        nofollow="nofollow" in robots,
        noindex="noindex" in robots,
    )


def robots_words(values: list[str]) -> set[str]:
    """The words of robots meta tags or X-Robots-Tag headers. `none` is both of them."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return words | {"nofollow", "noindex"} if "none" in words else words


def _robots(tree: LexborHTMLParser) -> set[str]:
    named = (node for node in tree.tags("meta") if _attribute(node, "name").lower() == "robots")
    return robots_words([_attribute(node, "content") for node in named])


def _links(tree: LexborHTMLParser, *, skip_nofollow: bool) -> Iterator[str]:
    for element, attribute in _LINKS:
        for node in tree.tags(element):
            attributes = node.attributes
            target = attributes.get(attribute)
            if target is None or (skip_nofollow and _is_nofollow(attributes.get("rel"))):
                continue
            target = target.strip(_SPACE)
            if target and not target.startswith("#"):
                yield target


def _is_nofollow(rel: str | None) -> bool:
    return rel is not None and not {"nofollow", "ugc", "sponsored"}.isdisjoint(rel.lower().split())


def _attribute(node: object, name: str) -> str:
    value = node.attributes.get(name)  # type: ignore[attr-defined]  # lexbor's node has no stub name
    return (value or "").strip(_SPACE)
