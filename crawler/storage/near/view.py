"""What of the index is searched: the newest pages one by one, and the runs on disk.

Rule: a view is never changed; who has one may search it while the next is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crawler.storage.near.narrowing import narrowed
from crawler.storage.near.orders import MOST_BITS, Prints
from crawler.storage.near.runs import Run
from crawler.storage.near.sources import DIGEST_BYTES, Batch

_HEAD: Final = 8  # bytes of a digest by which known ones are sorted out
_CHUNK: Final = 1 << 17  # pages of one fingerprint looked through at a time


@dataclass(frozen=True, slots=True)
class Found:
    fingerprint: int
    bits: int  # that differ


class View:
    def __init__(self, runs: Sequence[Run] = (), waiting: Sequence[Batch] = ()) -> None:
        """Both oldest first; *waiting*: to become runs."""
        self.runs = tuple(runs)
        self.waiting = tuple(waiting)
        self._probes = [probe for run in runs for probe in run.probes]
        self._arrived = [batch.prints for batch in waiting]

    def near(self, fingerprint: int, max_bits: int, newest: Prints, stretch: int) -> list[Found]:
        """Every fingerprint within *max_bits* (3 at most), nearest first."""
        if not 0 <= max_bits <= MOST_BITS:
            raise ValueError(f"the index finds what is within {MOST_BITS} bits, not {max_bits}")
        found = np.concatenate([newest, *self._arrived, *self._beside(fingerprint, stretch)])
        bits = np.bitwise_count(found ^ np.uint64(fingerprint))
        # 2 us less than looking for all at once; and most pages are near to none.
        if not len(bits) or bits[bits.argmin()] > max_bits:
            return []
        places = (bits <= max_bits).nonzero()[0]
        near = dict(zip(found[places].tolist(), bits[places].tolist(), strict=True))
        return [Found(each, near[each]) for each in sorted(near, key=near.__getitem__)]

    def _beside(self, fingerprint: int, stretch: int) -> list[Prints]:
        """What stands beside it in each order of each run. Written for speed: 0.4 us a probe."""
        beside = []
        for shift, mask, more, more_shift, more_mask, starts, prints, order in self._probes:
            at = fingerprint >> shift & mask
            if more:
                at = at << more | fingerprint >> more_shift & more_mask
            begin, end = starts[at], starts[at + 1]
            if end - begin > stretch:
                beside.append(narrowed(prints, order, fingerprint, begin, end, stretch))
            elif begin < end:
                beside.append(prints[begin:end])
        return beside

    def pages(self, fingerprint: int, limit: int) -> tuple[list[bytes], int]:
        """Of exactly this fingerprint: the beginnings of the digests of its oldest pages, and
        how many pages it has."""
        digests: list[bytes] = []
        count = 0
        for run in self.runs:
            begin, end = run.pages(fingerprint)
            if begin < end:
                wanted = run.digests[begin : min(end, begin + limit - len(digests))]
                digests += [row.tobytes() for row in wanted]
                count += end - begin
        for batch in self.waiting:
            for at in np.flatnonzero(batch.prints == np.uint64(fingerprint)).tolist():
                digests.append(batch.digests[at][:DIGEST_BYTES])
                count += 1
        return digests[:limit], count

    def known(self, fingerprint: int, digests: set[bytes]) -> set[bytes]:
        """Which of *digests* are among its pages, in runs."""
        heads = np.array([_head(digest) for digest in digests], np.uint64)
        found: set[int] = set()
        for chunk in self._chunks(fingerprint):
            found.update(heads[np.isin(heads, chunk)].tolist())
        return {digest for digest in digests if _head(digest) in found}

    def _chunks(self, fingerprint: int) -> Iterator[NDArray[np.uint64]]:
        for run in self.runs:
            begin, end = run.pages(fingerprint)
            for at in range(begin, end, _CHUNK):
                rows = run.digests[at : min(at + _CHUNK, end), :_HEAD]
                yield np.ascontiguousarray(rows).view("<u8")[:, 0]


def _head(digest: bytes) -> int:
    return int.from_bytes(digest[:_HEAD], "little")
