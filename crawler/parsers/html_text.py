"""The words of a page as lines of text, and which of them are its content.

Rule: each block of the page is a line, white space is folded; all passes over the text are in C.
A page of which nothing would be left keeps all its lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crawler.parsers.html_reader import LINE, LINK, LINK_END
from crawler.parsers.html_tags import in_text

_FOLDED: Final = "\t\n\r\f\v\xa0"


def page_text(parts: Sequence[str], noise: Sequence[tuple[int, int]]) -> str:
    """*parts*: marks and words in turn; *noise*: where in them there is no content."""
    return "\n".join(lines(without(parts, noise)) or lines(parts))


def without(parts: Sequence[str], noise: Sequence[tuple[int, int]]) -> Sequence[str]:
    if not noise:
        return parts
    kept: list[str] = []
    position = 0
    for begin, end in noise:
        kept += parts[position:begin]
        position = end
    kept += parts[position:]
    return kept


def lines(parts: Sequence[str]) -> list[str]:
    text = "".join(parts)
    if "&" in text:  # a reference does not go on behind a tag
        text = "".join([in_text(part) if "&" in part else part for part in parts])
    for space in _FOLDED:
        if space in text:
            text = text.replace(space, " ")
    text = text.replace(LINK, "").replace(LINK_END, "")
    folded = (line.strip(" ") for line in text.split(LINE))
    return [" ".join(line.split()) if "  " in line else line for line in folded if line]
