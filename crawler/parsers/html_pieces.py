"""A page cut at every "<": nearly every piece is a tag and the words behind it.

Rule: what is no such piece (a comment, a script, a tag with a "<" or ">" in quotes) is put
together from several, each read once: time and memory are linear in the page.
HTML5's tree is not: in lexbor 50 kB of `<p><b a=1><p><b a=2>...` take 2.9 GB and 14 s, and 170 kB
of attributes in one tag 3 s (docs/decisions/0011-pages-are-read-by-their-tags.md).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from itertools import accumulate, islice
from operator import length_hint
from typing import Final

from crawler.parsers.html_tags import SPACE, tag_at

# What a piece goes on with after the name of its end tag; a "<" is a part of the name.
_AFTER_NAME: Final = frozenset((*SPACE, "/", ">"))
_short_comment = re.compile(r"!--(?:-?>|(?:[^-]++|-(?!-!?>))*+--!?>)").match
_end_of_comment = re.compile(r"--!?>").search


class Pieces:
    """Read from several places: each goes on where the one before it stopped."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._all = text.split("<")
        self._starts: list[int] = []  # of the pieces, in the text; made when first asked for
        self.rest = iter(self._all)

    def tag(self) -> tuple[str, str]:
        """The tag that the last piece begins, wherever it ends, and the words behind it."""
        if not self._starts:
            self._starts = list(accumulate((len(one) + 1 for one in self._all), initial=0))
        number = len(self._all) - length_hint(self.rest) - 1
        begin = self._starts[number]
        found = tag_at(self._text, begin)
        if found is None:  # it never ends
            self.pass_over(len(self._all))
            return "", ""
        end = found.end()
        last = bisect_right(self._starts, end) - 1
        self.pass_over(last - number)
        return self._text[begin : end - 1], self._text[end : self._starts[last + 1] - 1]

    def comment(self, piece: str) -> str:
        """The words behind the comment that *piece* begins."""
        if short := _short_comment(piece):
            return piece[short.end() :]
        for more in self.rest:  # no end of a comment has a "<" in it
            if ended := _end_of_comment(more):
                return more[ended.end() :]
        return ""

    def bogus(self) -> str:
        """The words behind the next ">"."""
        for more in self.rest:
            _, ended, words = more.partition(">")
            if ended:
                return words
        return ""

    def raw(self, name: str, first: str) -> tuple[str, str]:
        """The text of an element that holds nothing else, and the piece of its end tag."""
        held = [first]
        length = len(name) + 1
        for piece in self.rest:
            if (
                piece[:1] == "/"
                and piece[length : length + 1] in _AFTER_NAME
                and piece[1:length].lower() == name
            ):
                return "<".join(held), piece
            held.append(piece)
        return "<".join(held), ""

    def pass_over(self, pieces: int) -> None:
        deque(islice(self.rest, pieces), maxlen=0)
