"""The figures of a crawl over time: the last hour, the last day and the whole crawl, in one file.

Rule: the file never grows. The place of a sample follows from its time alone, and each sample has a
checksum: kill -9 at any moment costs one sample at most, and nothing has to be repaired.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf, isnan, nan
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from crawler.model.counts import TOTALS
from crawler.model.types import DataDirError

logger = logging.getLogger(__name__)

STATES: Final = ("seen", "done", "dead", "waiting", "leased", "hosts_active")
"""Counters of the frontier at that moment; but for `hosts_active`, of all workers."""
CHANGES, FRESH = "changes", "fresh"
CLASSES: Final = ("2xx", "3xx", "4xx", "5xx")
FETCHES, FETCH_S = "fetches", "fetch_s"
COUNTED: Final = (*TOTALS, CHANGES, *CLASSES, FETCHES, FETCH_S)
"""What this data directory has counted over all its runs: pages, bytes and their like; changes that
visits of known pages have found; answers by class of status; fetches that have ended, and the sum
of their seconds."""
COLUMNS: Final = ("run", *COUNTED, *STATES, FRESH)
"""The number of the run, from 1; what is counted; states; the share of copies that are as the page
is, as estimated, NaN if that is not known."""
SAMPLE_S: Final = 5.0


class HistorySpan(StrEnum):
    """How far back a history goes."""

    HOUR = "hour"
    DAY = "day"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class _Ring:
    """Some cells of the file. A sample is in the cell of its time; a later one replaces it."""

    first: int  # cell of the file
    cells: int
    step_s: float  # of a cell; of ALL doubled whenever the crawl has outgrown its cells

    def offset(self, cell: int) -> int:
        return _HEAD.size + (self.first + cell) * _SAMPLE.size


_HEAD: Final = struct.Struct("<20sdI")  # magic, when the crawl began, checksum
_SAMPLE: Final = struct.Struct(f"<{1 + len(COLUMNS)}dI")  # time, columns, checksum
_MAGIC: Final = b"gossamer history 3\n"
_OLDER: Final = (b"gossamer history 1\n", b"gossamer history 2\n")
_RINGS: Final[Mapping[HistorySpan, _Ring]] = MappingProxyType(
    {
        HistorySpan.HOUR: _Ring(0, 720, SAMPLE_S),
        HistorySpan.DAY: _Ring(720, 1_440, 60.0),
        HistorySpan.ALL: _Ring(2_160, 1_024, SAMPLE_S),
    }
)
FILE_BYTES: Final = _HEAD.size + 3_184 * _SAMPLE.size
"""The size of the file: 523 kB."""
_Row = tuple[float, ...]  # time and columns


class History(msgspec.Struct, frozen=True):
    """Samples as columns, the oldest first."""

    step_s: float  # between two samples while a crawl runs
    at: list[float]  # epoch seconds
    columns: dict[str, list[float]]  # by the names of COLUMNS

    def rates(self, column: str) -> list[float | None]:
        """Return how much *column*, one of COUNTED, grew a second up to each sample; None
        for the first one of each run."""
        runs, values = self.columns["run"], self.columns[column]
        found: list[float | None] = [None] if self.at else []
        for (was, now), (run, same), (before, after) in zip(
            pairwise(self.at), pairwise(runs), pairwise(values), strict=True
        ):
            grows = same == run and now > was
            found.append(max(0.0, (after - before) / (now - was)) if grows else None)
        return found

    def mean_fetch_s(self) -> list[float | None]:
        """Return how long a fetch took in the mean up to each sample; None where none ended."""
        rates = zip(self.rates(FETCH_S), self.rates(FETCHES), strict=True)
        return [seconds / fetches if seconds and fetches else None for seconds, fetches in rates]

    def fresh(self) -> list[float | None]:
        """Return the shares of fresh copies, None where that is not known."""
        return [None if isnan(share) else share for share in self.columns[FRESH]]


class HistoryFile:
    """Appends samples. Two writes of 100 bytes a sample, without a sync."""

    def __init__(self, file: Path, now: float) -> None:
        """Open *file*, or begin it at *now* (epoch seconds). One that is damaged is kept beside it,
        with a warning. Raises OSError."""
        self._began = _opened(file, now)
        content = file.read_bytes()
        self._file = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._rows = {
            row[0]: row for row in _rows(content, _RINGS[HistorySpan.ALL])
        }  # by their times
        self._step_s = 0.0  # of the cells of ALL; 0: not placed yet
        self._cells: dict[HistorySpan, int] = {}  # written last
        last = max(_rows(content, _RINGS[HistorySpan.HOUR]), default=None)
        self.last: Mapping[str, float] = dict(zip(COLUMNS, last[1:], strict=True)) if last else {}
        """The last sample of the runs before, by COLUMNS; empty if there is none."""

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """Add the sample of *at* (epoch seconds): a value for each of COLUMNS. Raises OSError."""
        row = (at, *(float(values[name]) for name in COLUMNS))
        packed = _packed(row)
        if self._step_s != _step_s(self._began, at):
            self._place(at)
        for span, ring in _RINGS.items():
            cell = (
                self._cell(at) if span is HistorySpan.ALL else int(at // ring.step_s) % ring.cells
            )
            if span is not HistorySpan.HOUR and self._cells.get(span) == cell:
                continue  # the first sample of a cell stays
            os.pwrite(self._file, packed, ring.offset(cell))
            self._cells[span] = cell
            if span is HistorySpan.ALL:
                self._rows[at] = row

    def close(self) -> None:
        os.close(self._file)

    def _cell(self, at: float) -> int:
        return max(0, int((at - self._began) // self._step_s))

    def _place(self, at: float) -> None:
        """Let the cells of ALL reach to *at*. If the process dies within, each sample is in its old
        cell or in its new one, and readers take it once."""
        self._step_s = _step_s(self._began, at)
        kept = {self._cell(time): row for time, row in sorted(self._rows.items(), reverse=True)}
        cells = [kept.get(cell) for cell in range(_RINGS[HistorySpan.ALL].cells)]
        self._rows = {row[0]: row for row in cells if row is not None}
        written = b"".join(_packed(row) if row else bytes(_SAMPLE.size) for row in cells)
        os.pwrite(self._file, written, _RINGS[HistorySpan.ALL].offset(0))
        self._cells.pop(HistorySpan.ALL, None)


def read_history(file: Path, span: HistorySpan) -> History:
    """Return the samples of *span* up to the last one, also while a crawl writes them. Without a
    file, or of a damaged one, there are none. Raises DataDirError if it cannot be read."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise DataDirError(f"{file} cannot be read: {error.strerror}") from error
    began = _began(content)
    rows = sorted({row[0]: row for row in _rows(content, _RINGS[span])}.values()) if began else []
    if not rows or began is None:
        return History(_RINGS[span].step_s, [], {name: [] for name in COLUMNS})
    if span is HistorySpan.ALL:
        step_s, since = _step_s(began, rows[-1][0]), -inf
    else:
        step_s = _RINGS[span].step_s
        since = rows[-1][0] - step_s * _RINGS[span].cells
    at, *columns = zip(*(row for row in rows if row[0] > since), strict=True)
    named = dict(zip(COLUMNS, map(list, columns), strict=True))
    return History(step_s, list(at), named)


