"""The one pass over a page: its words, and the elements that say something beyond them.

Rule: a tag that only parts words is met once in the life of a process and known from then on (nine
of ten); one that links, hides or declares something is read. As a browser's tokenizer reads, so
that broken markup gives what a browser would see, but for what only a tree knows
(docs/decisions/0011).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from crawler.parsers.html_elements import FOREIGN, HTML_WITHIN, NEVER_FOREIGN, RAW
from crawler.parsers.html_facts import DECLARING, Facts
from crawler.parsers.html_links import LINKING, Given, LinksFound
from crawler.parsers.html_marks import LINE, LINK, unmarked
from crawler.parsers.html_noise import HIDING, TELLING, Noise
from crawler.parsers.html_pieces import Pieces
from crawler.parsers.html_shapes import LONGEST, NO_TAG, Shape, mark_of, remember, shape_of, tag_of
from crawler.parsers.html_tags import SPACE, is_self_closing, value

# As nearly all links are written, and without rel.
_link: Final = re.compile(
    r'a(?: (?!href=|rel=)[a-z-]++="[^"]*+")*+ href="([^"]*+)"(?: (?!rel=)[a-z-]++="[^"]*+")*+>'
).fullmatch


class Reader:
    """Reads one page, at once."""

    def __init__(self, text: str, *, is_xml: bool = False) -> None:
        self.links = LinksFound()
        self.facts = Facts()
        self._is_xml = is_xml
        self._noise = Noise(is_xml=is_xml)
        self._pieces = Pieces(unmarked(text))
        self._foreign = _Foreign(self._pieces.tags)
        self._read()
        spans = list(self._noise.spans(self._pieces.tags))
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
        if tag[:8] == "![CDATA[":
            if self._is_xml or self._foreign.holds(at):
                self._pieces.cdata(at)
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
        given = given | shape.others if shape.others else given
        return self._take(at, shape.name, given, is_self_closing=shape.is_self_closing)

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
        return self._take(at, read.name, read.given, is_self_closing=read.is_self_closing)

    def _take(self, at: int, name: str, given: Given, *, is_self_closing: bool) -> str:
        is_empty = is_self_closing and (self._is_xml or name in FOREIGN)
        if name == "a":
            if "href" not in given:
                return ""
            self.links.a(given["href"], given.get("rel", ""))
            return "" if is_empty else LINK
        if not is_empty and (name in TELLING or not HIDING.isdisjoint(given)):
            self._noise.begins(at, name, given)
        if name in LINKING:
            self.links.take(name, given)
        if name in DECLARING:
            self.facts.take(name, given)
        if name in FOREIGN and not is_empty:
            self._foreign.begins(at)
        elif name in RAW and not is_empty and not self._foreign.holds(at):
            self._raw(at, name, given)
        return mark_of(name)

    def _raw(self, at: int, name: str, given: Given) -> None:
        """An element that holds nothing but text."""
        held = self._pieces.raw(at, name)
        if name == "title":
            self.facts.titled(held)
        elif name == "script" and given.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self._pieces.words[at] = held.replace("&", "&amp;") + LINE


class _Foreign:
    """Which tags stand in a drawing or formula, outside of the HTML in it.

    Most pages need no answer. Where one is asked for, the tags since the last question are gone
    over, each once in the life of a page, and those outside of drawings not at all.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tags
        self._begins: list[int] = []  # the start tags of drawings and formulas
        self._met = 0  # of those
        self._open: list[str] = []  # of FOREIGN and HTML_WITHIN, the innermost last
        self._position = 0

    def begins(self, at: int) -> None:
        self._begins.append(at)

    def holds(self, at: int) -> bool:
        """Whether the tag *at* is foreign. To be asked for one behind the other."""
        while self._position < at and (self._open or self._met < len(self._begins)):
            if not self._open:
                self._position = self._begins[self._met]
            if found := _of_foreign(self._tags[self._position]):
                self._pass(found[2].lower(), is_end=bool(found[1]))
            self._position += 1
        return bool(self._open) and self._open[-1] in FOREIGN

    def _pass(self, name: str, *, is_end: bool) -> None:
        inside = self._open[-1] if self._open else ""
        tag = self._tags[self._position]
        if is_end and name not in ("br", "p"):
            self._close(name)
        elif name in FOREIGN:
            if self._begins[self._met : self._met + 1] == [self._position]:
                self._met += 1
                self._push(name)
        elif name in HTML_WITHIN.get(inside, ()):
            is_html = name != "annotation-xml" or _holds_html(tag)
            if is_html and not is_self_closing(tag):
                self._push(name)
        elif inside in FOREIGN and (name in NEVER_FOREIGN or (name == "font" and _is_font(tag))):
            while self._open and self._open[-1] in FOREIGN:
                self._open.pop()

    def _push(self, name: str) -> None:
        if len(self._open) < _MAX_OPEN:
            self._open.append(name)

    def _close(self, name: str) -> None:
        if name in self._open:
            while self._open.pop() != name:
                pass


_MAX_OPEN: Final = 64  # guess: nobody nests drawings; an end tag looks through as many
_of_foreign = re.compile(
    rf"(/?)({'|'.join(sorted(FOREIGN.union(*HTML_WITHIN.values(), NEVER_FOREIGN, ('font',))))})"
    rf"(?=[{SPACE}/>])",
    re.IGNORECASE | re.ASCII,
).match
_is_font = re.compile(rf"[^>]*[{SPACE}/'\"](?:color|face|size)[{SPACE}/>=]", re.IGNORECASE).match
_holds_html = re.compile(
    rf"[^>]*[{SPACE}/'\"]encoding[{SPACE}]*=[{SPACE}]*[\"']?"
    rf"(?:text/html|application/xhtml\+xml)[{SPACE}/>\"']",
    re.IGNORECASE,
).match
