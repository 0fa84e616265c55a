"""Tags by their shape: all but what stands in their quotes. A page has thousands of tags, of few
shapes, and the shape says whether the rest needs to be read.

Rule: what is kept over pages is short, and bounded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from crawler.parsers.html_elements import INLINE, RAW
from crawler.parsers.html_facts import DECLARING
from crawler.parsers.html_links import LINKING
from crawler.parsers.html_marks import LINE, LINK_END
from crawler.parsers.html_noise import HIDING, TELLING, hides
from crawler.parsers.html_tags import (
    attributes,
    each_attribute,
    is_self_closing,
    named,
    tag_at,
    value,
)

LONGEST: Final = 1_000  # letters of a tag whose shape is kept
LONGEST_KNOWN: Final = 200
MOST_KNOWN: Final = 8_192  # guess: a page has some dozens; all are met again when it is reached
READ: Final = frozenset(("a",)) | LINKING.keys() | DECLARING | TELLING | RAW
"""Elements that say something beyond their text."""


class Tag(NamedTuple):
    name: str
    given: dict[str, str]  # its attributes, for all to read
    mark: str  # what stands for it in the text
    is_read: bool
    is_self_closing: bool


class Shape(NamedTuple):
    name: str
    mark: str
    is_read: bool
    quoted: tuple[str, ...]  # the attributes with quoted values, in their order
    others: dict[str, str]
    is_self_closing: bool


NO_TAG: Final = Tag("", {}, "", is_read=False, is_self_closing=False)
known: Final[dict[str, str]] = {}
"""Tags as written that only part words, and their marks: those of one page are on many others."""


def remember(tag: str, mark: str) -> str:
    if len(tag) <= LONGEST_KNOWN:
        if len(known) == MOST_KNOWN:
            known.clear()
        known[tag] = mark
    return mark


def mark_of(name: str) -> str:
    return "" if name in INLINE else LINE


def tag_of(tag: str) -> Tag | None:
    """*tag*: up to its first ">". None: it goes on behind that."""
    return _short(tag) if len(tag) <= LONGEST_KNOWN else _tag_of(tag)


def _tag_of(tag: str) -> Tag | None:
    name, written = named(tag)
    if not name:
        return NO_TAG
    if not tag_at(tag):
        return None
    if tag[0] == "/":
        mark = LINK_END if name == "a" else mark_of(name)
        return Tag(name, {}, mark, name in TELLING, is_self_closing=False)
    is_read = name in READ or hides(written)
    given = attributes(written) if is_read else {}
    return Tag(name, given, mark_of(name), is_read, is_self_closing(tag))


_short: Final = lru_cache(maxsize=4096)(_tag_of)


@lru_cache(maxsize=4096)
def shape_of(between: tuple[str, ...]) -> Shape | None:
    """*between*: a tag split at its double quotes, without what stood in them; it has no single
    ones. None: it is no start tag, not every quote is one around a value, or an attribute occurs
    twice."""
    example = "".join([f'{part}"{number}"' for number, part in enumerate(between[:-1])])
    example += between[-1]
    name, written = named(example)
    given = each_attribute(written)
    quoted = tuple([key.lower() for key, double, _, _ in given if double])
    others = {key.lower(): value(bare) for key, double, _, bare in given if not double}
    if len(quoted) < len(between) - 1 or len({*quoted, *others}) < len(given):
        return None
    if example[0] == "/" or not tag_at(example):
        return None
    keys = {*quoted, *others}
    is_read = "href" in keys if name == "a" else name in READ or not HIDING.isdisjoint(keys)
    return Shape(name, mark_of(name), is_read, quoted, others, is_self_closing(example))
