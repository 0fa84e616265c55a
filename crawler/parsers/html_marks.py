"""Marks in the words of a page, between its reader and those who judge its lines.

Rule: characters that no text has; what a page has of them is replaced.
"""

from __future__ import annotations

from typing import Final

LINE: Final = "\0"  # here a line ends,
LINK: Final = "\1"  # here a link begins,
LINK_END: Final = "\2"  # and here it ends


def unmarked(text: str) -> str:
    return text.replace(LINE, "\ufffd").replace(LINK, " ").replace(LINK_END, " ")
