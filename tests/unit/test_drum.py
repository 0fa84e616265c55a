"""DRUM gives what a dict would, in every state it can be in, and after every crash."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.seen_costs import SeenCosts, tiered_bytes
from crawler.frontier.drum import Drum, Files, Merged, oldest_to_compact, sort_order
from crawler.frontier.drum_batch import DrumLimits
from crawler.frontier.run_files import (
    MANIFEST,
    DrumManifest,
    OpenFd,
    RunFolder,
    load_manifest,
    save_manifest,
    unsealed,
)
from crawler.model.types import DataDirError, StoreFull
from tests.harness.budget import examples

# So small that batches spill after a few operations, and runs have several pieces.
TINY = DrumLimits(ram_bytes=2000, bucket_bytes=600, bucket_bits=2, fan_out=2, piece_keys=512)
FULL = (1 << 64) - 1
LINE = np.dtype([("slope", "u4"), ("offset", "u4")])


def then(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """x -> slope * x + offset, the old one first: associative, and the order matters."""
    both = np.empty(len(old), LINE)
    both["slope"] = old["slope"] * new["slope"]
    both["offset"] = old["offset"] * new["slope"] + new["offset"]
    return both


def then_one(old: tuple[int, int], new: tuple[int, int]) -> tuple[int, int]:
    return old[0] * new[0] % 2**32, (old[1] * new[0] + new[1]) % 2**32


@dataclass
class Life:
    """A Drum beside a dict, under random operations. Each merge that is adopted is committed."""

    path: Path
    dice: random.Random
    files: Files
    with_values: bool
    aux: Any
    keys: list[int]
    limits: DrumLimits = TINY
    largest: int = 30
    stored: dict[int, Any] = field(default_factory=dict)
    waiting: list[tuple[str, int, Any, Any]] = field(default_factory=list)
    merging: list[tuple[str, int, Any, Any]] | None = None  # not adopted yet

    def __post_init__(self) -> None:
        self.folder = FailingFolder(self.path)
        self.reopen()

    def reopen(self) -> None:
        """What waits is lost, and nothing else."""
        self.waiting, self.merging = [], None
        self.drum = Drum(
            self.folder,
            load_manifest(self.folder),
            files=self.files,
            value=LINE if self.with_values else None,
            combine=then if self.with_values else None,
            aux=self.aux,
            limits=self.limits,
        )

    def add(self) -> None:
        count = self.dice.choice([0, 1, 2, self.largest])
        keys = self.dice.choices(self.keys, k=count)
        kind = self.dice.choice(["check", "update", "check_update"])
        values = [(self.dice.getrandbits(8), self.dice.getrandbits(8)) for _ in keys]
        aux: Any = [self.dice.randbytes(self.dice.randrange(5)) for _ in keys]
        if isinstance(self.aux, np.dtype):
            aux = [self.dice.getrandbits(60) for _ in keys]
        arguments: dict[str, Any] = {}
        if self.with_values and kind != "check":
            arguments["values"] = np.array(values, LINE)
        if self.aux is not None and kind != "update":
            arguments["aux"] = aux if self.aux is bytes else np.array(aux, self.aux)
        getattr(self.drum, kind)(np.array(keys, np.uint64), **arguments)
        self.waiting += [(kind, *each) for each in zip(keys, values, aux, strict=True)]

    def merge(self) -> Merged:
        if self.merging is None:
            self.merging, self.waiting = self.waiting, []
        return self.drum.merge()

    def commit(self, merged: Merged) -> None:
        expected, after = self.expected()
        assert self.results(merged) == expected
        save_manifest(self.folder, merged.manifest)
        self.drum.adopt(merged)
        self.stored, self.merging = after, None
        assert len(self.drum) == len(self.stored)

    def expected(self) -> tuple[list[Any], dict[int, Any]]:
        after, found = dict(self.stored), []
        for kind, key, value, aux in self.merging or []:
            if kind != "update":
                old = after.get(key, (0, 0)) if self.with_values else None
                found.append((key not in after, old, None if self.aux is None else aux))
            if kind != "check":
                new = value if key not in after else then_one(after[key], value)
                after[key] = new
        return found, after

    def results(self, merged: Merged) -> list[Any]:
        found = []
        for one in merged.results():
            values: Any = [None] * len(one.unique)
            aux: Any = values
            if one.values is not None:
                values = map(tuple, one.values.tolist())
            if one.aux is not None:
                aux = one.aux if isinstance(one.aux, list) else one.aux.tolist()
            found += zip(one.unique.tolist(), values, aux, strict=True)
        return found

    def known(self) -> set[int]:
        operations = [*(self.merging or []), *self.waiting]
        waiting = [key for kind, key, *_ in operations if kind != "check"]
        return {*self.stored, *waiting}

    def look(self) -> None:
        known, asked = self.known(), self.dice.choices(self.keys, k=20)
        assert self.drum.contains(np.array(asked, np.uint64)).tolist() == [
            key in known for key in asked
        ]
        low, high = sorted(self.dice.choices([0, *self.keys, FULL + 1], k=2))
        slices = [one.tolist() for one in self.drum.keys_in(low, high)] if low < high else []
        assert set(itertools.chain(*slices)) == {key for key in known if low <= key < high}
        self.drum.check_files()

    def step(self) -> None:
        does = self.dice.random()
        if does < 0.65:
            self.add()
        elif does < 0.8:
            self.commit(self.merge())
        elif does < 0.85:
            self.drum.abandon(self.merge())
        elif does < 0.89:
            self.folder.fails_in = self.dice.randrange(20)
            try:
                self.commit(self.merge())
            except StoreFull:
                pass
            finally:
                self.folder.fails_in = None
        elif does < 0.98:
            self.look()
        else:
            self.reopen()


class FailingFolder(RunFolder):
    """Raises StoreFull at the write that is chosen, after half of it. Does not sync."""

    fails_in: int | None = None

    def sync(self, file: OpenFd) -> None:
        """Not to the disk: that takes most of the time."""

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                super().write(file, data[: len(data) // 2], offset)
                raise StoreFull("no room")
        super().write(file, data, offset)


def clustered(dice: random.Random, count: int) -> list[int]:
    """Keys at the ends, some that differ in their last bits only, and others."""
    base = dice.getrandbits(64) & ~0xFFFF
    near = [base + dice.getrandbits(4) for _ in range(count // 5)]
    return [0, 1, FULL, FULL - 1, 1 << 62, (1 << 62) - 1, *near] + [
        dice.getrandbits(64) for _ in range(count)
    ]


KINDS = [
    pytest.param(False, None, id="keys alone"),
    pytest.param(False, np.dtype("u8"), id="references"),
    pytest.param(False, bytes, id="texts"),
    pytest.param(True, None, id="values"),
    pytest.param(True, bytes, id="values and texts"),
]


@pytest.mark.parametrize("files", Files)
@pytest.mark.parametrize(("with_values", "aux"), KINDS)
def test_it_gives_what_a_dict_would(
    tmp_path: Path, files: Files, with_values: bool, aux: Any
) -> None:
    for seed in range(examples(3)):
        dice = random.Random(seed)
        life = Life(
            tmp_path / str(seed), dice, files, with_values, aux, clustered(dice, 20 * 4**seed % 999)
        )
        for _ in range(300):
            life.step()


@pytest.mark.parametrize("files", Files)
@pytest.mark.parametrize("with_values", [False, True])
def test_runs_of_many_pieces(tmp_path: Path, files: Files, with_values: bool) -> None:
    dice = random.Random(1)
    limits = DrumLimits(ram_bytes=60_000, bucket_bytes=9000, bucket_bits=3, piece_keys=512)
    keys = clustered(dice, 9000)
    life = Life(tmp_path, dice, files, with_values, None, keys, limits, largest=1500)
    for _ in range(150):
        life.step()
    assert len(life.drum) > 4000


class RecordingFolder(RunFolder):
    """Copies the folder before each operation, and in the middle of each write."""

    def __init__(self, path: Path, copies: Path) -> None:
        super().__init__(path)
        self.copies, self.count, self.committed = copies, 0, 0
        self.states: list[int] = []  # by copy: number of commits that are certain

    def copy(self) -> None:
        shutil.copytree(self.path, self.copies / str(len(self.states)))
        self.states.append(self.committed)

    def create(self, name: str) -> OpenFd:
        self.copy()
        return super().create(name)

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        self.copy()
        half = len(data) // 2
        super().write(file, data[:half], offset)
        self.copy()
        super().write(file, data[half:], offset + half)

    def sync(self, file: OpenFd) -> None:
        self.copy()

    def sync_names(self) -> None:
        self.copy()

    def rename(self, name: str, new: str) -> None:
        self.copy()
        super().rename(name, new)

    def remove(self, name: str) -> None:
        self.copy()
        super().remove(name)


def batches(count: int, size: int, seed: int = 1) -> list[np.ndarray]:
    """Random keys, half of each batch from the one before."""
    random_keys = np.random.default_rng(seed).integers(0, FULL, (count, size), np.uint64, True)
    random_keys[1:, : size // 2] = random_keys[:-1, size // 2 : 2 * (size // 2)]
    return list(random_keys)


def everything(drum: Drum) -> set[int]:
    return set(itertools.chain(*(one.tolist() for one in drum.keys_in(0, FULL + 1))))


@pytest.mark.parametrize("files", Files)
def test_a_crash_at_any_point_leaves_a_committed_state(tmp_path: Path, files: Files) -> None:
    (tmp_path / "copies").mkdir()
    folder = RecordingFolder(tmp_path / "drum", tmp_path / "copies")
    drum = Drum(folder, DrumManifest(), files=files, limits=TINY)
    states: list[set[int]] = [set()]
    for keys in batches(5, 150):
        for some in np.array_split(keys, 5):
            drum.check_update(some)
        merged = drum.merge()
        assert sum(one.unique.sum() for one in merged.results()) == len(
            set(keys.tolist()) - states[-1]
        )
        states.append(states[-1] | set(keys.tolist()))
        save_manifest(folder, merged.manifest)
        folder.committed += 1
        drum.adopt(merged)
    assert len(folder.states) > 100
    for number, committed in enumerate(folder.states):
        copy = FailingFolder(tmp_path / "copies" / str(number))
        manifest = load_manifest(copy)
        opened = Drum(copy, manifest, files=files, limits=TINY)
        opened.check_files()
        # While a commit is made it may be that of before or after.
        assert everything(opened) in states[committed : committed + 2]
        assert len(opened) == len(everything(opened))
        named = {file.name for stored in manifest.runs for file in stored.files}
        assert {path.name for path in copy.path.iterdir()} - {MANIFEST} == named


@pytest.mark.parametrize("files", Files)
@pytest.mark.parametrize("aux", [None, bytes])
def test_a_disk_that_is_full_at_any_write_loses_nothing(
    tmp_path: Path, files: Files, aux: Any
) -> None:
    """Operations that were taken are in a later merge, with their results in order."""
    first, second = batches(2, 120)
    for fails_in in itertools.count():
        folder = FailingFolder(tmp_path / str(fails_in))
        drum = Drum(folder, DrumManifest(), files=files, aux=aux, limits=TINY)
        failed, taken = False, []
        for keys in (first, second):
            for number, some in enumerate(np.array_split(keys, 6)):
                if keys is second and number == 0:
                    folder.fails_in = fails_in
                texts = None if aux is None else [str(key).encode() for key in some.tolist()]
                for _ in range(2):
                    try:
                        drum.check_update(some, aux=texts)
                    except StoreFull:
                        failed, folder.fails_in = True, None
                    else:
                        taken += some.tolist()
                        break
            for _ in range(2):
                try:
                    merged = drum.merge()
                except StoreFull:
                    failed, folder.fails_in = True, None
                else:
                    break
            seen: set[int] = set(first.tolist()) if keys is second else set()
            results = list(merged.results())
            unique = [each for one in results for each in one.unique.tolist()]
            assert unique == [key not in seen for key in taken]
            if aux is not None:
                assert [text for one in results for text in one.aux] == [
                    str(key).encode() for key in taken
                ]
            drum.adopt(merged)
            taken = []
        drum.check_files()
        assert everything(drum) == {*first.tolist(), *second.tolist()}
        if not failed:
            break
    assert fails_in > 10


def test_errors_of_the_system_are_translated(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("Linux has it")
    folder = RunFolder(tmp_path)
    with pytest.raises(StoreFull, match="No space left"):
        folder.write(OpenFd(os.open("/dev/full", os.O_RDWR)), memoryview(b"1"), 0)
    with pytest.raises(StoreFull, match="bytes for a merge"):
        folder.require_free(1 << 62)
    with pytest.raises(DataDirError, match="cannot be made"):
        RunFolder(Path("/dev/full/drum"))


def test_a_merge_without_room_is_not_begun(tmp_path: Path) -> None:
    class SmallDisk(RunFolder):
        needed: int | None = None

        def require_free(self, size: int) -> None:
            self.needed = size
            raise StoreFull("no room")

    folder = SmallDisk(tmp_path)
    drum = Drum(folder, DrumManifest())
    drum.check_update(np.arange(1000, dtype=np.uint64))
    with pytest.raises(StoreFull):
        drum.merge()
    assert folder.needed is not None and 8000 <= folder.needed < 8100
    assert list(tmp_path.iterdir()) == []


def filled(path: Path, count: int = 3000) -> tuple[RunFolder, Drum]:
    folder = RunFolder(path)
    drum = Drum(folder, DrumManifest(), value=LINE, combine=then)
    drum.update(np.arange(count, dtype=np.uint64), np.zeros(count, LINE))
    merged = drum.merge()
    save_manifest(folder, merged.manifest)
    drum.adopt(merged)
    return folder, drum


@pytest.mark.parametrize("kind", ["keys", "values"])
def test_damaged_and_missing_files_are_named(tmp_path: Path, kind: str) -> None:
    folder, drum = filled(tmp_path)
    file = tmp_path / f"run-0.{kind}"
    whole = file.read_bytes()

    def opened() -> Drum:
        return Drum(folder, load_manifest(folder), value=LINE, combine=then)

    for at in (0, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataDirError, match=rf"run-0.{kind} is damaged .* --repair"):
            opened().check_files()
    for rest in (b"", whole[:-1], whole + b"1"):
        file.write_bytes(rest)
        with pytest.raises(DataDirError, match=rf"run-0.{kind}"):
            opened()
    file.unlink()
    with pytest.raises(DataDirError, match=rf"run-0.{kind} is damaged .No such file"):
        opened()
    assert (tmp_path / MANIFEST).exists(), "nothing is removed where a file is missing"
    del drum


def test_a_store_of_other_values_is_refused(tmp_path: Path) -> None:
    folder, _ = filled(tmp_path)
    with pytest.raises(DataDirError, match="values of the kind None"):
        Drum(folder, load_manifest(folder))


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    folder, drum = filled(tmp_path)
    packed = drum.manifest.sealed()
    assert unsealed(packed, "here") == drum.manifest == load_manifest(folder)
    for broken, why in (
        (packed.replace(b'"keys":3000', b'"keys":3001'), "here is damaged"),
        (packed[:-5], "here cannot be read"),
        (packed.replace(b'"version":2', b'"version":9'), "here is of version 9"),
    ):
        with pytest.raises(DataDirError, match=why):
            unsealed(broken, "here")


def test_a_central_file_is_one_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    drum = Drum(folder, DrumManifest(), limits=DrumLimits(fan_out=8))
    for keys in batches(2, 100):
        drum.update(keys)
        drum.adopt(drum.merge())
    with pytest.raises(ValueError, match="in tiers"):
        Drum(folder, drum.manifest, files=Files.CENTRAL)


@pytest.mark.parametrize(
    ("kinds", "operation", "arguments"),
    [
        ({}, "update", {"values": np.zeros(2, LINE)}),
        ({"value": LINE, "combine": then}, "update", {}),
        ({"value": LINE, "combine": then}, "update", {"values": np.zeros(3, LINE)}),
        ({}, "check", {"aux": [b"", b""]}),
        ({"aux": bytes}, "check", {}),
        ({"aux": bytes}, "check_update", {"aux": [b""]}),
    ],
)
def test_operations_of_another_kind_are_refused(
    tmp_path: Path, kinds: dict[str, Any], operation: str, arguments: dict[str, Any]
) -> None:
    drum = Drum(RunFolder(tmp_path), DrumManifest(), **kinds)
    with pytest.raises(ValueError, match=r"check|update|equally"):
        getattr(drum, operation)(np.zeros(2, np.uint64), **arguments)
    assert drum.waiting == 0


def test_what_is_said_to_be_full(tmp_path: Path) -> None:
    """In tiers the memory, with a central file the bucket files make a merge due."""
    limits = DrumLimits(ram_bytes=18 * 80, bucket_bits=1, bucket_bytes=9 * 100)
    keys = np.arange(10, dtype=np.uint64)
    for files, full_from in ((Files.TIERED, 7), (Files.CENTRAL, 17)):
        drum = Drum(RunFolder(tmp_path / files.value), DrumManifest(), files=files, limits=limits)
        seen = []
        for _ in range(20):
            drum.update(keys)
            seen.append(drum.is_full)
        assert seen.index(True) + 1 == full_from
        assert all(seen[seen.index(True) :])
        with pytest.raises(ValueError, match="at once"):
            drum.update(np.zeros(81, np.uint64))


def test_operations_are_added_while_a_thread_merges(tmp_path: Path) -> None:
    """Each key is unique once, look-ups see what was added, and so do the keys for the gate."""
    limits = DrumLimits(ram_bytes=40_000, bucket_bytes=4000, bucket_bits=2, fan_out=3)
    drum = Drum(FailingFolder(tmp_path), DrumManifest(), aux=np.dtype("u8"), limits=limits)
    dice = np.random.default_rng(1)
    pool = np.unique(dice.integers(0, FULL, 20_000, np.uint64))
    unique: list[int] = []
    added: set[int] = set()
    broken: list[BaseException] = []

    def merge() -> None:
        try:
            done.append(drum.merge())
        except BaseException as error:
            broken.append(error)

    done: list[Merged] = []
    thread = None
    for _ in range(1500):
        keys = dice.choice(pool, 40)
        drum.check_update(keys, aux=keys)
        added |= set(keys.tolist())
        if thread is None and drum.is_full:
            thread = threading.Thread(target=merge)
            thread.start()
        elif thread is not None and not thread.is_alive():
            assert not broken, broken
            merged, thread = done.pop(), None
            unique += [key for one in merged.results() for key in one.aux[one.unique].tolist()]
            drum.adopt(merged)
        if dice.random() < 0.02:
            asked = dice.choice(pool, 50)
            assert drum.contains(asked).tolist() == [key in added for key in asked.tolist()]
            assert everything(drum) == added
    if thread is not None:
        thread.join()
        assert not broken, broken
        done_now = done.pop()
        unique += [key for one in done_now.results() for key in one.aux[one.unique].tolist()]
        drum.adopt(done_now)
    last = drum.merge()
    unique += [key for one in last.results() for key in one.aux[one.unique].tolist()]
    assert sorted(unique) == sorted(added)


@pytest.mark.parametrize("bits", [0, 3, 10, 40, 64])
def test_sorting_by_packed_keys(bits: int) -> None:
    """Also where many keys differ in the bits that are replaced."""
    keys = np.random.default_rng(bits).integers(0, FULL, 5000, np.uint64)
    keys &= np.uint64((1 << bits) - 1)
    ordered, order = sort_order(keys)
    expected = np.argsort(keys, kind="stable")
    assert order.tolist() == expected.tolist()
    assert ordered.tolist() == keys[expected].tolist()


@pytest.mark.parametrize(
    ("sizes", "oldest"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([9], 1, id="one"),
        pytest.param([5, 5, 5], 3, id="three of a size"),
        pytest.param([5, 5, 5, 5], 0, id="four of a size"),
        pytest.param([100, 98, 99, 97], 0, id="about one size"),
        pytest.param([20, 5, 5, 5], 4, id="a larger one stays"),
        pytest.param([20, 5, 5, 5, 5], 1, id="four under a larger one"),
        pytest.param([20, 20, 20, 5, 5, 5, 5], 0, id="two tiers at once"),
        pytest.param([5, 20], 0, id="a small one under a large one"),
    ],
)
def test_which_runs_are_compacted(sizes: list[int], oldest: int) -> None:
    assert oldest_to_compact(sizes, 4) == oldest


def test_the_published_formula_of_the_bytes_moved(tmp_path: Path) -> None:
    """N pages with 20 links of 100 bytes, of which a fourth are new, scaled down."""
    bucket_bits, bucket_keys, links, known = 3, 1250, 60_000, 10_000
    limits = DrumLimits(
        ram_bytes=2 * 109 * 500, bucket_bits=bucket_bits, bucket_bytes=9 * bucket_keys
    )
    aux = np.dtype("S100")
    drum = Drum(
        FailingFolder(tmp_path), DrumManifest(), files=Files.CENTRAL, aux=aux, limits=limits
    )
    dice = np.random.default_rng(1)
    pool = dice.integers(0, FULL, known, np.uint64)
    texts = np.full(100, b"x" * 100, aux)
    for some in np.array_split(pool, known // 100):
        drum.check_update(some, aux=texts)
    drum.adopt(drum.merge())
    begun, handed_on, merges = drum.moved.total, 0, 0
    for _ in range(links // 100):
        new = dice.integers(0, FULL, 25, np.uint64)
        drum.check_update(np.concatenate([dice.choice(pool, 75), new]), aux=texts)
        if drum.is_full:
            merged = drum.merge()
            handed_on += sum(int(one.unique.sum()) for one in merged.results()) * 100
            drum.adopt(merged)
            merges += 1
    done = links - drum.waiting
    assert merges > 3
    costs = SeenCosts(
        pages=done / 20,
        links_of_page=20,
        share_new=0.25,
        known_urls=known,
        url_bytes=100,
        ram_bytes=1e9,  # more than the disk needs: the formula of its second case
        disk_bytes=bucket_keys * 2**bucket_bits * 108,
        buffer_bytes=1,
    )
    moved = (drum.moved.total - begun + handed_on) / (done * 100)
    assert moved == pytest.approx(costs.drum, rel=0.05)


@pytest.mark.parametrize("fan_out", [2, 4, 8])
def test_the_formula_of_the_bytes_moved_in_tiers(tmp_path: Path, fan_out: int) -> None:
    limits = DrumLimits(fan_out=fan_out)
    drum = Drum(FailingFolder(tmp_path), DrumManifest(), limits=limits)
    dice = np.random.default_rng(1)
    known = dice.integers(0, FULL, 4000, np.uint64)
    drum.update(known)
    drum.adopt(drum.merge())
    count = fan_out**3
    for _ in range(count - 1):
        drum.check_update(np.concatenate([known, dice.integers(0, FULL, 4000, np.uint64)]))
        drum.adopt(drum.merge())
    expected = tiered_bytes(batches=count, batch_checks=8000, share_new=0.5, fan_out=fan_out)
    assert drum.moved.total == pytest.approx(expected, rel=0.05)
