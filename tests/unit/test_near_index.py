"""The index of near-duplicates: it finds what brute force finds, in every state it can be in."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.duplicates.index.manifest import IndexFolder, IndexLimits, Manifest
from crawler.duplicates.index.near_index import NearIndex
from crawler.duplicates.index.orders import (
    FOUR,
    TEN,
    Order,
    sorted_in,
)
from crawler.duplicates.index.search import narrow
from crawler.model.types import DataDirError, StoreFull
from tests.harness.budget import examples

# So small that every border is crossed by a test: batches of 4, pieces of 5, ten orders from 17.
TINY = IndexLimits(
    newest_pages=4,
    max_waiting_batches=2,
    max_runs_during_merge=2,
    merge_ratio=2,
    piece_fingerprints=5,
    ten_orders=16,
    max_stretch=8,
)
FULL = (1 << 64) - 1


class StoredDigests:
    """A callback that collects the digests that are on disk."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def __call__(self, digests: Iterable[bytes]) -> None:
        self.kept += digests


def opened(
    path: Path, limits: IndexLimits = TINY, stored: StoredDigests | None = None
) -> NearIndex:
    folder = IndexFolder(path)
    return NearIndex(folder, folder.load() or Manifest(), stored or StoredDigests(), limits)


def digest(number: int) -> bytes:
    return number.to_bytes(20, "little")


def flipped(fingerprint: int, bits: Iterable[int]) -> int:
    for bit in bits:
        fingerprint ^= 1 << bit
    return fingerprint


def brute_force(added: Iterable[int], fingerprint: int, most: int) -> list[tuple[int, int]]:
    near = {each: (each ^ fingerprint).bit_count() for each in added}
    return sorted((bits, each) for each, bits in near.items() if bits <= most)


def found(index: NearIndex, fingerprint: int, most: int = 3) -> list[tuple[int, int]]:
    near = index.near(fingerprint, most)
    assert [each.bits for each in near] == sorted(each.bits for each in near)
    return sorted((each.bits, each.fingerprint) for each in near)


@pytest.mark.parametrize("orders", [FOUR, TEN], ids=["four", "ten"])
def test_near_fingerprints_share_a_prefix_in_one_of_the_orders(orders: tuple[Order, ...]) -> None:
    dice = random.Random(1)
    for _ in range(500):
        one = dice.getrandbits(64)
        other = flipped(one, dice.sample(range(64), 3))
        begins = [(order.key(one) ^ order.key(other)) >> 64 - order.equal_bits for order in orders]
        assert 0 in begins
        for order in orders:
            keys = order.keys(np.array([one, other], np.uint64))
            assert keys.tolist() == [order.key(one), order.key(other)]
            assert order.prints(keys).tolist() == [one, other]


# Far apart, close together, and all with one block or with two blocks in common.
fingerprints = st.one_of(
    st.integers(0, FULL),
    st.lists(st.integers(0, 63), max_size=4).map(lambda bits: flipped(0x0F0F << 20, bits)),
    st.integers(0, 0xFFFF).map(lambda low: 0xABCD << 48 | low << 20),
    st.sampled_from([0, FULL, 1 << 63]),
)
steps = st.one_of(
    fingerprints, fingerprints, fingerprints, st.sampled_from(["flush", "reopen", "compare"])
)


@settings(max_examples=examples(50))
@given(steps=st.lists(steps, min_size=1, max_size=80), asked=st.lists(fingerprints, max_size=5))
def test_the_index_finds_what_brute_force_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str], asked: list[int]
) -> None:
    path = tmp_path_factory.mktemp("near")
    index, added = opened(path), list[int]()
    for step in [*steps, "flush", "compare", "reopen", "compare"]:
        if isinstance(step, int):
            index.add(step, digest(len(added)))
            added.append(step)
        elif step == "flush":
            index.flush()
        elif step == "reopen":
            index.close()
            index = opened(path)
        else:
            for one in {*added, *asked, *(flipped(each, [3, 40, 63]) for each in added[:5])}:
                for most in (0, 3):
                    assert found(index, one, most) == brute_force(added, one, most)
            for one in set(added):
                own = [digest(at) for at, each in enumerate(added) if each == one]
                assert index.pages(one, 3) == ([each[:12] for each in own[:3]], len(own))
                assert index.known(one, {*own, digest(1000)}) <= set(own)
    index.close()


