"""A page cut at its tags: words and tags in turn.

Rule: a cut is from "<" to the next ">", which nearly always is a tag. What is longer (a comment, a
script, a tag with a ">" in quotes) goes over the pieces behind it, which are blank from then on.
Each is gone over once: time and memory are linear in the page.
HTML5's tree is not: in lexbor 50 kB of `<p><b a=1><p><b a=2>...` take 2.9 GB and 14 s, and 170 kB
of attributes in one tag 3 s (docs/decisions/0011-pages-are-read-by-their-tags.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from crawler.parsers.html_shapes import known
from crawler.parsers.html_tags import SPACE, tag_at

# Any other "<" is one of the words.
_cut: Final = re.compile(r"<([A-Za-z/!?][^>]*>?)").split
_empty_comment: Final = re.compile(r"!---?>").match
_end_of_cdata: Final = re.compile(r"\]\]>").search
_end_of_comment: Final = re.compile(r"--!?>").search


class Pieces:
    """A piece is a tag, with its ">", and the words behind it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._cut = _cut(text)  # words, a tag, words, a tag, words
        self.tags = self._cut[1::2]  # empty: gone over
        self.words = self._cut[2::2]  # behind each of them
        self.marks = list(map(known.get, self.tags))  # None: not plain, or not met before
        self._milestone = 0, len(self._cut[0]) + 1  # a piece, and where it begins, behind "<"

    def parts(self) -> list[str]:
        """Words, and the marks of the tags between them, in turn."""
        self._cut[1::2] = self.marks
        self._cut[2::2] = self.words
        return self._cut

    def tag(self, piece: int) -> str:
        """The tag that begins there, wherever it ends. Empty: it never does."""
        found = tag_at(self._text, self._begin(piece))
        self._go_over(piece, found)
        if found is None:
            self.tags[piece] = ""
        return found[0] if found else ""

    def comment(self, piece: int) -> None:
        begin = self._begin(piece)
        found = _empty_comment(self._text, begin)
        self._go_over(piece, found or _end_of_comment(self._text, begin + len("!--")))

    def cdata(self, piece: int) -> None:
        """A section of XML that holds nothing but text."""
        begin = self._begin(piece)
        closing = _end_of_cdata(self._text, begin)
        held = self._text[begin + len("![CDATA[") : closing.start() if closing else None]
        self._go_over(piece, closing)
        self.words[piece] = held.replace("&", "&amp;") + self.words[piece]

    def raw(self, piece: int, name: str) -> str:
        """The text of an element that holds nothing else."""
        if self.tags[piece + 1 : piece + 2] == [f"/{name}>"]:
            held, self.words[piece] = self.words[piece], ""
            return held
        begin = self._begin(piece) + len(self.tags[piece])
        closing = _end_of(name)(self._text, begin)
        self._go_over(piece, closing and tag_at(self._text, closing.start() + 1))
        return self._text[begin : closing.start() if closing else None]

    def _begin(self, piece: int) -> int:
        """To be asked for one behind the other."""
        last, begin = self._milestone
        begin += piece - last + sum(map(len, self._cut[2 * last + 1 : 2 * piece + 1]))
        self._milestone = piece, begin
        return begin

    def _go_over(self, piece: int, found: re.Match[str] | None) -> None:
        """What was *found* to begin there; the rest of the page if that never ends."""
        end = found.end() if found else len(self._text)
        last, begin, cut = piece, self._begin(piece), self._cut
        while (behind := begin + len(cut[2 * last + 1]) + len(cut[2 * last + 2])) < end:
            self.words[last] = ""
            last, begin = last + 1, behind + 1
            self.tags[last] = self.marks[last] = ""
        self.words[last] = self._text[end:behind]
        self._milestone = last + 1, behind + 1


@lru_cache(maxsize=16)
def _end_of(name: str) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(rf"</{name}[{SPACE}/>]", re.IGNORECASE | re.ASCII).search
