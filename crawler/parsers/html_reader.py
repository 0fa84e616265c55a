"""The one pass over a page: its words, and the elements that say something beyond them.

Rule: a tag that only parts words is met once and known from then on (nine of ten); one that
links, hides or declares something is read. As a browser's tokenizer reads, so that broken markup
gives what a browser would see, but for what only a tree knows (docs/decisions/0011).
"""

from __future__ import annotations

from typing import Final

from crawler.parsers.html_elements import INLINE, RAW
from crawler.parsers.html_facts import NAMES as DECLARING
from crawler.parsers.html_facts import Facts
from crawler.parsers.html_links import READERS as LINKING
from crawler.parsers.html_links import LinksFound
from crawler.parsers.html_noise import COUNTED, Noise
from crawler.parsers.html_pieces import Pieces
from crawler.parsers.html_tags import attributes, is_whole, name_of

LINE: Final = "\0"  # marks in the text: here a line ends,
LINK: Final = "\1"  # here a link begins,
LINK_END: Final = "\2"  # and here it ends
_UNMARKED: Final = str.maketrans({LINE: "\ufffd", LINK: " ", LINK_END: " "})

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_PLAIN_LINK: Final = 'a href="'  # nothing else is in four of five links
_READ: Final = LINKING.keys() | DECLARING | COUNTED | RAW
# Attributes that hide an element, and may stand in any.
_HIDING: Final = ("role", "ROLE", "hidden", "HIDDEN")


class Reader:
    """Reads one page, at once."""

    def __init__(self, text: str) -> None:
        if LINE in text or LINK in text or LINK_END in text:
            text = text.translate(_UNMARKED)
        self.links = LinksFound()
        self.facts = Facts()
        self.noise = Noise()
        self.parts: list[str] = []  # marks and words in turn
        self._pieces = Pieces(text)
        self._known: dict[str, str] = {}  # tags as written that only part words, and their mark
        self._read()

    def _read(self) -> None:
        known, add = self._known.get, self.parts.append
        rest = self._pieces.rest
        add(next(rest))
        for piece in rest:
            tag, end, words = piece.partition(">")
            mark = known(tag) if end else None
            if mark is None:
                mark, words = self._meet(piece, tag, end, words)
            add(mark)
            add(words)

    def _meet(self, piece: str, tag: str, end: str, words: str) -> tuple[str, str]:
        """What stands for the tag in the text, and the words behind it."""
        first = tag[:1]
        if first in _LETTERS or (first == "/" and tag[1:2] in _LETTERS):
            if not end or (("'" in tag or '"' in tag) and not is_whole(tag)):
                tag, words = self._pieces.tag()
            return self._end(tag, words) if first == "/" else self._begin(tag, words)
        if piece[:3] == "!--":
            return "", self._pieces.comment(piece)
        if first and first in "!?/":
            return "", words if end else self._pieces.bogus()
        return "", "<" + piece

    def _begin(self, tag: str, words: str) -> tuple[str, str]:
        found = name_of(tag)
        if found is None:  # the page ended within it
            return "", ""
        name = found[1].lower()
        mark = "" if name in INLINE else LINE
        if name in _READ or any(word in tag for word in _HIDING):
            given = attributes(tag[found.end() :])
            if self.noise.begins(name, given, len(self.parts)):
                self._known.clear()
            mark = self._take(name, given) or mark
            if name in RAW:
                words = self._raw(name, given, words)
        elif name != self.noise.name:
            self._known[tag] = mark
        return mark, words

    def _take(self, name: str, given: dict[str, str]) -> str:
        if name in LINKING:
            self.links.take(name, given)
        if name in DECLARING:
            self.facts.take(name, given)
        return LINK if name == "a" and "href" in given else ""

    def _raw(self, name: str, given: dict[str, str], words: str) -> str:
        """The words behind an element that holds nothing but text."""
        held, closing = self._pieces.raw(name, words)
        if name == "title" and not self.noise.name:  # of the page, not of a drawing
            self.facts.titled(held)
        elif name == "script" and given.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self.parts += (LINE, held.replace("&", "&amp;"))
        return self._meet(closing, *closing.partition(">"))[1] if closing else ""

    def _end(self, tag: str, words: str) -> tuple[str, str]:
        found = name_of(tag)
        if found is None:  # the page ended within it
            return "", ""
        name = found[1].lower()
        mark = LINK_END if name == "a" else "" if name in INLINE else LINE
        if name in COUNTED or name == self.noise.name:
            self.noise.ends(name, len(self.parts))
        else:
            self._known[tag] = mark
        return mark, words
