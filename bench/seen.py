"""`python -m bench.seen`: what exact tests of seen URLs cost, by number of URLs.

Rule: prints each figure beside its bar, and ends with 1 where one is missed. Keys are the numbers
from 0 on, mixed by a bijection, so that what is known is known without a list. The folder is kept
where it is named, and a second run continues there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from rocksdict import AccessType, Options, Rdict, WriteBatch

from bench.figures import Figures
from bench.seen_costs import SeenCosts, tiered_bytes
from crawler.frontier.drum import Drum, Files
from crawler.frontier.drum_batch import DrumLimits
from crawler.frontier.gate import Gate
from crawler.frontier.run_files import (
    DrumManifest,
    Keys,
    OpenFd,
    RunFolder,
    load_manifest,
    save_manifest,
)

CHECKS_PER_S: Final = 2_000_000
BYTES_PER_URL: Final = 10
RATIO: Final = 2.0
FORMULA: Final = 0.05
_ROUNDS: Final = 8  # batches that are measured
_SMALL: Final = 1_000_000  # URLs of the store that the large one is compared with
_FULL_SIZE: Final = 10_000_000
_OTHER_BATCH: Final = 100_000


def keys_of(numbers: Keys) -> Keys:
    """Mix *numbers*: the finalizer of splitmix64, in which no two have the same result."""
    keys = numbers * np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(30)
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    keys ^= keys >> np.uint64(27)
    keys *= np.uint64(0x94D049BB133111EB)
    keys ^= keys >> np.uint64(31)
    return keys


def batch_of(known: int, size: int, seed: int) -> tuple[Keys, np.typing.NDArray[np.bool_]]:
    """Return *size* keys, half of them new after *known*, shuffled, and which are new."""
    dice = np.random.default_rng(seed)
    numbers = dice.integers(0, max(known, 1), size, np.uint64)
    is_new = dice.random(size) < 0.5
    count = int(np.count_nonzero(is_new))
    numbers[is_new] = np.arange(known, known + count, dtype=np.uint64)
    return keys_of(numbers), is_new


class MeasuredFolder(RunFolder):
    """Notes how many bytes its files have, and have had at most."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._sizes = {file.name: file.stat().st_size for file in path.iterdir()}
        self._names: dict[int, str] = {}
        self.peak = self.now

    @property
    def now(self) -> int:
        return sum(self._sizes.values())

    def create(self, name: str) -> OpenFd:
        file = super().create(name)
        self._names[file.number], self._sizes[name] = name, 0
        return file

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        super().write(file, data, offset)
        name = self._names[file.number]
        self._sizes[name] = max(self._sizes[name], offset + len(data))
        self.peak = max(self.peak, self.now)

    def rename(self, name: str, new: str) -> None:
        super().rename(name, new)
        self._sizes[new] = self._sizes.pop(name)

    def remove(self, name: str) -> None:
        super().remove(name)
        self._sizes.pop(name, None)

    def evict(self) -> None:
        """Drop the files from the page cache, so that they are read from the disk."""
        for file in self.path.iterdir():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@dataclass
class Memory:
    """The most memory that the process had of its own: without mapped files."""

    most: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        while not self._stop.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.most = max(self.most, int(line.split()[1]) * 1024)


@contextmanager
def watched() -> Iterator[Memory]:
    memory = Memory()
    thread = threading.Thread(target=memory.watch)
    thread.start()
    try:
        yield memory
    finally:
        memory._stop.set()
        thread.join()


def commit(folder: RunFolder, drum: Drum) -> np.typing.NDArray[np.bool_]:
    """Merge and commit, and return which operations were unique."""
    merged = drum.merge()
    unique = [one.unique for one in merged.results()]
    save_manifest(folder, merged.manifest)
    drum.adopt(merged)
    return np.concatenate(unique)


