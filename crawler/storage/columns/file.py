"""One Parquet file while it is being written.

Rule: bounded memory, whatever the rows hold: some rows become an Arrow batch, some batches a row
group of the file. It has the name of an unfinished file until it is whole: a Parquet file without
its end cannot be read at all.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.core.errors import StoreUnavailable
from crawler.storage.columns.batches import Cells, batch
from crawler.storage.columns.schema import FEW, SCHEMA, WITH_STATISTICS
from crawler.storage.warc.openfile import open_name, sync_folder

MEGABYTE: Final = 1 << 20
# Arrow holds the interpreter while it makes a batch: 64 rows of 12 KB take 0.5 ms.
BATCH_ROWS: Final = 64
BATCH_CHARS: Final = MEGABYTE
LINK_CHARS: Final = 64  # counted for a link
GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16 * MEGABYTE


class ColumnsFile:
    """Rows go in, and at the end it is there under its name. StoreUnavailable from any call:
    discard it."""

    def __init__(self, final: Path, group_bytes: int = GROUP_BYTES) -> None:
        self._final = final
        self._group_bytes = group_bytes
        self._rows: list[Cells] = []
        self._chars = 0  # of these rows, about
        self._batches: list[pa.RecordBatch] = []
        self._grouped_rows = 0  # in these batches
        self._grouped_bytes = 0
        try:
            self._sink = pa.OSFile(str(open_name(final)), "wb")
            self._writer = _writer(self._sink)
        except OSError as error:
            raise _unavailable(final, error) from error

    def add(self, row: Cells) -> None:
        self._rows.append(row)
        self._chars += len(row.text or "") + LINK_CHARS * len(row.outlinks)
        if len(self._rows) >= BATCH_ROWS or self._chars >= BATCH_CHARS:
            self._turn()
            if self._grouped_rows >= GROUP_ROWS or self._grouped_bytes >= self._group_bytes:
                self._flush()

    def finish(self) -> None:
        """Forced to the disk, then called by its name, in place of one that has it."""
        self._turn()
        self._flush()
        path = open_name(self._final)
        try:
            self._writer.close()
            self._sink.close()
            _sync(path)
            path.replace(self._final)
            sync_folder(self._final.parent)
        except OSError as error:
            raise _unavailable(self._final, error) from error

    def discard(self, *, leave_mark: bool = False) -> None:
        """Remove what there is of it, if it is not finished. *leave_mark*: leave it, empty."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            if leave_mark:
                os.truncate(open_name(self._final), 0)
            else:
                open_name(self._final).unlink()

    def _turn(self) -> None:
        if self._rows:
            made = batch(self._rows)
            self._batches.append(made)
            self._grouped_rows += len(self._rows)
            self._grouped_bytes += made.nbytes
            self._rows, self._chars = [], 0

    def _flush(self) -> None:
        """The interpreter is free meanwhile: Arrow compresses and writes without it."""
        if not self._batches:
            return
        group = pa.Table.from_batches(self._batches, SCHEMA)
        self._batches, self._grouped_rows, self._grouped_bytes = [], 0, 0
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except OSError as error:
            raise _unavailable(self._final, error) from error


def _writer(sink: pa.OSFile) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        SCHEMA,
        # Of 12 KB of text: level 1 takes 36 us and leaves a third, lz4 29 us and a half, 3 56 us.
        compression="zstd",
        compression_level=1,
        use_dictionary=FEW,
        write_statistics=WITH_STATISTICS,
        write_batch_size=BATCH_ROWS,  # the size of a page is looked at after so many
    )


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {open_name(path)}: {error.strerror or error}")
