"""The one pass over a page: its words, and the elements that say something beyond them.

Rule: a tag that only parts words is met once in the life of a process and known from then on (nine
of ten); one that links, hides or declares something is read. As a browser's tokenizer reads, so
that broken markup gives what a browser would see, but for what only a tree knows
(docs/decisions/0011).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Final

from crawler.parsers.html_elements import RAW
from crawler.parsers.html_facts import DECLARING, Facts
from crawler.parsers.html_links import LINKING, Given, LinksFound
from crawler.parsers.html_marks import LINE, LINK, unmarked
from crawler.parsers.html_noise import HIDING, TELLING, Noise, Span
from crawler.parsers.html_pieces import Pieces
from crawler.parsers.html_shapes import LONGEST, NO_TAG, Shape, mark_of, remember, shape_of, tag_of
from crawler.parsers.html_tags import value

# As nearly all links are written, and without rel.
_link: Final = re.compile(
    r'a(?: (?!href=|rel=)[a-z-]++="[^"]*+")*+ href="([^"]*+)"(?: (?!rel=)[a-z-]++="[^"]*+")*+>'
).fullmatch


class Reader:
    """Reads one page, at once."""

    def __init__(self, text: str) -> None:
        self.links = LinksFound()
        self.facts = Facts()
        self._noise = Noise()
        self._titles: list[tuple[int, str]] = []  # by the numbers of their tags
        self._pieces = Pieces(unmarked(text))
        self._read()
        spans = list(self._noise.spans(self._pieces.tags))
        self._title([span for span in spans if span.name == "svg"])
        self.parts = self._pieces.parts()  # words and marks in turn
        self.noise = [span.parts for span in spans if span.end < len(self._pieces.tags)]

    def _read(self) -> None:
        tags, marks, plain_link = self._pieces.tags, self._pieces.marks, self.links.plain
        for at, mark in enumerate(marks):
            if mark is None:
                tag = tags[at]
                if tag[:2] == "a " and (found := _link(tag)):
                    plain_link(found[1])
                    marks[at] = LINK
                else:
                    marks[at] = self._meet(at, tag)

    def _meet(self, at: int, tag: str) -> str:
        """What stands for the tag in the text."""
        if tag[:3] == "!--":
            if not tag.endswith("-->"):
                self._pieces.comment(at)
            return ""
        if '"' in tag and "'" not in tag and len(tag) < LONGEST:
            fields = tag.split('"')
            if shape := shape_of(tuple(fields[::2])):
                return self._by_shape(at, tag, fields, shape)
        return self._by_text(at, tag)

    def _by_shape(self, at: int, tag: str, fields: list[str], shape: Shape) -> str:
        if not shape.is_read:
            return remember(tag, shape.mark)
        given = dict(zip(shape.quoted, map(value, fields[1::2]), strict=True))
        return self._take(at, shape.name, given | shape.others if shape.others else given)

    def _by_text(self, at: int, tag: str) -> str:
        read = tag_of(tag)
        if read is None:
            tag = self._pieces.tag(at)
            read = tag_of(tag) or NO_TAG
        if not read.is_read:
            return remember(tag, read.mark)
        if tag[0] == "/":
            self._noise.ends(at, read.name)
            return read.mark
        return self._take(at, read.name, read.given)

    def _take(self, at: int, name: str, given: Given) -> str:
        if name == "a":
            if "href" not in given:
                return ""
            self.links.a(given["href"], given.get("rel", ""))
            return LINK
        if name in TELLING or not HIDING.isdisjoint(given):
            self._noise.begins(at, name, given)
        if name in LINKING:
            self.links.take(name, given)
        if name in DECLARING:
            self.facts.take(name, given)
        if name in RAW:
            self._raw(at, name, given)
        return mark_of(name)

    def _raw(self, at: int, name: str, given: Given) -> None:
        """An element that holds nothing but text."""
        held = self._pieces.raw(at, name)
        if name == "title":
            self._titles.append((at, held))
        elif name == "script" and given.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self._pieces.words[at] = held.replace("&", "&amp;") + LINE

    def _title(self, drawings: list[Span]) -> None:
        """A drawing has a title, too, which is not the page's."""
        begins = [drawing.begin for drawing in drawings]
        for at, title in self._titles:
            before = bisect_left(begins, at)
            if not before or drawings[before - 1].end < at:
                self.facts.titled(title)
