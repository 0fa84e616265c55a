"""The content line keeps nothing of the pages that have passed: what gathers is put away.

Rule: memory is what malloc has given away, Python's objects and Arrow's included, for what the
process holds swings by megabytes with the fragments between them; and of each stretch of pages
the mean counts, for what gathers comes and goes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Final, NamedTuple

import pytest

from tests.harness.commands import run

STRETCH: Final = 4_096  # twice as many as come between two moments at which all is put away
WARM_UP: Final = 5_120  # until all is full that may be full
PAGES: Final = WARM_UP + 4 * STRETCH
EVERY: Final = 128
# Bytes a page. Measured: 9 to 50, the fewer the later. A page has 2 kB, its record 1 kB, its text
# and links as objects 3 kB.
MOST_KEPT: Final = 100
LEAKED: Final = 200
ALL_BY_MALLOC: Final = {"PYTHONMALLOC": "malloc", "ARROW_DEFAULT_MEMORY_POOL": "system"}
# No file is mapped but libraries; what is measured swings by some pages of 4 kB.
MOST_MAPPED: Final = 50


class Held(NamedTuple):
    pages: int
    own: int
    mapped: int
    given: int


@pytest.fixture(scope="module")
def rows() -> list[Held]:
    """Of a line that leaks in its second half."""
    arguments = [PAGES, EVERY, WARM_UP + 2 * STRETCH, LEAKED]
    command = [sys.executable, "-m", "tests.harness.content_line", *map(str, arguments)]
    fed = run(command, timeout_s=900, env={**os.environ, **ALL_BY_MALLOC})
    assert fed.returncode == 0, fed.stderr
    _, *lines = fed.stdout.splitlines()
    return [Held(*map(int, line.split()[:4])) for line in lines]


def grown(rows: Sequence[Held], begin: int, of: Callable[[Held], int]) -> float:
    """Bytes a page, from one stretch to the next."""
    stretches = (range(at, at + STRETCH) for at in (begin, begin + STRETCH))
    first, second = (mean(of(row) for row in rows if row.pages in each) for each in stretches)
    return (second - first) / STRETCH


def test_memory_does_not_grow_with_the_pages(rows: list[Held]) -> None:
    assert all(row.given for row in rows), "needs glibc 2.33 or newer"
    assert grown(rows, WARM_UP, lambda row: row.given) < MOST_KEPT, rows
    assert grown(rows, WARM_UP, lambda row: row.mapped) < MOST_MAPPED, rows


def test_a_tenth_of_each_page_kept_would_be_seen(rows: list[Held]) -> None:
    leaked = grown(rows, WARM_UP + 2 * STRETCH, lambda row: row.given)
    assert leaked > 2 * MOST_KEPT, rows
