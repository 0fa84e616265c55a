"""Fingerprints of 64 bits as Redis holds them, so that those few bits apart are found.

Rule: of two that differ in at most three bits one quarter is equal. So each fingerprint stands in
four tables, in the bucket of its first, second, third and last quarter; whoever looks reads its
four buckets and counts bits. The first table also says who owns it: the ends of the digest, by
which its claim is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TABLES: Final = 4
_QUARTER_BITS: Final = 16
_QUARTER: Final = (1 << _QUARTER_BITS) - 1
_PRINT_BYTES: Final = 8
_HEAD, _TAIL = 8, 4  # of a digest: its head says which shard has its claim, its tail the bucket
_OWNED_BYTES: Final = _PRINT_BYTES + _HEAD + _TAIL
ROW_ARGS: Final = 3  # table, quarter, row


class Cell(NamedTuple):
    """Where a bucket is."""

    shard: int
    table: int
    quarter: int


class Row(NamedTuple):
    """One fingerprint of a bucket, near to the one that is looked for."""

    bits: int  # that differ
    simhash: int
    mark: bytes = b""  # of its page's digest; empty: the first table has it


def mark_of(digest: bytes) -> bytes:
    return digest[:_HEAD] + digest[-_TAIL:]


def can_mark(digest: bytes) -> bool:
    """Whether it is long enough for its ends to be two."""
    return len(digest) >= _HEAD + _TAIL


def cell(simhash: int, table: int, shards: int) -> Cell:
    quarter = simhash >> _QUARTER_BITS * table & _QUARTER
    return Cell((quarter + table) % shards, table, quarter)


def rows_of(
    simhash: int, digest: bytes, shards: int
) -> Iterator[tuple[int, tuple[int, int, bytes]]]:
    """For each table the shard, and what lua/near.lua is told there."""
    packed = simhash.to_bytes(_PRINT_BYTES, "little")
    for table in range(TABLES):
        shard, _, quarter = cell(simhash, table, shards)
        yield shard, (table, quarter, packed if table else packed + mark_of(digest))


def near_in(bucket: bytes, table: int, simhash: int, most_bits: int) -> Iterator[Row]:
    """What came from outside: whatever it is, so many whole rows of it as there are."""
    width = _PRINT_BYTES if table else _OWNED_BYTES
    count = len(bucket) // width
    prints: NDArray[np.uint64] = np.ndarray(count, "<u8", bucket, strides=(width,))
    apart = np.bitwise_count(prints ^ np.uint64(simhash))
    for at in (apart <= most_bits).nonzero()[0].tolist():
        mark = bucket[at * width + _PRINT_BYTES : (at + 1) * width]
        yield Row(int(apart[at]), int(prints[at]), mark)
