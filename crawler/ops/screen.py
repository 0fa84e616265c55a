"""The foot of a terminal: one line, drawn over and over, with messages passing above it.

Rule: nothing is left behind. Who else wants to write there wipes first.
"""

from __future__ import annotations

import os
from typing import Final, TextIO

_WIPE: Final = "\r\x1b[2K"  # to the first column, erase the line: VT100, so every terminal
_COLUMNS: Final = 80


class Screen:
    """Over *stream*, which need not be a terminal: then only messages make sense."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    @property
    def is_terminal(self) -> bool:
        """One that can erase a line."""
        return self._stream.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def columns(self) -> int:
        """Asked each time: windows are resized."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def draw(self, text: str) -> None:
        """*text* in place of what was drawn last. One line, and no longer than `columns`."""
        self._stream.write(_WIPE + text)
        self._stream.flush()
        self._shown = text

    def wipe(self) -> None:
        if self._shown:
            self.draw("")

    def tell(self, message: str) -> None:
        """*message* above the line, where it stays."""
        shown = self._shown
        self.wipe()
        self._stream.write(message + "\n")
        if shown:
            self.draw(shown)
        self._stream.flush()