@pytest.mark.parametrize("count", [40, 400])
def test_all_pairs_within_three_bits_are_found(tmp_path: Path, count: int) -> None:
    dice = random.Random(count)
    centres = [dice.getrandbits(64) for _ in range(count // 20)]
    pages = [
        flipped(dice.choice(centres), dice.sample(range(64), dice.randint(0, 4)))
        for _ in range(count)
    ]
    index = opened(tmp_path)
    for number, one in enumerate(pages):
        assert found(index, one) == brute_force(pages[:number], one, 3)
        index.add(one, digest(number))
    index.flush()
    for one in pages:
        assert found(index, one) == brute_force(pages, one, 3)
    index.close()


@pytest.mark.parametrize("orders", [FOUR, TEN], ids=["four", "ten"])
@pytest.mark.parametrize("shared", [1, 2, 3], ids=lambda shared: f"{shared} blocks alike")
def test_of_many_that_begin_alike_only_what_can_be_near_is_compared(
    orders: tuple[Order, ...], shared: int
) -> None:
    dice = random.Random(shared)
    for order in (orders[0], orders[-1]):
        fixed = sum(((1 << block.width) - 1) << block.shift for block in order.blocks[:shared])
        begin = dice.getrandbits(64) & fixed
        drawn = np.random.default_rng(shared).integers(0, FULL, 20_000, np.uint64, endpoint=True)
        prints = sorted_in(np.unique(drawn & np.uint64(FULL ^ fixed) | np.uint64(begin)), order)
        for one in prints[:: len(prints) // 20].tolist():
            asked = flipped(one, dice.sample(range(64), 3))
            left = narrow(prints, order, asked, 0, len(prints), 100)
            near = {each for each in prints.tolist() if (each ^ asked).bit_count() <= 3}
            alike = order.key(asked) >> 64 - order.equal_bits
            assert set(left.tolist()) >= {
                each for each in near if order.key(each) >> 64 - order.equal_bits == alike
            }
            assert len(left) <= max(100, 0.2 * len(prints))


def test_a_million_equal_pages_are_one_entry(tmp_path: Path) -> None:
    limits = IndexLimits(newest_pages=4096, piece_fingerprints=10_000)
    index = opened(tmp_path, limits)
    for number in range(100_000):
        index.add(7, digest(number))
    index.flush()
    index.add(7, digest(100_000))
    assert found(index, 6) == [(1, 7)]
    assert index.pages(7, 2) == ([digest(0)[:12], digest(1)[:12]], 100_001)
    assert index.known(7, {digest(5), digest(99_999), digest(200_000)}) == {
        digest(5),
        digest(99_999),
    }
    index.close()
    assert size(tmp_path) < 13 * 100_001 + 10_000, "12 bytes a page, and one fingerprint"


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("ten_orders", "bytes_a_page"),
    [pytest.param(10**6, 60, id="four orders"), pytest.param(1000, 100, id="ten orders")],
)
def test_bytes_a_page(tmp_path: Path, ten_orders: int, bytes_a_page: int) -> None:
    index = opened(tmp_path, IndexLimits(newest_pages=4096, ten_orders=ten_orders))
    prints = np.random.default_rng(1).integers(0, FULL, 50_000, np.uint64)
    for number, one in enumerate(prints.tolist()):
        index.add(one, digest(number))
    index.flush()
    assert size(tmp_path) / len(prints) < bytes_a_page
    assert found(index, flipped(int(prints[0]), [1, 20, 50])) == [(3, int(prints[0]))]
    index.close()


def test_digests_on_disk_are_reported(tmp_path: Path) -> None:
    stored = StoredDigests()
    index = opened(tmp_path, stored=stored)
    for number in range(10):
        index.add(number << 20, digest(number))
    index.flush()
    assert stored.kept == [digest(number) for number in range(10)]
    index.add(5, digest(10))
    index.close()
    assert stored.kept[-1] == digest(10)


class Gated(IndexFolder):
    """A disk that waits for an event, or refuses."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open = threading.Event()
        self.refusal: OSError | None = None

    def begin(self, name: str) -> Path:
        assert self.open.wait(20)
        if self.refusal is not None:
            raise self.refusal
        return super().begin(name)


def test_adding_waits_when_writing_falls_behind(tmp_path: Path) -> None:
    folder, room = Gated(tmp_path), threading.Event()
    index = NearIndex(folder, Manifest(), StoredDigests(), TINY)
    for number in range(4 * TINY.max_waiting_batches):
        index.add(number << 30, digest(number))
    assert not index.is_behind
    for number in range(4):
        index.add(number << 40, digest(100 + number))
    assert index.is_behind
    index.when_room(room.set)
    assert not room.is_set()
    assert (0, 3 << 40) in found(index, 3 << 40), "what waits is found as well"
    folder.open.set()
    assert room.wait(20)
    assert not index.is_behind
    index.close()


def test_a_full_disk_is_reported_and_blocks_no_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, room = Gated(tmp_path), threading.Event()
    folder.refusal = OSError(28, "No space left on device")
    index = NearIndex(folder, Manifest(), StoredDigests(), TINY)
    for number in range(20):
        index.add(number << 30, digest(number))
    index.when_room(room.set)
    folder.open.set()
    assert room.wait(20)
    with pytest.raises(StoreFull, match="No space left"):
        index.flush()
    with pytest.raises(StoreFull, match="No space left"):
        index.near(0, 3)
    index.close()


@pytest.mark.parametrize("most", [-1, 4])
def test_distances_beyond_the_exact_search_are_refused(tmp_path: Path, most: int) -> None:
    index = opened(tmp_path)
    with pytest.raises(ValueError, match="within 3 bits"):
        index.near(0, most)
    index.close()


def filled(path: Path, count: int = 40) -> list[int]:
    dice = random.Random(1)
    pages = [dice.getrandbits(64) for _ in range(count)]
    index = opened(path)
    for number, one in enumerate(pages):
        index.add(one, digest(number))
    index.close()
    return pages


def test_every_damage_is_noticed_and_named(tmp_path: Path) -> None:
    filled(tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in files:
        whole = file.read_bytes()
        middle = len(whole) // 2
        changed = bytes([whole[middle] ^ 1])
        for damaged in (None, b"", whole[:-1], whole[:middle] + changed + whole[middle + 1 :]):
            if damaged is None and file.name == "manifest.json":
                continue  # then there is no index, and it is made again
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(DataDirError, match=rf"{tmp_path}.*Delete the folder"):
                opened(tmp_path)
            file.write_bytes(whole)
    opened(tmp_path).close()


def test_memory_is_bounded_while_it_merges(tmp_path: Path) -> None:
    index = opened(
        tmp_path,
        IndexLimits(
            newest_pages=4096, piece_fingerprints=1024, merge_ratio=10**6, ten_orders=10**6
        ),
    )
    prints = np.random.default_rng(1).integers(0, FULL, 60_000, np.uint64).tolist()
    for number, one in enumerate(prints[:40_000]):
        index.add(one, digest(number))
    index.flush()
    tracemalloc.start()
    for number, one in enumerate(prints[40_000:45_000], 40_000):
        index.add(one, digest(number))
    index.flush()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    index.close()
    assert peak < 1_500_000, "the run that was written has 2 MB"


def test_a_search_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """Counted: fingerprints that are compared."""
    compared = {}
    for count in (5_000, 50_000):
        index = opened(tmp_path / str(count), IndexLimits(newest_pages=1000))
        prints = np.random.default_rng(1).integers(0, FULL, count, np.uint64).tolist()
        for number, one in enumerate(prints):
            index.add(one, digest(number))
        index.flush()
        view = index._view
        compared[count] = sum(
            len(part) for one in range(0, FULL, FULL // 50) for part in view._beside(one, 4096)
        )
        index.close()
    assert compared[50_000] < 3 * compared[5_000]
