"""The columns beside each WARC file.

Rule: what is written while the crawl runs and what is made again from the records is the same,
but for the text, title, links and all else that a parser mended since then reads otherwise.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from threading import Event
from typing import Final

from crawler.core.errors import StoreUnavailable
from crawler.storage.columns.again import Again, rows
from crawler.storage.columns.batches import cells
from crawler.storage.columns.file import GROUP_BYTES, ColumnsFile
from crawler.storage.warc.capture import Written
from crawler.storage.warc.companions import beside
from crawler.storage.warc.openfile import open_name
from crawler.storage.warc.stored import Stored

SUFFIX: Final = ".parquet"


class ColumnsCompanion:
    """Implements storage.warc.companions.Companion."""

    is_slow = True  # each page is parsed again

    def __init__(self, again: Again, group_bytes: int = GROUP_BYTES) -> None:
        self._again = again
        self._group_bytes = group_bytes
        self._file: ColumnsFile | None = None

    @property
    def suffix(self) -> str:
        return SUFFIX

    def begin(self, warc: Path) -> None:
        self._file = ColumnsFile(beside(warc, SUFFIX), self._group_bytes)

    def add(self, written: Written) -> None:
        row = written.capture.row
        if self._file is not None and row is not None:
            # Those of a copy are with its original, as its text is.
            self._file.add(cells(row, written.capture.outlinks, written.place))

    def add_again(self, stored: Stored) -> None:
        raise NotImplementedError("a slow one is made by `rebuild`")

    def finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None

    def rebuild(self, warc: Path, content: Path) -> None:
        stop = Event()
        # In a thread of its own: parsers want a loop, and here one may run that must not wait.
        with ThreadPoolExecutor(1) as thread:
            try:
                thread.submit(asyncio.run, self._rebuild(warc, content, stop)).result()
            finally:
                stop.set()  # Ctrl-C is heard here, and ends it at the next page

    async def _rebuild(self, warc: Path, content: Path, stop: Event) -> None:
        final = beside(warc, SUFFIX)
        is_owed = open_name(final).exists()
        made = ColumnsFile(final, self._group_bytes)
        try:
            async with aclosing(rows(warc, content, self._again)) as found:
                async for row in found:
                    if stop.is_set():
                        return
                    made.add(row)
            made.finish()
        except OSError as error:
            raise StoreUnavailable(f"cannot read {content}: {error.strerror or error}") from error
        finally:
            made.discard(leave_mark=is_owed)  # nothing, once it is finished
