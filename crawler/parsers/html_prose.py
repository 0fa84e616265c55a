"""Which lines of a page are its content, where its markup does not say so: the prose, and what
stands between prose.

Rule: by lengths only, so in any language. What it decides and how that was measured:
docs/decisions/0014-what-of-a-page-is-its-text.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

Line = tuple[str, int]
"""Its text, and how many letters of it are links."""

# Shorter lines are titles, dates, buttons: about 15 words.
PROSE_CHARS: Final = 100
# Where prose is less than this part of the text, it is more likely what the operator of a host
# writes on all pages than what this page is about: a table, a list, a product.
LEAST_PART: Final = 3
_WIDE: Final = "\u2e80"  # from here on, a letter is a word or half of one
_WIDE_END: Final = "\U00010000"


# What the line before was.
_SHORT: Final = 0  # with no prose before it, but links or nothing
_LINKS: Final = 1
_LONE: Final = 2  # prose behind links: if links follow it is the text of a teaser
_PROSE: Final = 3  # or short lines behind prose: the next longer one decides about them


def prose(lines: Sequence[Line]) -> list[str] | None:
    """What is left of *lines*. None: there is too little prose to tell by."""
    kept: list[str] = []
    waiting: list[str] = []
    last = _SHORT
    for line, linked in lines:
        if 2 * linked > len(line):
            waiting = []
            last = _LINKS
        elif len(line) < PROSE_CHARS and not _is_prose(line):
            if last == _LONE:
                kept += waiting
                waiting, last = [line], _PROSE
            elif last == _PROSE:
                waiting.append(line)
            else:
                last = _SHORT
        elif last == _LINKS:
            waiting, last = [line], _LONE
        else:
            kept += waiting
            kept.append(line)
            waiting, last = [], _PROSE
    if last == _LONE:
        kept += waiting
    return kept if _is_enough(kept, lines) else None


def _is_enough(kept: Sequence[str], lines: Sequence[Line]) -> bool:
    return LEAST_PART * sum(map(len, kept)) >= sum([len(line) for line, _ in lines])


def _is_prose(line: str) -> bool:
    """Of a line that looks too short."""
    return 3 * len(line) >= PROSE_CHARS and not line.isascii() and _WIDE <= max(line) < _WIDE_END
