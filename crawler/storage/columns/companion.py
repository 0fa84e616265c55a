"""The columns beside each WARC file.

Rule: what is written while the crawl runs and what is made again from the records is the same,
but for the text, title, links and all else that a parser mended since then reads otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from crawler.storage.columns.batches import cells
from crawler.storage.columns.file import ColumnsFile
from crawler.storage.warc.capture import Written
from crawler.storage.warc.companions import beside

SUFFIX: Final = ".parquet"


class ColumnsCompanion:
    """Implements storage.warc.companions.Companion."""

    def __init__(self) -> None:
        self._file: ColumnsFile | None = None

    @property
    def suffix(self) -> str:
        return SUFFIX

    def begin(self, warc: Path) -> None:
        self._file = ColumnsFile(beside(warc, SUFFIX))

    def add(self, written: Written) -> None:
        row = written.capture.row
        if self._file is not None and row is not None:
            self._file.add(cells(row, written.outlinks, written.place))

    def finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None