def sum_histories(parts: Sequence[History]) -> History:
    """Return the histories of the workers of a shared crawl as one. COUNTED and
    `hosts_active` are added up, FRESH is the mean; the other states are those of the worker whose
    sample is the latest."""
    parts = [part for part in parts if part.at]
    if len(parts) < 2:
        return parts[0] if parts else History(SAMPLE_S, [], {name: [] for name in COLUMNS})
    step_s = max(part.step_s for part in parts)
    times = np.concatenate([np.array(part.at) for part in parts])
    at = np.unique(np.ceil(times / step_s)) * step_s
    summed = {name: np.zeros(len(at)) for name in COLUMNS}
    newest, known = np.full(len(at), -inf), np.zeros(len(at))
    for part in parts:
        own = np.array(part.at)
        last = np.searchsorted(own, at, side="right") - 1
        is_begun, sample_at = last >= 0, own[np.maximum(last, 0)]
        is_newer = is_begun & (sample_at > newest)
        newest = np.where(is_newer, sample_at, newest)
        works = is_begun & (at - sample_at < 3 * step_s)
        for name in COLUMNS:
            values = np.array(part.columns[name])[np.maximum(last, 0)]
            # A worker that begins another run is a break for all.
            if name in ("run", *COUNTED):
                summed[name] += np.where(is_begun, values, 0)
            elif name == "hosts_active":
                summed[name] += np.where(works, values, 0)
            elif name == FRESH:
                is_known = works & ~np.isnan(values)
                known += is_known
                summed[name] += np.where(is_known, values, 0)
            else:
                summed[name] = np.where(is_newer, values, summed[name])
    summed[FRESH] = np.where(known > 0, summed[FRESH] / np.maximum(known, 1), nan)
    return History(step_s, at.tolist(), {name: summed[name].tolist() for name in COLUMNS})


def _step_s(began: float, at: float) -> float:
    """Return the step with which the cells of ALL reach from *began* to *at*."""
    ring = _RINGS[HistorySpan.ALL]
    step_s = ring.step_s
    while (at - began) // step_s >= ring.cells:
        step_s *= 2
    return step_s


def _opened(file: Path, now: float) -> float:
    """Begin *file* if there is none that is whole, and return when it was begun."""
    content = file.read_bytes() if file.exists() else b""
    began = _began(content)
    if began is not None:
        return began
    if content.startswith(_OLDER):
        aside = file.with_suffix(".older")
        file.replace(aside)
        logger.info("%s is of an older version: it is kept as %s", file, aside.name)
    elif content:
        aside = file.with_suffix(".damaged")
        file.replace(aside)
        logger.warning("%s is damaged: it is kept as %s, and a new one begun", file, aside.name)
    head = _HEAD.pack(_MAGIC, now, zlib.crc32(struct.pack("<d", now)))
    draft = file.with_suffix(".draft")
    with draft.open("wb") as out:
        out.write(head)
        out.truncate(FILE_BYTES)
    draft.replace(file)
    return now


def _began(content: bytes) -> float | None:
    """Return when the crawl of a file with this *content* began, or None if it is damaged."""
    if len(content) != FILE_BYTES:
        return None
    magic, began, checksum = _HEAD.unpack_from(content)
    is_whole = magic.rstrip(b"\0") == _MAGIC and zlib.crc32(struct.pack("<d", began)) == checksum
    return float(began) if is_whole else None


def _packed(row: Iterable[float]) -> bytes:
    values = struct.pack(f"<{1 + len(COLUMNS)}d", *row)
    return values + struct.pack("<I", zlib.crc32(values))


def _rows(content: bytes, ring: _Ring) -> Iterator[_Row]:
    """Yield the samples of *ring* that are whole, in the order of their cells."""
    begin, end = ring.offset(0), ring.offset(ring.cells)
    for at in range(begin, end, _SAMPLE.size):
        values = content[at : at + _SAMPLE.size - 4]
        *row, checksum = _SAMPLE.unpack_from(content, at)
        if row[0] and zlib.crc32(values) == checksum:
            yield tuple(row)
