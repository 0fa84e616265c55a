"""Tags by their shape: all but what stands in their quotes. A page has thousands of tags, of few
shapes, and the shape says whether the rest needs to be read.

Rule: what is kept over pages is short, and bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from crawler.parsers.html_elements import COMMON, INLINE, RAW
from crawler.parsers.html_facts import DECLARING
from crawler.parsers.html_links import LINKING
from crawler.parsers.html_marks import LINE, LINK_END
from crawler.parsers.html_noise import COUNTED, HIDING
from crawler.parsers.html_tags import each_attribute, is_whole, named, value

LONGEST: Final = 1_000  # letters of a tag whose shape is kept
READ: Final = frozenset(("a",)) | LINKING.keys() | DECLARING | COUNTED | RAW
"""Elements that say something beyond their text."""


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    mark: str  # what stands for it in the text
    is_read: bool
    quoted: tuple[str, ...]  # the attributes with quoted values, in their order
    others: dict[str, str]
    href: int  # of a link: where its URL stands in the tag split at its quotes; 0: it has none
    rel: int


def mark_of(name: str) -> str:
    return "" if name in INLINE else LINE


# As most tags are written; the others are met.
PLAIN_TAGS: Final = {
    **{name: mark_of(name) for name in COMMON - READ},
    **{f"/{name}": mark_of(name) for name in COMMON - COUNTED},
    "/a": LINK_END,
}


@lru_cache(maxsize=4096)
def shape_of(between: tuple[str, ...]) -> Shape | None:
    """*between*: a tag split at its double quotes, without what stood in them; it has no single
    ones. None: not every quote is one around a value, or an attribute occurs twice."""
    example = "".join([f'{part}"{number}"' for number, part in enumerate(between[:-1])])
    example += between[-1]
    name, written = named(example)
    given = each_attribute(written)
    quoted = tuple([key.lower() for key, double, _, _ in given if double])
    others = {key.lower(): value(bare) for key, double, _, bare in given if not double}
    keys = {*quoted, *others}
    if not is_whole(example) or len(quoted) < len(between) - 1 or len(keys) < len(given):
        return None
    return _shape(name, quoted, others)


def _shape(name: str, quoted: tuple[str, ...], others: dict[str, str]) -> Shape:
    keys = {*quoted, *others}
    is_read = name in READ or not HIDING.isdisjoint(keys)
    href = rel = 0
    if name == "a":
        is_read = "href" in keys
        if "href" in quoted and "rel" not in others:
            href, rel = _field(quoted, "href"), _field(quoted, "rel")
    return Shape(name, mark_of(name), is_read, quoted, others, href, rel)


def _field(quoted: tuple[str, ...], key: str) -> int:
    return 2 * quoted.index(key) + 1 if key in quoted else 0
