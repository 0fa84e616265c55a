"""Where on a page stands what its author marked as no content: menus, footers, what is hidden.

Rule: counts the open elements of one name at a time, no tree. What is never closed hides nothing,
so that a forgotten end tag costs no text.
"""

from __future__ import annotations

import re
from typing import Final

from crawler.parsers.html_elements import AROUND, AROUND_BY_ROLE, CLOSED, CONTENT, UNSEEN

COUNTED: Final = AROUND | CONTENT | UNSEEN
"""Elements whose tags must all be told of here."""
HIDING: Final = frozenset(("hidden", "role"))
"""Attributes that hide an element: one that has them must be told of, too."""

_hiding = re.compile("role|hidden", re.IGNORECASE).search


def hides(written: str) -> bool:
    """Whether attributes as written may hide their element."""
    return _hiding(written) is not None


class Noise:
    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []  # one behind the other
        self.name = ""  # of the element that holds the present one: all its tags must be told of
        self._open = 0  # how many of that name are
        self._begin = 0
        self._content = 0  # how many elements are open that hold content

    def begins(self, name: str, given: dict[str, str], at: int) -> bool:
        """True: from here on, tags of this name must be told of that need not be before."""
        if self.name:
            self._open += name == self.name
            return False
        self._content += name in CONTENT
        if not self._hides(name, given):
            return False
        self.name, self._open, self._begin = name, 1, at
        return name not in COUNTED

    def ends(self, name: str, at: int) -> None:
        if not self.name:
            self._content -= name in CONTENT and self._content > 0
        elif name == self.name:
            self._open -= 1
            if not self._open:
                self.spans.append((self._begin, at))
                self.name = ""

    def _hides(self, name: str, given: dict[str, str]) -> bool:
        if name in UNSEEN:
            return True
        if name in AROUND:  # the header of an article is a part of it
            return not (self._content and name in ("header", "footer"))
        return name in CLOSED and (
            "hidden" in given or given.get("role", "").strip().lower() in AROUND_BY_ROLE
        )
