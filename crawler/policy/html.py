"""What a page says about itself and where it points: HTML in, links out.

Rule: read as a browser's tokenizer reads it, so broken markup gives what a browser would see.
Time and memory are linear in the page (policy.tags).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crawler.policy.charset import text_of
from crawler.policy.content import HTML_TYPES, media_type
from crawler.policy.tags import attributes, start_tags

# Where a link may stand: element and attribute.
_LINKS: Final = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
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
    links: list[str] = []
    bases: list[str] = []
    titles: list[str] = []
    robots: list[str] = []
    for name, written, text in start_tags(text_of(body, content_type)):
        if name in _LINKS:
            link = _link(name, attributes(written), skip_nofollow)
            if link and len(links) < MAX_LINKS:
                links.append(link)
        elif name == "title":
            titles.append(text)
        elif name == "base":
            bases += _base(attributes(written))
        elif name == "meta":
            robots += _robots(attributes(written))
    words = robots_words(robots)
    return ParsedHtml(
        links=tuple(links),
        base=bases[0] if bases else "",
        title=" ".join(titles[0].split())[:_MAX_TITLE_CHARS] if titles else "",
        nofollow="nofollow" in words,
        noindex="noindex" in words,
    )


def robots_words(values: list[str]) -> set[str]:
    """The words of robots meta tags or X-Robots-Tag headers. `none` is both of them."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return words | {"nofollow", "noindex"} if "none" in words else words


def _link(name: str, given: dict[str, str], skip_nofollow: bool) -> str:
    """Empty: it leads nowhere, or not for us."""
    if skip_nofollow and not _UNFOLLOWED.isdisjoint(given.get("rel", "").lower().split()):
        return ""
    target = given.get(_LINKS[name], "").strip(_SPACE)
    return "" if target.startswith("#") else target


def _base(given: dict[str, str]) -> list[str]:
    return [given["href"].strip(_SPACE)] if "href" in given else []


def _robots(given: dict[str, str]) -> list[str]:
    is_robots = given.get("name", "").strip(_SPACE).lower() == "robots"
    return [given.get("content", "")] if is_robots else []
