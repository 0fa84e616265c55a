"""Damaged runs of the seen set: no answer is wrong, and a repair loses only what nothing names."""

from __future__ import annotations

import random
import shutil
from copy import copy as copy_of
from pathlib import Path

import numpy as np
import pytest

from crawler.frontier.drum import Drum, Files
from crawler.frontier.drum_batch import DrumLimits
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.reader import FrontierReader, correct_counters, count_again
from crawler.frontier.run_files import (
    DAMAGED,
    DrumManifest,
    OpenFd,
    RunFolder,
    load_manifest,
    page_sums,
    save_manifest,
)
from crawler.frontier.seen import seen_manifest
from crawler.frontier.seen_repair import RebuiltSeen, repair_seen
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, DataDirError, Dead, Done, RetryAt, StoreFull
from tests.harness.budget import examples
from tests.harness.frontiers import candidate, drain, rest

LINE = np.dtype([("slope", "u4"), ("offset", "u4")])


def newest(_: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


def flip(file: Path, dice: random.Random) -> None:
    """Flip one to three bytes, or a whole disk block."""
    content = bytearray(file.read_bytes())
    for _ in range(dice.choice([1, 1, 3])):
        content[dice.randrange(len(content))] ^= dice.randrange(1, 256)
    if dice.random() < 0.2:
        at = dice.randrange(len(content)) // 4096 * 4096
        content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    file.write_bytes(content)


def check_refusal(refused: DataDirError) -> None:
    assert "run-" in str(refused) and "check --repair" in str(refused)


def test_one_changed_byte_changes_the_checksum_of_its_page_only() -> None:
    rows = np.arange(1200, dtype=np.uint64)
    sums = page_sums(rows)
    assert len(sums) == 3
    for at in range(0, 9600, 7):
        changed = rows.copy()
        changed.view(np.uint8)[at] ^= 1 << at % 8
        assert np.flatnonzero(page_sums(changed) != sums).tolist() == [at // 4096]
    for width in (1, 3, 100):
        values = np.frombuffer(bytes(range(250)) * 4 * width, f"V{width}")
        assert len(page_sums(values)) == 2


@pytest.mark.parametrize("number", range(examples(40)))
def test_what_reads_a_damaged_run_is_right_or_refuses_by_name(tmp_path: Path, number: int) -> None:
    dice = random.Random(number)
    files = dice.choice([Files.TIERED, Files.CENTRAL])
    with_values = dice.random() < 0.5
    kinds = {"value": LINE, "combine": newest} if with_values else {}
    folder, limits = RunFolder(tmp_path), DrumLimits(fan_out=8, piece_keys=512)

    def opened() -> Drum:
        return Drum(folder, load_manifest(folder), files=files, limits=limits, **kinds)  # type: ignore[arg-type]  # the two kinds

    drum, numbers = opened(), np.random.default_rng(number)
    stored = numbers.integers(0, 1 << 63, 9000, np.uint64)
    for keys in np.array_split(stored, 3):
        drum.update(keys, *([np.zeros(len(keys), LINE)] if with_values else []))
        merged = drum.merge()
        save_manifest(folder, merged.manifest)
        drum.adopt(merged)
    known = set(stored.tolist())
    others = numbers.integers(0, 1 << 63, 200, np.uint64)
    flip(dice.choice(sorted(tmp_path.glob("run-*"))), dice)
    if dice.random() < 0.5:  # else it happens while the files are open
        try:
            drum = opened()
        except DataDirError as refused:
            check_refusal(refused)
            return
    refusals = 0
    for asked in [others, stored[::3], *np.array_split(stored, 300)]:
        try:
            found = drum.contains(asked)
        except DataDirError as refused:
            check_refusal(refused)
            refusals += 1
        else:
            assert found.tolist() == [key in known for key in asked.tolist()]
    try:
        drum.check_update(others, *([np.zeros(len(others), LINE)] if with_values else []))
        merged = drum.merge()
    except DataDirError:
        return
    assert refusals == 0 or with_values
    (result,) = merged.results()
    assert result.unique.all()


class Dies(Exception):
    pass


class DyingFolder(RunFolder):
    """Fails, from the operation with this number on, as a full disk or a dead process does."""

    def __init__(self, path: Path, left: int, error: Exception) -> None:
        super().__init__(path)
        self.left, self.error = left, error

    def count(self) -> None:
        if self.left == 0:
            raise self.error
        self.left -= 1

    def create(self, name: str) -> OpenFd:
        self.count()
        return super().create(name)

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        self.count()
        super().write(file, data, offset)

    def sync(self, file: OpenFd) -> None:
        self.count()
        super().sync(file)

    def sync_names(self) -> None:
        self.count()
        super().sync_names()

    def rename(self, name: str, new: str) -> None:
        self.count()
        super().rename(name, new)

    def remove(self, name: str) -> None:
        self.count()
        super().remove(name)


class DyingStore(MemoryStore):
    """Fails at its write if *folder* has no operations left."""

    folder: DyingFolder | None = None

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if self.folder is not None:
            self.folder.count()
        super().write(changes)


RULES = FrontierLimits(max_new_keys=400, chunk_urls=8, max_undecided=10_000)


class Crawl:
    """A frontier in which some URLs wait, and some are fetched, dead, put off and being fetched."""

    def __init__(self, path: Path) -> None:
        self.store, self.runs = DyingStore(), RunFolder(path)
        frontier = self.open()
        self.all = [candidate(str(n), host=f"h{n % 50}") for n in range(3000)]
        for begin in range(0, 3000, 100):
            frontier.add(self.all[begin : begin + 100], 0.0)
        self.fetched: list[Candidate] = []
        for number, lease in enumerate(drain(frontier, 1.0)[:40]):
            frontier.release(lease, rest(1.0), 1.0)
            if number % 4 == 0:
                frontier.finish(lease, Done(), 1.0)
                self.fetched.append(lease.candidate)
            elif number % 4 < 3:
                verdict = Dead("by the test") if number % 4 == 1 else RetryAt(100.0)
                frontier.finish(lease, verdict, 1.0)

    def copied(self, path: Path) -> Crawl:
        copy = copy_of(self)
        shutil.copytree(self.runs.path, path)
        copy.store, copy.runs = DyingStore(), RunFolder(path)
        copy.store.write(dict(self.store.scan(b"", b"\xff", 10**6)))
        return copy

    def open(self) -> TwoTierFrontier:
        return open_frontier(self.runs.path, RULES, 0.0, store=self.store, runs=self.runs)

    def repair(self, runs: RunFolder | None = None, fetched: bool = True) -> RebuiltSeen | None:
        reader = FrontierReader(self.store, self.runs)
        known = [each.key for each in self.fetched] if fetched else []
        return repair_seen(self.store, runs or self.runs, reader.admitted_keys(), known)

    def files(self) -> list[Path]:
        return sorted(self.runs.path.glob("run-*.keys"))

    def judge(self, lost: int) -> None:
        """All is counted right; of what was seen, *lost* at most is new again, and what waits is
        fetched once."""
        counted = count_again(self.store, self.runs)
        correct_counters(self.store, counted)
        names = {each.name for each in counted if each.differs}
        assert names <= {"seen"}, "what waits was not touched"
        frontier = self.open()
        again = sum(frontier.add([each], 200.0).new for each in self.all)
        assert again <= lost
        found = set()
        for now in range(200, 2000, 5):
            for lease in drain(frontier, float(now)):
                assert lease.candidate.key not in found, "fetched twice"
                found.add(lease.candidate.key)
                frontier.release(lease, rest(1.0), float(now))
                frontier.finish(lease, Done(), float(now))
        assert frontier.is_over()
        gone = {each.key for each in self.all} - found - {each.key for each in self.fetched}
        assert len(gone) == 10, "the dead letters, and nothing else"
        new = candidate("never")
        assert frontier.add([new], 3000.0).new == 1


@pytest.mark.parametrize("number", range(examples(40)))
def test_a_repair_brings_back_all_that_is_named(tmp_path: Path, number: int) -> None:
    dice, crawl = random.Random(number), Crawl(tmp_path)
    damage = dice.choice(["flip", "cut", "gone", "all gone"])
    for file in crawl.files() if damage == "all gone" else [dice.choice(crawl.files())]:
        if damage == "flip":
            flip(file, dice)
        elif damage == "cut":
            file.write_bytes(file.read_bytes()[: dice.randrange(1, file.stat().st_size)])
        else:
            file.unlink()
    before = {file.name: file.read_bytes() for file in crawl.files()}
    with pytest.raises(DataDirError, match=r"run-.*check --repair"):
        count_again(crawl.store, crawl.runs)
    repaired = crawl.repair()
    assert repaired is not None and repaired.lost == 0
    assert repaired.damaged == repaired.held + repaired.fetched
    for name in repaired.set_aside:
        kept = name.removesuffix(DAMAGED)
        if kept in before:
            assert (tmp_path / name).read_bytes() == before[kept]
    crawl.judge(lost=0)
    assert crawl.repair() is None, "nothing is damaged any more"


def test_what_nothing_names_is_counted_as_lost(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path)
    for file in crawl.files():
        file.unlink()
    repaired = crawl.repair(fetched=False)
    stored = seen_manifest(crawl.store).keys
    assert repaired is not None and (repaired.lost, repaired.fetched) == (len(crawl.fetched), 0)
    assert repaired.damaged == stored + repaired.lost
    crawl.judge(lost=repaired.lost)


def test_a_key_that_no_damaged_page_had_does_not_come_into_the_seen_set(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path)
    largest = max(crawl.files(), key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[:8] = bytes(8)
    largest.write_bytes(content)
    crawl.fetched += [candidate(f"foreign-{n}") for n in range(2000)]
    repaired = crawl.repair()
    assert repaired is not None
    within = 512 / (len(content) / 8)
    assert repaired.fetched <= 2000 * within * 1.5 + 10, "some lie between the keys of the page"


@pytest.mark.parametrize("error", [Dies(), StoreFull("the disk is full")], ids=["killed", "full"])
def test_a_repair_may_be_cut_off_at_each_step(tmp_path: Path, error: Exception) -> None:
    first_crawl = Crawl(tmp_path / "first")
    for steps in range(1000):
        crawl = first_crawl.copied(tmp_path / str(steps))
        # One of its pages is damaged, and another run is gone.
        first, *_, last = crawl.files()
        content = bytearray(last.read_bytes())
        content[9] ^= 1
        last.write_bytes(content)
        damaged = bytes(content)
        first.unlink()
        folder = DyingFolder(crawl.runs.path, steps, error)
        crawl.store.folder = folder
        try:
            crawl.repair(folder)
        except (Dies, StoreFull):
            died = True
        else:
            died = False
        crawl.store.folder = None
        aside = crawl.runs.path / (last.name + DAMAGED)
        assert (aside if aside.exists() else last).read_bytes() == damaged
        repaired = crawl.repair()
        assert died or repaired is None
        assert repaired is None or repaired.lost == 0
        crawl.judge(lost=0)
        assert aside.read_bytes() == damaged, "nothing damaged is removed"
        if not died:
            assert steps > 10, "too short to prove anything"
            return


def test_a_start_reads_all_runs_for_its_gate(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path)
    for file in crawl.files():
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 4
        file.write_bytes(content)
    with pytest.raises(DataDirError, match=r"run-.*is damaged .a page from byte"):
        crawl.open()


def test_the_format_before_is_refused(tmp_path: Path) -> None:
    old = DrumManifest().sealed().replace(b'"version":2', b'"version":1')
    store = MemoryStore()
    store.write({b"k": old})
    with pytest.raises(DataDirError, match="is of version 1"):
        open_frontier(tmp_path, RULES, 0.0, store=store)
