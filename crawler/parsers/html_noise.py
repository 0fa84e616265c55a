"""Where on a page stands what its author marked as no content: menus, footers, what is hidden.

Rule: counts the open elements of one name at a time, no tree. What is never closed hides nothing,
so that a forgotten end tag costs no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from crawler.parsers.html_elements import AROUND, AROUND_BY_ROLE, CLOSED, CONTENT, UNSEEN
from crawler.parsers.html_tags import SPACE, is_self_closing

TELLING: Final = AROUND | CONTENT | UNSEEN
"""Elements whose start tags must be told of here."""
HIDING: Final = frozenset(("hidden", "role"))
"""Attributes that hide an element: one that has them must be told of, too."""
_AS_PARTS: Final = frozenset(("header", "footer"))  # those of an article are a part of it

_hiding = re.compile("role|hidden", re.IGNORECASE).search


def hides(written: str) -> bool:
    """Whether attributes as written may hide their element."""
    return _hiding(written) is not None


class Span(NamedTuple):
    """An element without content, by the numbers of its tags."""

    name: str
    begin: int
    end: int  # as many as there are: it is never closed

    @property
    def parts(self) -> tuple[int, int]:
        """Where it stands among words and tags in turn."""
        return 2 * self.begin + 1, 2 * self.end + 1


# A tag, the name of its element, 1 for a start tag or -1 for an end tag, and whether it hides.
_Told = tuple[int, str, int, bool]


class Noise:
    def __init__(self, *, is_xml: bool) -> None:
        self._told: list[_Told] = []
        self._is_xml = is_xml

    def begins(self, at: int, name: str, given: dict[str, str]) -> None:
        """An element that its own tag does not close."""
        is_hiding = _hides(name, given)
        if is_hiding or name in TELLING:
            self._told.append((at, name, 1, is_hiding))

    def ends(self, at: int, name: str) -> None:
        """One of TELLING."""
        self._told.append((at, name, -1, False))

    def spans(self, tags: Sequence[str]) -> Iterator[Span]:
        """One behind the other. *tags*: all of the page."""
        content = 0  # how many elements are open that hold it
        end = -1
        for number, (at, name, step, is_hiding) in enumerate(self._told):
            if at <= end:
                continue
            if name in CONTENT:
                content = max(content + step, 0)
            if is_hiding and not (content and name in _AS_PARTS):
                end = self._end(number, tags)
                yield Span(name, at, end)

    def _end(self, number: int, tags: Sequence[str]) -> int:
        begin, name, _, _ = self._told[number]
        opened = 0
        steps = self._steps(number) if name in TELLING else self._steps_by_tags(tags, begin, name)
        for at, step in steps:
            opened += step
            if not opened:
                return at
        return len(tags)

    def _steps(self, number: int) -> Iterator[tuple[int, int]]:
        told = self._told
        element = told[number][1]
        for later in range(number, len(told)):
            at, name, step, _ = told[later]
            if name == element:
                yield at, step

    def _steps_by_tags(
        self, tags: Sequence[str], begin: int, name: str
    ) -> Iterator[tuple[int, int]]:
        step = _step(name)
        for at in range(begin, len(tags)):
            found = step(tags[at])
            if found and not (self._is_xml and is_self_closing(tags[at])):
                yield at, -1 if found[1] else 1


def _hides(name: str, given: dict[str, str]) -> bool:
    if name in UNSEEN or name in AROUND:
        return True
    return name in CLOSED and (
        "hidden" in given or given.get("role", "").strip().lower() in AROUND_BY_ROLE
    )


@lru_cache(maxsize=64)
def _step(name: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf"(/?){name}[{SPACE}/>]", re.IGNORECASE | re.ASCII).match
