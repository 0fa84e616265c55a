"""`python -m bench.near`: fingerprints and their index, by number of pages.

Rule: prints what docs/decisions/0015 and 0036 promise: microseconds a fingerprint; CPU time a page
to search and to add, of all threads of the process, compaction counted; seconds to open; bytes of
rows a page. Random fingerprints, which is what a crawl of the web has.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import numpy as np

from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.quarters import MAX_BITS
from crawler.frontier import records as keys
from crawler.frontier.rocks_store import RocksStore
from crawler.page.simhash import fingerprint

_ADDED: Final = 100_000
_ASKED: Final = 4000
_ROUNDS: Final = 5
_MOST: Final = (1 << 64) - 1
_IDLE_S: Final = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    fingerprints()
    print(
        f"\n{'pages':>10} {'miss us':>8} {'hit us':>7} {'append us':>9} {'verdict us':>10}"
        f" {'stall ms':>8} {'open s':>6} {'B a page':>8}"
    )
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
    store = RocksStore(folder / "frontier")
    fill(store, pages)
    settle(store)
    begun = time.process_time()
    index = FingerprintIndex(store, folder)
    opened_s = time.process_time() - begun
    dice = np.random.default_rng(1)
    prints, more = random_prints(dice, _ADDED), random_prints(dice, _ADDED)
    alone = cpu_us(store, partial(finish, store, None, prints, pages))
    longest = Longest(index)
    both = cpu_us(store, partial(finish, store, longest, more, pages + _ADDED))
    asked = random_prints(dice, _ASKED)
    hit = [one ^ 0x10001 for one in more[-_ASKED:]]
    print(
        f"{pages:>10} {search_us(index, asked):>8.1f} {search_us(index, hit):>7.1f}"
        f" {both - alone:>9.1f} {alone:>10.1f} {longest.s * 1e3:>8.1f} {opened_s:>6.1f}"
        f" {index.file_bytes / pages:>8.0f}"
    )
    index.close()
    store.close()


def random_prints(dice: np.random.Generator, count: int) -> list[int]:
    prints: list[int] = dice.integers(0, _MOST, count, np.uint64, endpoint=True).tolist()
    return prints


def fill(store: RocksStore, pages: int) -> None:
    """Log so many pages, as verdicts do."""
    dice = np.random.default_rng(0)
    for begin in range(0, pages, 64_000):
        prints = dice.integers(0, _MOST, min(64_000, pages - begin), np.uint64).tobytes()
        entries = range(0, len(prints), 512)
        store.write({keys.print_log(begin + at // 8): prints[at : at + 512] for at in entries})


class Longest:
    """Adds to an index, and keeps the longest time that it took."""

    def __init__(self, index: FingerprintIndex) -> None:
        self._index = index
        self.s = 0.0

    def add(self, simhash: int) -> None:
        begun = time.perf_counter()
        self._index.add(simhash)
        self.s = max(self.s, time.perf_counter() - begun)


def finish(store: RocksStore, index: Longest | None, prints: list[int], first: int) -> None:
    """Write verdicts as the frontier does, with the fingerprints of their pages if there is an
    *index*."""
    for number, simhash in enumerate(prints, first):
        name = simhash.to_bytes(8, "big")
        changes: dict[bytes, bytes | None] = {
            keys.TOTALS: bytes(100),
            keys.HOST + name[:2]: bytes(60),
            keys.numbered(keys.OPEN, number): None,
            keys.DIGEST + name + bytes(12): name * 16,
        }
        if index is not None:
            log = keys.print_log(number)
            changes[log] = (store.get(log) or b"") + keys.packed_print(simhash)
            changes[keys.page_of_print(simhash, number)] = name + bytes(12)
        store.write(changes)
        if index is not None:
            index.add(simhash)


def cpu_us(store: RocksStore, work: Callable[[], None]) -> float:
    """Return the CPU time a page of all threads, those of RocksDB too."""
    begun = time.process_time()
    work()
    settle(store)
    return (time.process_time() - begun) / _ADDED * 1e6


def settle(store: RocksStore) -> None:
    """Wait until RocksDB has nothing to do: until it has used no CPU for a while."""
    used = -1.0
    while time.process_time() - used > _IDLE_S / 10:
        used = time.process_time()
        time.sleep(_IDLE_S)


def search_us(index: FingerprintIndex, asked: list[int]) -> float:
    """Median CPU time of rounds of 100 searches, with the digests of what is near."""
    rounds = []
    for begin in range(0, len(asked), 100):
        begun = time.process_time()
        for one in asked[begin : begin + 100]:
            for _, found in index.near(one, MAX_BITS):
                index.pages(found, 8)
        rounds.append((time.process_time() - begun) * 1e4)
    return median(rounds)


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
