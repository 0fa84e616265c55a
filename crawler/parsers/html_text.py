"""The words of a page as lines of text: each block is a line, white space is folded.

Rule: passes over the whole text are in C, and only lines are looked at in Python. A page of which
nothing would be left keeps all it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from crawler.parsers.html_marks import LINE, LINK, LINK_END
from crawler.parsers.html_prose import Line, prose
from crawler.parsers.html_tags import in_text

Spans = Sequence[tuple[int, int]]

_SPACES: Final = "\t\n\r\f\v\xa0"
_SPACE: Final = ord(" ")


def page_text(parts: Sequence[str], noise: Spans) -> str:
    """*parts*: words and marks in turn; *noise*: where in them there is no content."""
    found = lines(without(parts, noise)) or lines(parts)
    kept = prose(found)
    return folded("\n".join([line for line, _ in found] if kept is None else kept))


def without(parts: Sequence[str], noise: Spans) -> Sequence[str]:
    if not noise:
        return parts
    kept: list[str] = []
    position = 0
    for begin, end in noise:
        kept += parts[position:begin]
        position = end
    kept += parts[position:]
    return kept


def lines(parts: Sequence[str]) -> list[Line]:
    found: list[Line] = []
    inside = False  # a link
    for marked in filter(None, _joined(parts).split(LINE)):
        plain, linked = marked, 0
        if inside or LINK in marked or LINK_END in marked:
            plain, linked, inside = _unmarked(marked, inside)
        if plain := plain.strip(" "):
            found.append((plain, linked))
    return found


def _joined(parts: Sequence[str]) -> str:
    text = "".join(parts)
    if "&" in text:  # a reference does not go on behind a tag
        read = list(parts)
        read[::2] = [in_text(words) if "&" in words else words for words in parts[::2]]
        text = "".join(read)
    for space in _SPACES:
        if space in text:
            text = text.replace(space, " ")
    return text


def _unmarked(line: str, inside: bool) -> tuple[str, int, bool]:
    """Also: how many letters of it are links, and whether it ends in one."""
    before, _, more = line.partition(LINK)
    link, end, behind = more.partition(LINK_END)
    if inside or not end or LINK in more or LINK_END in before or LINK_END in behind:
        return _of_several(line, inside)
    return f"{before}{link}{behind}", len(link), False  # nine lines in ten of those with links


def _of_several(line: str, inside: bool) -> tuple[str, int, bool]:
    words: list[str] = []
    linked = 0
    for number, piece in enumerate(line.split(LINK)):
        link, end, behind = piece.partition(LINK_END)
        words += (link, behind)
        if inside or number:
            linked += len(link)
            inside = not end
    return "".join(words).replace(LINK_END, ""), linked, inside


def folded(text: str) -> str:
    """With one space where there are several."""
    data = text.encode(errors="replace")
    letters = np.frombuffer(data, np.uint8)
    spaces = letters == _SPACE
    again = spaces[1:] & spaces[:-1]
    if not again.any():
        return text
    kept: bytes = data[:1] + letters[1:][~again].tobytes()
    return kept.decode()
