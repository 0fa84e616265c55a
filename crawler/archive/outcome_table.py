"""The outcomes of all URLs as Parquet: files made of the outcome log, piece by piece.

Rule: the log is the source. A file has the lines of one piece of it, from a byte to another, as its
name says; while it is written its name ends in `.open`. The end of the last piece is on the disk
before a file gets its final name. So what a dead process left is made again from the log, and each
line is in one file, whatever was delivered meanwhile.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from zlib import crc32

import msgspec

from crawler.archive.arrow import pa, pq
from crawler.archive.columns import TIME, Column, array_of, micros
from crawler.archive.delivery import OUTCOMES
from crawler.archive.warc_file import lock, open_name
from crawler.data.files import replace_file, sync_folder
from crawler.model.types import Outcome, StoreUnavailable, decode_outcome, store_error

logger = logging.getLogger(__name__)

OUTCOME_COLUMNS: Final = (
    Column("at", TIME, "when it was decided", nullable=False),
    Column("url", pa.string(), "as asked for", nullable=False),
    Column("host", pa.string(), "its name, with a port that is not usual", False, True),
    Column("fate", pa.string(), "`done`, `retry`, `moved`, `dead`, `refused`", False, True),
    Column("status", pa.int32(), "of the answer; null: there was none"),
    Column("reason", pa.string(), "`duplicate`, `noindex`, an error's own words...", True, True),
    Column(
        "failure",
        pa.string(),
        "of `retry` and `dead`: its kind: `timeout`, `status_503`",
        True,
        True,
    ),
    Column("seconds", pa.float32(), "of the fetch, to the last byte", nullable=False),
    Column("bytes", pa.int64(), "of the body, as sent", nullable=False),
    Column("attempts", pa.int32(), "that failed before", nullable=False),
    Column("depth", pa.int32(), "hops from a seed", nullable=False),
    Column(
        "target",
        pa.string(),
        "of `moved`: where a redirect leads; of a seed, or if that is checked, also a dead end",
    ),
    Column("warc_file", pa.string(), "where its record lies", True, True),
    Column("warc_offset", pa.int64(), "in that file, in bytes; 0 without a record", nullable=False),
    Column("original", pa.string(), "the URL whose content it repeats, exactly or nearly"),
    Column("bits", pa.int8(), "by how many bits of 64 it differs; null of an exact copy"),
    Column("seed", pa.string(), "the seed that it is, or that led here by redirects", True, True),
    Column(
        "seed_fate", pa.string(), "what became of that seed: `page`, `status_404`...", True, True
    ),
    Column(
        "external",
        pa.string(),
        "of a checked external link, which is no page: `ok`, `moved`, `broken`, `unknown`",
        True,
        True,
    ),
    Column("crawl_id", pa.string(), "as in the columns of pages", False, True),
    Column("round", pa.int32(), "in which it was fetched; null: the run had none"),
    Column("price", pa.string(), "that an answer with status 402 asks: `USD 0.01`", True, True),
)
"""What docs/columns.md says of them, too."""
OUTCOME_SCHEMA: Final = pa.schema([pa.field(c.name, c.type, c.nullable) for c in OUTCOME_COLUMNS])
SUFFIX: Final = ".parquet"
_CUT: Final = "cut.json"
_LINES: Final = 4096  # at once
_COPIED_BYTES: Final = 1 << 20
_NAME: Final = re.compile(
    r"outcomes-\d{14}-(\d{1,18})-(\d{1,18})-[\w.~-]+\.parquet\.open", re.ASCII
)


class _Cut(msgspec.Struct, frozen=True):
    """How far the log is in files."""

    end: int  # bytes from its beginning
    first_line: int  # its checksum: a log that was begun anew has another one
    crawl_id: str


class _Piece(NamedTuple):
    begin: int
    end: int
    final: Path  # the name of its file when that is finished


class OutcomeTable:
    """The files of one data directory. Each method may be called again after a failure."""

    def __init__(self, data: Path, log: Path, origin: str, crawl_id: str | None) -> None:
        """*data*: the directory; *origin*: machine and process, for names that no other gives.
        *crawl_id*: None for that of the last file."""
        self._log = log
        self._folder = data / OUTCOMES
        self._origin = origin
        self._given_crawl_id = crawl_id

    def recover(self) -> int:
        """Make the files again that a dead process left unfinished, and return how many. Raises
        StoreUnavailable."""
        made = 0
        for path in sorted(self._folder.glob(f"*{open_name(Path(SUFFIX)).name}")):
            found = _NAME.fullmatch(path.name)
            if found is None:
                continue
            piece = _Piece(int(found[1]), int(found[2]), path.with_name(path.stem))
            with _named_errors(path), suppress(FileNotFoundError), path.open("r+b") as file:
                if lock(file.fileno(), path):
                    made += self._fill_again(piece)
        return made

    def cut(self, least_bytes: int = 1) -> Path | None:
        """Write the lines that are in no file yet into a new one and return it; None if they have
        fewer than *least_bytes*. Raises StoreUnavailable."""
        with _named_errors(self._folder):
            size = self._size()
            begin = self._begin(size)
            if size - begin < least_bytes:
                return None
            end = begin + _whole_lines(self._log, begin, size)
            if end == begin:
                return None
            stamp = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
            name = f"outcomes-{stamp}-{begin:012}-{end:012}-{self._origin}{SUFFIX}"
            piece = _Piece(begin, end, self._folder / name)
            self._folder.mkdir(exist_ok=True)
            with open_name(piece.final).open("wb") as mark:
                lock(mark.fileno(), open_name(piece.final))
                sync_folder(self._folder)
                self._note(end)
                self._fill(piece)
            return piece.final

    def _fill_again(self, piece: _Piece) -> bool:
        size = self._size()
        if piece.end > size:
            path = open_name(piece.final)
            logger.warning("%s is removed: the log that it was to be made of is gone", path)
            path.unlink()
            return False
        if piece.end > self._begin(size):
            self._note(piece.end)
        self._fill(piece)
        return True

    def _size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _begin(self, size: int) -> int:
        """Return where the next piece begins: 0 in a log that was begun anew."""
        cut = self._cut()
        return cut.end if cut.end <= size and cut.first_line == _first_line(self._log) else 0

    def _cut(self) -> _Cut:
        try:
            return msgspec.json.decode((self._folder / _CUT).read_bytes(), type=_Cut)
        except FileNotFoundError:
            return _Cut(0, 0, "")
        except msgspec.MsgspecError as error:
            raise StoreUnavailable(f"{self._folder / _CUT} cannot be read: {error}") from error

    @property
    def _crawl_id(self) -> str:
        return self._cut().crawl_id if self._given_crawl_id is None else self._given_crawl_id

    def _note(self, end: int) -> None:
        cut = _Cut(end, _first_line(self._log), self._crawl_id)
        replace_file(self._folder / _CUT, msgspec.json.encode(cut))

    def _fill(self, piece: _Piece) -> None:
        """Write the file of *piece* and sync it, then give it its final name."""
        path = open_name(piece.final)
        with pa.OSFile(str(path), "wb") as sink, _parquet_writer(sink, OUTCOME_SCHEMA) as writer:
            outcomes, crawl_id = _outcomes(self._log, piece), self._crawl_id
            while portion := list(islice(outcomes, _LINES)):
                writer.write_batch(_batch(portion, crawl_id))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.rename(piece.final)
        sync_folder(self._folder)


def _first_line(log: Path) -> int:
    with suppress(FileNotFoundError), log.open("rb") as lines:
        return crc32(lines.readline())
    return 0


def _whole_lines(log: Path, begin: int, end: int) -> int:
    """Return how many bytes from *begin* on are whole lines: a line may be being written."""
    with log.open("rb") as file:
        at = end
        while at > begin:
            first = max(begin, at - _COPIED_BYTES)
            file.seek(first)
            found = file.read(at - first).rfind(b"\n")
            if found >= 0:
                return first + found + 1 - begin
            at = first
    return 0


def _outcomes(log: Path, piece: _Piece) -> Iterator[Outcome]:
    """Yield the outcomes of *piece*, without lines that a crash has cut off."""
    with log.open("rb") as lines:
        lines.seek(piece.begin)
        left = piece.end - piece.begin
        while left > 0 and (line := lines.readline(left)):
            left -= len(line)
            with suppress(msgspec.MsgspecError):
                yield decode_outcome(line)


def _batch(outcomes: Sequence[Outcome], crawl_id: str) -> pa.RecordBatch:
    rows = [_cells(outcome, crawl_id) for outcome in outcomes]
    columns = zip(zip(*rows, strict=True), OUTCOME_SCHEMA.types, strict=True)
    arrays = [array_of(cells, kind) for cells, kind in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTCOME_SCHEMA)


def _cells(outcome: Outcome, crawl_id: str) -> tuple[object, ...]:
    file, _, offset = outcome.record.rpartition(":")
    return (
        micros(outcome.at) or 0,
        outcome.url,
        outcome.host,
        outcome.fate,
        outcome.status,
        outcome.reason or None,
        outcome.failure or None,
        outcome.seconds,
        outcome.size,
        outcome.attempts,
        outcome.depth,
        outcome.target or None,
        file or None,
        int(offset) if offset.isdecimal() else 0,
        outcome.original or None,
        outcome.bits,
        outcome.seed or None,
        outcome.seed_fate or None,
        outcome.external or None,
        crawl_id,
        outcome.round or None,
        outcome.price or None,
    )


def _parquet_writer(sink: pa.OSFile, schema: pa.Schema) -> pq.ParquetWriter:
    dictionary = [column.name for column in OUTCOME_COLUMNS if column.is_dictionary]
    return pq.ParquetWriter(
        sink, schema, compression="zstd", compression_level=1, use_dictionary=dictionary
    )


def copy_without(source: BinaryIO, final: Path, is_left_out: Callable[[str], bool]) -> int:
    """Write to *final* the rows of *source*, a file of this table, but those whose `url` is left
    out, and return how many these are. Raises ValueError if *source* is no such file, OSError."""
    gone = 0
    try:
        with (
            pq.ParquetFile(source) as file,
            pa.OSFile(str(final), "wb") as sink,
            _parquet_writer(sink, file.schema_arrow) as writer,
        ):
            for batch in file.iter_batches(_LINES):
                kept = [not is_left_out(url.as_py()) for url in batch["url"]]
                gone += len(kept) - sum(kept)
                writer.write_batch(batch.filter(pa.array(kept, pa.bool_())))
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(str(error)) from error
    return gone


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise store_error(f"cannot write {path}", error) from error
