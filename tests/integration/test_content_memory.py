"""The content line keeps nothing of the pages that have passed: what gathers is put away."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.command import run

PAGES: Final = 24_000
EVERY: Final = 1_000
# Between the emptiest moments of the second and the last third, 8,000 pages apart. One page is
# 2 kB, its record 1 kB, its text and links as objects 3 kB: none of them is kept.
MOST_GROWN_BYTES: Final = 3 << 20
# Runs of the near-duplicate index: 56 bytes a page, and those that are being merged beside it.
MOST_MAPPED_A_PAGE: Final = 150


class Held(NamedTuple):
    pages: int
    own: int
    mapped: int


def least(rows: Sequence[Held], of: Callable[[Held], int]) -> int:
    return min(map(of, rows))


def test_memory_does_not_grow_with_the_pages() -> None:
    module = "bench.content_memory"
    command = [sys.executable, "-m", module, "--short", f"--pages={PAGES}", f"--every={EVERY}"]
    fed = run(command, timeout_s=240)
    assert fed.returncode == 0, fed.stderr
    _, *lines = fed.stdout.splitlines()
    rows = [Held(*map(int, line.split()[:3])) for line in lines]
    third = len(rows) // 3
    middle, last = rows[third : 2 * third], rows[2 * third :]
    grown = least(last, lambda row: row.own) - least(middle, lambda row: row.own)
    assert grown <= MOST_GROWN_BYTES, fed.stdout
    mapped = least(last, lambda row: row.mapped) - least(middle, lambda row: row.mapped)
    assert mapped / (last[0].pages - middle[0].pages) <= MOST_MAPPED_A_PAGE, fed.stdout
