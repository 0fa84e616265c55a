"""Which pages of an archive are new, gone or changed beside an older one, by their columns.

Rule: of the captures of a URL the last counts. Memory is taken by pages: 33 bytes each, 100
while they are read. Files are read twice, first for what identifies a page, then for what is said
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from crawler.archive.arrow import pa, pq
from crawler.archive.columns import BATCH_ROWS
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError

NEAR_BITS: Final = 3  # of 64: texts so near are nearly the same, as in the crawl
_CONTENT: Final = ["url", "fetched_at", "digest", "simhash"]
_SAID: Final = ["url", "fetched_at", "title"]


class PageDifference(StrEnum):
    """What has become of a page between two archives."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"


class ComparedPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page that differs."""

    kind: PageDifference
    url: str
    title: str = ""
    bits: int | None = None  # changed: of 64 in which the texts differ; None: one has too few words
    status: int | None = None  # gone: what its URL was answered last; None: it was not fetched


@dataclass(frozen=True, slots=True, eq=False)
class ArchivePages:
    """The last capture of each URL of some columns files, in the order of the URLs' hashes."""

    files: Sequence[Path]
    keys: NDArray[np.uint64]  # of URLs
    at: NDArray[np.int64]  # microseconds
    digests: NDArray[np.uint64]  # hashes; 0: there is none
    prints: NDArray[np.uint64]  # of texts
    has_print: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)

    def places(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return where each of *keys* is, -1 where it is not."""
        if not len(self):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self) - 1)
        return np.where(self.keys[at] == keys, at, -1)


def archive_pages(files: Sequence[Path]) -> ArchivePages:
    """Read which pages columns *files* have. Raises DataDirError, FileNotFoundError."""
    keys, times = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    digests, prints = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    has_print = [np.empty(0, np.bool_)]
    for batch in _batches(files, _CONTENT):
        keys.append(_keys(batch))
        times.append(_times(batch))
        found = batch["digest"].to_pylist()
        digests.append(np.array([key_of(each) if each else 0 for each in found], np.uint64))
        read = [_print(each) for each in batch["simhash"].to_pylist()]
        prints.append(np.array([each or 0 for each in read], np.uint64))
        has_print.append(np.array([each is not None for each in read], np.bool_))
    all_keys, all_times = np.concatenate(keys), np.concatenate(times)
    order = np.lexsort((all_times, all_keys))
    in_order = all_keys[order]
    order = order[np.append(in_order[1:] != in_order[:-1], np.ones(min(len(order), 1), np.bool_))]
    return ArchivePages(
        files,
        all_keys[order],
        all_times[order],
        np.concatenate(digests)[order],
        np.concatenate(prints)[order],
        np.concatenate(has_print)[order],
    )


@dataclass(frozen=True, slots=True, eq=False)
class ComparedPages:
    """Two archives, page by page."""

    old: ArchivePages
    new: ArchivePages
    _in_old: NDArray[np.int64]  # of each page of the new one, its place in the old one
    _in_new: NDArray[np.int64]
    _is_changed: NDArray[np.bool_]  # of each page of the new one
    _bits: NDArray[np.int64]  # -1: one has no fingerprint

    @classmethod
    def of(cls, old: ArchivePages, new: ArchivePages) -> ComparedPages:
        in_old = old.places(new.keys)
        at, known = np.maximum(in_old, 0), in_old >= 0
        if len(old):
            is_changed = known & (old.digests[at] != new.digests)
            bits = np.bitwise_count(old.prints[at] ^ new.prints).astype(np.int64)
            bits[~(known & old.has_print[at] & new.has_print)] = -1
        else:
            is_changed, bits = np.zeros(len(new), np.bool_), np.full(len(new), -1)
        return cls(old, new, in_old, new.places(old.keys), is_changed, bits)

    @property
    def same(self) -> int:
        """How many pages have the same content in both."""
        return int(np.count_nonzero((self._in_old >= 0) & ~self._is_changed))

    def gone_keys(self) -> NDArray[np.uint64]:
        """Return the hashes of the URLs of which the new archive has no page, ascending."""
        gone: NDArray[np.uint64] = self.old.keys[self._in_new < 0]
        return gone

    def pages(self, statuses: NDArray[np.int16]) -> Iterator[ComparedPage]:
        """Yield the pages that differ, those of the new archive first. *statuses*: of `gone_keys`,
        in their order; 0: it was not fetched."""
        for url, title, at in _last_rows(self.new, (self._in_old < 0) | self._is_changed):
            if self._in_old[at] < 0:
                yield ComparedPage(PageDifference.NEW, url, title)
            else:
                bits = int(self._bits[at])
                yield ComparedPage(PageDifference.CHANGED, url, title, None if bits < 0 else bits)
        gone = self.gone_keys()
        for url, title, at in _last_rows(self.old, self._in_new < 0):
            status = int(statuses[np.searchsorted(gone, self.old.keys[at])])
            yield ComparedPage(PageDifference.GONE, url, title, None, status or None)


def _last_rows(pages: ArchivePages, wanted: NDArray[np.bool_]) -> Iterator[tuple[str, str, int]]:
    """Yield URL, title and place of the *wanted* of *pages*, each once."""
    left = wanted.copy()
    for batch in _batches(pages.files, _SAID):
        places = pages.places(_keys(batch))
        is_last = left[places] & (pages.at[places] == _times(batch))
        for row in np.flatnonzero(is_last).tolist():
            at = int(places[row])
            if left[at]:
                left[at] = False
                yield batch["url"][row].as_py(), batch["title"][row].as_py() or "", at


def key_of(text: str) -> int:
    """Return the hash of a URL, or of a digest."""
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _keys(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    return np.array([key_of(url) for url in batch["url"].to_pylist()], np.uint64)


def _times(batch: pa.RecordBatch) -> NDArray[np.int64]:
    times: NDArray[np.int64] = (
        batch["fetched_at"].to_numpy(zero_copy_only=False).astype("datetime64[us]").astype(np.int64)
    )
    return times


def _print(value: str | int | None) -> int | None:
    """Return a fingerprint: files of older versions have it as a number."""
    return int(value, 16) if isinstance(value, str) else value


def _batches(files: Iterable[Path], names: list[str]) -> Iterator[pa.RecordBatch]:
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(BATCH_ROWS, columns=names)
        except pa.ArrowException as error:
            raise DataDirError(
                f"{path} cannot be read: {error}. Make it again: {PROGRAM} archive parse"
            ) from error
