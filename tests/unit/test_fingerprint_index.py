"""The index of fingerprints: it finds what brute force finds, whatever was added and however often
it was opened, and makes its rows of the log alone."""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.duplicates import fingerprint_index
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.quarters import quarters
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.model.types import StoreFull, StoreUnavailable
from tests.harness.budget import examples

FULL = (1 << 64) - 1


class Pages:
    """Finished pages, logged as the frontier does it, and the index over them."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.added: list[int] = []
        self._folder = folder
        self.index = FingerprintIndex(self.store, folder)

    def log(self, simhash: int) -> None:
        number = len(self.added)
        log = keys.print_log(number)
        self.store.write(
            {
                log: (self.store.get(log) or b"") + keys.packed_print(simhash),
                keys.page_of_print(simhash, number): number.to_bytes(20, "big"),
            }
        )
        self.added.append(simhash)

    def add(self, simhash: int) -> None:
        self.log(simhash)
        self.index.add(simhash)

    def reopen(self) -> None:
        self.index.close()
        self.index = FingerprintIndex(self.store, self._folder)

    def check(self, simhash: int) -> None:
        """Compare the index with brute force."""
        near = {each: (each ^ simhash).bit_count() for each in self.added}
        for most in range(4):
            expected = sorted((bits, each) for each, bits in near.items() if bits <= most)
            assert self.index.near(simhash, most) == expected


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(tmp_path)
    yield made
    made.index.close()


def flipped(simhash: int, bits: Iterable[int]) -> int:
    for bit in bits:
        simhash ^= 1 << bit
    return simhash


@given(simhash=st.integers(0, FULL), bits=st.sets(st.integers(0, 63), max_size=3))
def test_near_fingerprints_have_a_quarter_in_common(simhash: int, bits: set[int]) -> None:
    other = quarters(flipped(simhash, bits))
    assert any(a == b for a, b in zip(quarters(simhash), other, strict=True))


# Far apart, close together, and all with one quarter or with two in common.
fingerprints = st.one_of(
    st.integers(0, FULL),
    st.lists(st.integers(0, 63), max_size=4).map(lambda bits: flipped(0x0F0F << 20, bits)),
    st.integers(0, 0xFFFF).map(lambda low: 0xABCD << 48 | low << 20),
    st.sampled_from([0, FULL, 1 << 63]),
)
steps = st.one_of(fingerprints, fingerprints, fingerprints, st.sampled_from(["reopen", "check"]))


@settings(max_examples=examples(50))
@given(steps=st.lists(steps, min_size=1, max_size=80), asked=st.lists(fingerprints, max_size=5))
def test_what_brute_force_finds_is_found(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str], asked: list[int]
) -> None:
    pages = Pages(tmp_path_factory.mktemp("near"))
    for step in [*steps, "check", "reopen", "check"]:
        if isinstance(step, int):
            pages.add(step)
        elif step == "reopen":
            pages.reopen()
        else:
            for one in [*asked, *pages.added]:
                pages.check(one)
    pages.index.close()


def test_each_of_many_near_pairs_is_found(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 random ones, and one to three bits from each tenth another; half from the log."""
    monkeypatch.setattr(fingerprint_index, "_LOADED", 50)
    dice = random.Random(20261122)
    for number in range(20_000):
        pages.log(dice.getrandbits(64))
        if number % 10 == 0:
            bits = dice.sample(range(64), dice.randint(1, 3))
            pages.log(flipped(pages.added[-1], bits))
    pages.reopen()
    for _ in range(20_000):
        pages.add(dice.getrandbits(64))
    everything = np.array(pages.added, np.uint64)
    for one in pages.added[::10]:
        apart = np.bitwise_count(everything ^ np.uint64(one))
        near = {int(each) for each in everything[apart <= 3]}
        assert {each for _, each in pages.index.near(one, 3)} == near


@pytest.mark.parametrize("is_new", [True, False], ids=["added", "from the log"])
def test_rows_with_a_quarter_in_common_are_searched_whole(pages: Pages, is_new: bool) -> None:
    """Texts can be made so that they have it. Their pages are found, and others cost nothing."""
    alike = [number << 16 | 0xBEEF for number in range(5_000)]
    for one in alike:
        if is_new:
            pages.add(one)
        else:
            pages.log(one)
    if not is_new:
        pages.reopen()
    for one in (alike[0], alike[-1], alike[77] ^ 1 << 63):
        pages.check(one)


def test_a_hundred_thousand_pages_of_one_text_are_one_fingerprint(pages: Pages) -> None:
    numbers = range(100_000)
    pages.store.write({keys.print_log(at): keys.packed_print(77) * 64 for at in numbers[::64]})
    pages.store.write({keys.page_of_print(77, at): at.to_bytes(20, "big") for at in numbers})
    pages.reopen()
    assert pages.index.file_bytes <= 4 * 8 * 8
    begun = time.process_time()
    for _ in range(100):
        assert pages.index.near(76, 3) == [(1, 77)]
        assert pages.index.pages(77, 8) == [at.to_bytes(20, "big") for at in range(8)]
    assert time.process_time() - begun < 1, "10 ms each; measured: 0.05"


def test_the_first_pages_of_a_fingerprint_are_those_leased_first(pages: Pages) -> None:
    for simhash in (1, 2, 1, 3, 1):
        pages.log(simhash)
    assert [int.from_bytes(digest) for digest in pages.index.pages(1, 2)] == [0, 2]
    assert pages.index.pages(0, 2) == pages.index.pages(FULL, 2) == []


def test_while_the_disk_is_full_fingerprints_are_kept_in_memory(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.pwrite, [5]

    def full(descriptor: int, content: bytes, offset: int) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:5], offset)  # a write may be cut short

    monkeypatch.setattr(os, "pwrite", full)
    for number in range(9):
        pages.add(number << 40)
    assert room[0] < 0
    for one in pages.added:
        pages.check(one)
    room[0] = 10_000
    pages.add(FULL)
    for one in pages.added:
        pages.check(one)


def test_any_other_error_of_the_disk_ends_the_crawl(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        pages.add(1)


def test_a_full_disk_at_the_start_is_named(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    pages.log(1)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFull, match="No space left on device"):
        FingerprintIndex(pages.store, tmp_path)


def test_the_rows_leave_no_file_behind(tmp_path: Path) -> None:
    index = FingerprintIndex(MemoryStore(), tmp_path)
    index.add(1)
    assert list(tmp_path.iterdir()) == []
    index.close()
