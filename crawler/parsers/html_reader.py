"""The one pass over a page: its words, and the elements that say something beyond them.

Rule: a tag that only parts words is met once and known from then on (nine of ten); one that
links, hides or declares something is read. As a browser's tokenizer reads, so that broken markup
gives what a browser would see, but for what only a tree knows (docs/decisions/0011).
"""

from __future__ import annotations

from typing import Final

from crawler.parsers.html_elements import RAW
from crawler.parsers.html_facts import DECLARING, Facts
from crawler.parsers.html_links import LINKING, LinksFound
from crawler.parsers.html_marks import LINE, LINK, LINK_END, unmarked
from crawler.parsers.html_noise import COUNTED, Noise, hides
from crawler.parsers.html_pieces import Pieces
from crawler.parsers.html_shapes import LONGEST, PLAIN_TAGS, READ, mark_of, shape_of
from crawler.parsers.html_tags import attributes, is_whole, named, value

_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_PLAIN_LINK: Final = 'a href="'  # nothing else is in two of three links
_NEVER_HIDING: Final = (LINKING.keys() | DECLARING | RAW) - COUNTED


class Reader:
    """Reads one page, at once."""

    def __init__(self, text: str) -> None:
        self.links = LinksFound()
        self.facts = Facts()
        self.noise = Noise()
        self.parts: list[str] = []  # marks and words in turn
        self._pieces = Pieces(unmarked(text))
        self._known = PLAIN_TAGS.copy()  # tags as written that only part words, and their marks
        self._remembered: dict[str, list[str]] = {}  # those that were added, by their name
        self._read()

    def _read(self) -> None:
        known, add, plain_link = self._known.get, self.parts.append, self.links.plain
        rest = self._pieces.rest
        add(next(rest))
        for piece in rest:
            tag, end, words = piece.partition(">")
            mark = known(tag) if end else None
            if mark is None:
                if end and tag[:8] == _PLAIN_LINK and tag.find('"', 8) == len(tag) - 1:
                    plain_link(tag[8:-1])
                    mark = LINK
                else:
                    mark, words = self._meet(piece, tag, end, words)
            add(mark)
            add(words)

    def _meet(self, piece: str, tag: str, end: str, words: str) -> tuple[str, str]:
        """What stands for the tag in the text, and the words behind it."""
        first = tag[:1]
        if first in _LETTERS:
            if end and '"' in tag and "'" not in tag and len(tag) < LONGEST:
                return self._by_shape(tag, words)
            return self._begin(tag, words, is_cut=not end)
        if first == "/" and tag[1:2] in _LETTERS:
            return self._end(tag, words, is_cut=not end)
        return "", self._words_behind(piece, first, words if end else None)

    def _words_behind(self, piece: str, first: str, words: str | None) -> str:
        """What is no tag: a comment, something like it, or a loose "<"."""
        if piece[:3] == "!--":
            return self._pieces.comment(piece)
        if first and first in "!?/":
            return self._pieces.bogus() if words is None else words
        return "<" + piece

    def _by_shape(self, tag: str, words: str) -> tuple[str, str]:
        fields = tag.split('"')
        shape = shape_of(tuple(fields[::2])) if len(fields) % 2 else None
        if shape is None:
            return self._begin(tag, words, is_cut=False)
        if shape.href:
            self.links.a(value(fields[shape.href]), value(fields[shape.rel]) if shape.rel else "")
            return LINK, words
        if not shape.is_read and shape.name != self.noise.name:
            return self._remember(tag, shape.name, shape.mark), words
        given = dict(zip(shape.quoted, map(value, fields[1::2]), strict=True))
        return self._take(shape.name, given | shape.others if shape.others else given, words)

    def _begin(self, tag: str, words: str, *, is_cut: bool) -> tuple[str, str]:
        if is_cut or not is_whole(tag):
            tag, words = self._pieces.tag()
        name, written = named(tag)
        if name in READ or name == self.noise.name or hides(written):
            return self._take(name, attributes(written), words)
        return self._remember(tag, name, mark_of(name)), words

    def _end(self, tag: str, words: str, *, is_cut: bool) -> tuple[str, str]:
        if is_cut or not is_whole(tag):
            tag, words = self._pieces.tag()
        name, _ = named(tag)
        mark = LINK_END if name == "a" else mark_of(name)
        if name in COUNTED or name == self.noise.name:
            self.noise.ends(name, len(self.parts))
            return mark, words
        return self._remember(tag, name, mark), words

    def _remember(self, tag: str, name: str, mark: str) -> str:
        self._known[tag] = mark
        self._remembered.setdefault(name, []).append(tag)
        return mark

    def _forget(self, name: str) -> None:
        """Meet all tags of that name from now on."""
        for tag in (name, f"/{name}", *self._remembered.pop(name, ())):
            self._known.pop(tag, None)

    def _take(self, name: str, given: dict[str, str], words: str) -> tuple[str, str]:
        if name == "a":
            if "href" not in given:
                return "", words
            self.links.a(given["href"], given.get("rel", ""))
            return LINK, words
        if name not in _NEVER_HIDING and self.noise.begins(name, given, len(self.parts)):
            self._forget(name)
        if name in LINKING:
            self.links.take(name, given)
        if name in DECLARING:
            self.facts.take(name, given)
        if name in RAW:
            words = self._raw(name, given, words)
        return mark_of(name), words

    def _raw(self, name: str, given: dict[str, str], words: str) -> str:
        """The words behind an element that holds nothing but text."""
        held, closing = self._pieces.raw(name, words)
        if name == "title" and self.noise.name != "svg":  # of the page, not of a drawing
            self.facts.titled(held)
        elif name == "script" and given.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self.parts += (LINE, held.replace("&", "&amp;"))
        tag, end, behind = closing.partition(">")
        if not closing or (end and tag in self._known):
            return behind
        return self._meet(closing, tag, end, behind)[1]
