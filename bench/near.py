"""`python -m bench.near`: fingerprints and their index, by number of pages.

Rule: prints what docs/decisions/0015 promises: microseconds a fingerprint and a search, bytes and
building time a page. Random fingerprints, which is what a crawl of the web has.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from threading import Event
from typing import Final

import numpy as np

from crawler.duplicates.index.manifest import IndexFolder, IndexLimits, Manifest
from crawler.duplicates.index.near_index import NearIndex
from crawler.policy.simhash import fingerprint

_ASKED: Final = 2000
_ROUNDS: Final = 5
_MOST: Final = (1 << 64) - 1
# Where the index is written out: then it has 4 runs, each a fourth of the one before or less.
_RUNS: Final = (0.8, 0.96, 0.992)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=float, nargs="+", default=[1e5, 1e6, 2e6])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    fingerprints()
    print(f"\n{'pages':>10} {'runs':>5} {'orders':>6} {'build us':>9} {'cpu us':>7} {'bytes':>6}"
          f" {'miss us':>8} {'hit us':>7} {'stall ms':>8}")  # fmt: skip
    for pages in options.pages:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            index_of(int(pages), Path(folder))


def fingerprints() -> None:
    dice = Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    common = ["".join(dice.choices(letters, k=dice.randint(1, 9))) for _ in range(5000)]
    often = [1 / (number + 1) for number in range(5000)]
    for words in (50, 900, 2500, 4000):
        text = " ".join(dice.choices(common, often, k=words))
        took = timed(partial(fingerprint, text), 200)
        print(f"fingerprint of {words:>5} words, {len(text):>6} characters: {took:6.1f} us")


def index_of(pages: int, folder: Path) -> None:
    prints = np.random.default_rng(1).integers(0, _MOST, pages, np.uint64)
    index = NearIndex(IndexFolder(folder), Manifest(), lambda digests: None, IndexLimits())
    wall, cpu = time.perf_counter(), time.process_time()
    stall_s = 0.0
    for some in np.split(prints, [int(pages * share) for share in _RUNS]):
        stall_s = max(stall_s, fill(index, some))
        index.flush()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    index.close()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    manifest = IndexFolder(folder).load()
    assert manifest is not None, "just written"
    index = NearIndex(IndexFolder(folder), manifest, lambda digests: None, IndexLimits())
    # Half full, as the newest are on average.
    for number in range(IndexLimits().newest_pages // 2):
        index.add(number << 30, bytes(20))
    asked = np.random.default_rng(2).integers(0, _MOST, _ASKED, np.uint64).tolist()
    near = (prints[:: max(1, pages // _ASKED)] ^ np.uint64(0x10001)).tolist()
    orders = max(run.orders for run in manifest.runs)
    print(
        f"{pages:>10} {len(manifest.runs):>5} {orders:>6} {wall / pages * 1e6:>9.2f}"
        f" {cpu / pages * 1e6:>7.2f} {size / pages:>6.1f}"
        f" {each(index, asked):>8.1f} {each(index, near):>7.1f} {stall_s * 1e3:>8.1f}"
    )
    index.close()


def fill(index: NearIndex, prints: np.typing.NDArray[np.uint64]) -> float:
    """The longest that one `add` has held up its caller."""
    longest = 0.0
    for number, one in enumerate(prints.tolist()):
        digest = number.to_bytes(20, "little")
        begun = time.perf_counter()
        index.add(one, digest)
        longest = max(longest, time.perf_counter() - begun)
        if index.is_behind:
            wait(index)
    return longest


def wait(index: NearIndex) -> None:
    room = Event()
    index.when_room(room.set)
    room.wait()


def each(index: NearIndex, asked: list[int]) -> float:
    """Median of all, in us: of those that are found, with their pages."""

    def ask(one: int) -> None:
        for found in index.near(one, 3):
            index.pages(found.fingerprint, 8)

    times: list[float] = []
    for one in [*asked[:200], *asked]:  # the first warm what is mapped
        with measured(times):
            ask(one)
    return float(median(times[200:])) * 1e6


@contextmanager
def measured(times: list[float]) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    times.append(time.perf_counter() - begun)


def timed(work: Callable[[], object], times: int) -> float:
    """The median round, in us a call."""
    rounds = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        rounds.append((time.perf_counter() - begun) / times * 1e6)
    return median(rounds)


if __name__ == "__main__":
    main()
