"""The sizes of the near-duplicate index.

Rule: they change what is fast, never what is found; tests make them tiny.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    # The newest are compared one by one: 2,048 in 4 us. Then they are a run on disk.
    newest: int = 2048
    # So many batches of the newest wait to be written at most; then `add` wants to be waited for.
    waiting: int = 8
    # While runs are merged, so many newer ones are written before these are merged too.
    newer: int = 8
    # A run is merged with the newer ones when they have a fourth of its pages: every page is
    # written 13 times on its way to 1e7 (2 us), and 3 or 4 runs are searched, 5 at most.
    ratio: int = 4
    # Merging holds so many of each run in memory.
    piece: int = 1 << 16
    # From so many fingerprints on a run has ten orders: with four, a search would compare more
    # than 30 in each.
    ten_orders: int = 2_000_000
    # Of a longer stretch to be compared (0.2 ms), only what can be near is read.
    stretch: int = 1 << 16