def filled(folder: RunFolder, limits: DrumLimits, urls: int, batch: int) -> tuple[Drum, int]:
    """Return a store of *urls*, each half batch of them written by one merge, as in a crawl; and
    how many merges that took in this process."""
    drum = Drum(folder, load_manifest(folder), limits=limits)
    merges, begun = 0, time.perf_counter()
    while (known := len(drum)) < urls:
        numbers = np.arange(known, min(known + batch // 2, urls), dtype=np.uint64)
        drum.update(keys_of(numbers))
        commit(folder, drum)
        merges += 1
    if merges:
        print(f"filled with {urls:,} in {time.perf_counter() - begun:.0f} s, {merges} merges")
    return drum, merges


def checks(
    folder: MeasuredFolder, limits: DrumLimits, urls: int, batch: int, figures: Figures
) -> Drum:
    """Time checks of half new URLs with nothing cached."""
    with watched() as memory:
        drum, merges = filled(folder, limits, urls, batch)
        took, cpu, wrong, lost, checked = 0.0, 0.0, 0, 0, 0
        folder.peak = folder.now
        for number in range(_ROUNDS):
            keys, is_new = batch_of(len(drum), batch, number)
            folder.evict()
            begun, begun_cpu = time.perf_counter(), time.thread_time()
            drum.check_update(keys)
            unique = commit(folder, drum)
            took += time.perf_counter() - begun
            cpu += time.thread_time() - begun_cpu
            lost += int(np.count_nonzero(is_new & ~unique))
            wrong += int(np.count_nonzero(unique & ~is_new))
            checked += int(np.count_nonzero(is_new))
    rate = _ROUNDS * batch / took
    # Below that a merge is files that are synced, not keys: no bar.
    bar = f"{CHECKS_PER_S:,}" if urls >= _FULL_SIZE else ""
    figures.show(f"checks a second at {urls:,}, batches of {batch:,}", f"{rate:,.0f}",
                 bar, not bar or rate >= CHECKS_PER_S)  # fmt: skip
    figures.show("CPU of them, ns a check", f"{cpu / _ROUNDS / batch * 1e9:.0f}")
    rest = folder.now / len(drum)
    figures.show("bytes a URL at rest", f"{rest:.2f}", str(BYTES_PER_URL), rest <= BYTES_PER_URL)
    figures.show("most bytes a URL on disk in a merge", f"{folder.peak / len(drum):.2f}")
    figures.show("most memory, MB, of which buckets", f"{memory.most / 1e6:.0f}"
                 f" / {limits.ram_bytes / 1e6:.0f}")  # fmt: skip
    figures.show(f"new called seen, of {checked:,}", str(lost), "0", lost == 0)
    figures.show("known called new", str(wrong), "0", wrong == 0)
    if merges * (batch // 2) >= urls:
        formula = tiered_bytes(
            batches=merges + _ROUNDS,
            batch_checks=batch,
            share_new=0.5,
            fan_out=DrumLimits().fan_out,
        )
        off = drum.moved.total / formula - 1
        figures.show("bytes moved, tiers, beside the formula", f"{off:+.1%}", f"{FORMULA:.0%}",
                     abs(off) <= FORMULA)  # fmt: skip
    else:
        print("bytes moved: not compared, as the folder was filled by an earlier run")
    return drum


def new_pages(folder: Path, drum: Drum, pages: int, batch: int, figures: Figures) -> None:
    """Look in *drum* for the keys of *pages* new ones, and count those that are found there. A
    file in *folder* says how far that came, and a second run continues."""
    progress = folder / "asked.json"
    asked, lost = json.loads(progress.read_text()) if progress.exists() else (0, 0)
    # Far above the numbers of what the store has or will have.
    while asked < pages:
        count = min(batch, pages - asked)
        found = drum.contains(
            keys_of(np.arange(count, dtype=np.uint64) + np.uint64((1 << 63) + asked))
        )
        asked, lost = asked + count, lost + int(np.count_nonzero(found))
        written = progress.with_suffix(".new")
        written.write_text(json.dumps([asked, lost]))
        written.replace(progress)
    figures.show(f"new called seen, looked for, of {asked:,}", str(lost), "0", lost == 0)


def growth_of_cost(
    large: Drum, folder: RunFolder, place: Path, batch: int, limits: DrumLimits, figures: Figures
) -> None:
    """Time the same batch on the large store and on a small one, both cached and without the
    merging of runs, which is in the figure of checks a second."""
    small_folder = RunFolder(place / "small")
    small, _ = filled(small_folder, limits, _SMALL, batch)
    # The same keys: half from what both know, half that neither does.
    keys, _ = batch_of(_SMALL, batch, 99)
    known = np.uint64(len(large))
    dice = np.random.default_rng(98)
    is_new = dice.random(batch) < 0.5
    count = int(np.count_nonzero(is_new))
    keys[is_new] = keys_of(np.arange(count, dtype=np.uint64) + known)
    keys[~is_new] = keys_of(dice.integers(0, _SMALL, batch - count, np.uint64))
    costs = {}
    apart = DrumLimits(ram_bytes=limits.ram_bytes, fan_out=1 << 30)
    for name, where, manifest in (
        ("small", small_folder, small.manifest),
        ("large", folder, large.manifest),
    ):
        drum, times = Drum(where, manifest, limits=apart), []
        drum.check_files()  # reads all
        drum.check_update(keys)
        for _ in range(5):
            begun = time.thread_time()  # of the CPU: nothing is read from the disk
            merged = drum.merge()
            times.append(time.thread_time() - begun)
            drum.abandon(merged)
        costs[name] = median(times) / batch * 1e9
        figures.show(f"CPU ns a check, cached, {len(drum):,} in {len(manifest.runs)} runs",
                     f"{costs[name]:.0f}")  # fmt: skip
    ratio = costs["large"] / costs["small"]
    bar = f"{RATIO}" if len(large) >= _FULL_SIZE else ""
    figures.show("ratio", f"{ratio:.2f}", bar, not bar or ratio <= RATIO)


def central(place: Path, figures: Figures, links: int) -> None:
    """The published algorithm beside its formula, scaled down: URLs of 110 bytes, 1/9 new."""
    bits, url_bytes, known = 4, 110, links // 6
    bucket_keys = links // 4 >> bits
    limits = DrumLimits(ram_bytes=2 * (9 + url_bytes) * (links // 100), bucket_bits=bits,
                        bucket_bytes=9 * bucket_keys)  # fmt: skip
    aux = np.dtype(f"S{url_bytes}")
    folder = RunFolder(place / "central")
    drum = Drum(folder, DrumManifest(), files=Files.CENTRAL, aux=aux, limits=limits)
    step = links // 1000
    texts = np.full(step, b"x" * url_bytes, aux)
    for begin in range(0, known, step):
        drum.check_update(keys_of(np.arange(begin, begin + step, dtype=np.uint64)), aux=texts)
    commit(folder, drum)
    start, moved, handed_on, done = len(drum), drum.moved.total, 0, 0
    dice, new = np.random.default_rng(1), len(drum)
    while done < links:
        numbers = dice.integers(0, start, step, np.uint64)
        numbers[: step // 9] = np.arange(new, new + step // 9, dtype=np.uint64)
        new += step // 9
        drum.check_update(keys_of(numbers), aux=texts)
        if drum.is_full:
            unique = commit(folder, drum)
            handed_on += int(np.count_nonzero(unique)) * url_bytes
            done += len(unique)
    costs = SeenCosts(pages=done / 59, known_urls=start, ram_bytes=1e12, buffer_bytes=1,
                      share_new=step // 9 / step,
                      disk_bytes=(bucket_keys << bits) * (8 + url_bytes))  # fmt: skip
    off = (drum.moved.total - moved + handed_on) / (done * url_bytes) / costs.drum - 1
    figures.show("bytes moved, central file, beside the paper's formula", f"{off:+.1%}",
                 f"{FORMULA:.0%}", abs(off) <= FORMULA)  # fmt: skip


def bloom_alone(urls: int, figures: Figures) -> None:
    """What a filter alone would lose at 1 %, for the same number of new pages."""
    urls = min(urls, 20_000_000)
    gate = Gate(int(urls / 1.17))
    for begin in range(0, urls, 1 << 20):
        gate.add(keys_of(np.arange(begin, min(begin + (1 << 20), urls), dtype=np.uint64)))
    asked = keys_of(np.arange(urls, urls + 1_000_000, dtype=np.uint64))
    lost = float(gate.may_contain(asked).mean())
    figures.show(f"new called seen by a Bloom filter alone at {urls:,}", f"{lost:.2%}")


def others(place: Path, urls: int, seconds: float, figures: Figures) -> None:
    """Other stores, each to the size it reaches in *seconds*: half of each batch is new."""
    for name, opened in (("Python set", python_set), ("RocksDB", rocks), ("SQLite", sqlite)):
        add = opened(place)
        known, number, begun, last = 0, 0, time.perf_counter(), 0.0
        while known < urls and time.perf_counter() - begun < seconds:
            keys, is_new = batch_of(known, _OTHER_BATCH, number)
            known += int(np.count_nonzero(is_new))
            number += 1
            started = time.perf_counter()
            add(keys)
            last = _OTHER_BATCH / (time.perf_counter() - started)
        why = "" if known >= urls else ", as far as it came"
        figures.show(f"{name} at {known:,}{why}: checks a second", f"{last:,.0f}")


def python_set(_: Path) -> Callable[[Keys], object]:
    seen: set[int] = set()

    def add(keys: Keys) -> list[int]:
        new = [key for key in keys.tolist() if key not in seen]
        seen.update(new)
        return new

    return add


def rocks(place: Path) -> Callable[[Keys], object]:
    db = Rdict(str(place / "rocks"), Options(raw_mode=True), access_type=AccessType.read_write())

    def add(keys: Keys) -> None:
        packed = [key.tobytes() for key in keys.byteswap()]
        found = db.get(packed) or []
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(packed, found, strict=True):
            if value is None:
                batch.put(key, b"")
        db.write(batch)

    return add


def sqlite(place: Path) -> Callable[[Keys], object]:
    db = sqlite3.connect(place / "seen.sqlite")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE seen (key INTEGER PRIMARY KEY)")

    def add(keys: Keys) -> None:
        rows = [(key,) for key in keys.view(np.int64).tolist()]
        db.executemany("INSERT OR IGNORE INTO seen VALUES (?)", rows)
        db.commit()

    return add


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.seen", description=__doc__)
    parser.add_argument("--urls", type=float, default=1e6)
    parser.add_argument("--batch", type=float, help="default: a twentieth, 5,000,000 at most")
    parser.add_argument("--seconds", type=float, default=5, help="for each of the other stores")
    parser.add_argument("--new", type=float, help="pages looked for; default: as many as URLs")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; it is kept")
    options = parser.parse_args()
    urls = int(options.urls)
    batch = int(options.batch or min(5e6, urls / 20))
    place = options.folder or Path(tempfile.mkdtemp(prefix="seen"))
    place.mkdir(parents=True, exist_ok=True)
    # A merge of all has them twice; those of the measured batches come to them.
    needed = 2 * 8.1 * (urls + _ROUNDS * batch) + 40 * min(urls, options.seconds * 1e6)
    free = shutil.disk_usage(place).free
    print(f"needs {needed / 1e9:.1f} GB in {place}, {free / 1e9:.1f} are free")
    if needed > free:
        return 2
    figures = Figures()
    limits = DrumLimits(ram_bytes=min(256 << 20, 40 * batch))
    try:
        folder = MeasuredFolder(place / "drum")
        large = checks(folder, limits, urls, batch, figures)
        new_pages(place, large, int(options.new or urls), batch, figures)
        growth_of_cost(large, folder, place, batch, limits, figures)
        central(place, figures, 200_000)
        bloom_alone(urls, figures)
        if options.seconds:
            others(place, urls, options.seconds, figures)
    finally:
        for name in ("small", "central", "rocks"):
            shutil.rmtree(place / name, ignore_errors=True)
        for left in place.glob("seen.sqlite*"):
            left.unlink()
        if options.folder is None:
            shutil.rmtree(place, ignore_errors=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures.show("most memory of the process, with mapped files, MB", f"{most / 1e6:.0f}")
    return int(figures.missed)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
