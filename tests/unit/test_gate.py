"""The gate never misses a key that was added, at any moment of a growth, and stays small."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from crawler.frontier.drum import Drum
from crawler.frontier.gate import BLOCK, FULL_BYTES, GROWTH, Gate, GatePiece
from crawler.frontier.run_files import DrumManifest, Keys, RunFolder
from tests.harness.budget import examples

FULL = (1 << 64) - 1


class Known:
    """Keys that were added, as a source for a growth."""

    def __init__(self, most: int) -> None:
        self._keys = np.empty(most, np.uint64)
        self._sorted = self._keys[:0]
        self.count = 0

    def add(self, keys: Keys) -> None:
        self._keys[self.count : self.count + len(keys)] = keys
        self.count += len(keys)

    @property
    def keys(self) -> Keys:
        return self._keys[: self.count]

    def keys_in(self, low: int, high: int) -> Iterator[Keys]:
        if len(self._sorted) < self.count:
            self._sorted = np.sort(self.keys)
        begin = self._sorted.searchsorted(np.uint64(low))
        end = self._sorted.searchsorted(np.uint64(high - 1), "right")
        return iter(np.array_split(self._sorted[begin:end], 3))


def random_keys(dice: np.random.Generator, count: int) -> Keys:
    return dice.integers(0, FULL, count, np.uint64, endpoint=True)


def test_the_bits_are_those_of_parquet() -> None:
    """The salts and the shift are written down there, the order of the blocks as well."""
    gate = Gate()
    key = 0x0123456789ABCDEF
    gate.add(np.array([key], np.uint64))
    salts = (
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    )
    words = gate._blocks.words
    block = (key >> 32) * len(words) >> 32
    low = key & 0xFFFFFFFF
    assert words[block].tolist() == [1 << ((low * salt % 2**32) >> 27) for salt in salts]
    assert np.count_nonzero(words) == 8


@pytest.mark.parametrize("size", [0, 1, 40, 256, 257, 40_000])
def test_batches_of_every_size(size: int) -> None:
    """Small and large ones are added differently; with equal keys, and others of one block."""
    keys = random_keys(np.random.default_rng(size), size)
    keys[1::3] = keys[::3][: len(keys[1::3])]
    keys[2::3] = keys[::3][: len(keys[2::3])] ^ np.uint64(5)
    one_by_one, at_once, tested = Gate(), Gate(), Gate()
    for key in keys:
        one_by_one.add(np.array([key]))
    at_once.add(keys)
    tested.test_and_add(keys)
    assert at_once.may_contain(keys).all()
    assert at_once._blocks.words.tobytes() == one_by_one._blocks.words.tobytes()
    assert tested._blocks.words.tobytes() == one_by_one._blocks.words.tobytes()


def test_what_was_there_before_is_returned() -> None:
    dice = np.random.default_rng(1)
    gate = Gate(100_000)
    old, new = random_keys(dice, 100), random_keys(dice, 100)
    assert not gate.test_and_add(old).any()
    assert gate.test_and_add(np.concatenate([new, old])).tolist() == [False] * 100 + [True] * 100
    assert len(gate) == 200


def test_a_full_gate_takes_one_new_key_in_a_hundred_for_known() -> None:
    dice = np.random.default_rng(1)
    gate = Gate(1_000_000)
    count = int(gate.memory_bytes / FULL_BYTES)
    gate.add(random_keys(dice, count))
    assert gate.next_piece() is None
    assert gate.may_contain(random_keys(dice, 1_000_000)).mean() < 0.0105
    gate.add(random_keys(dice, 10))
    assert gate.next_piece() is not None


def test_memory_over_a_growth() -> None:
    """From nothing to 1.6 million keys, with the growth done piece by piece between the pages."""
    dice = np.random.default_rng(1)
    gate, known = Gate(), Known(2_000_000)
    asked = random_keys(dice, 20_000)
    growths, most, wrong = 0, 0.0, []
    while known.count < 1_600_000:
        page = random_keys(dice, 20_000)
        gate.add(page)
        known.add(page)
        while (piece := gate.next_piece()) is not None:
            piece.build(known.keys_in)
            if known.count > 1_000_000:
                most = max(most, gate.memory_bytes / known.count)
                assert gate.memory_bytes / known.count > FULL_BYTES * 0.98
            gate.finish(piece)
            growths += piece.low == 0
            if piece.begin % 7 == 0:
                assert gate.may_contain(known.keys[-100_000:]).all()
        if known.count > 1_000_000:
            most = max(most, gate.memory_bytes / known.count)
            wrong.append(gate.may_contain(asked).mean())
    assert gate.may_contain(known.keys).all()
    assert FULL_BYTES * GROWTH * 0.99 < most <= 1.6
    assert np.mean(wrong) < 0.009
    assert growths > 12


def test_the_system_gets_back_the_memory_behind_the_sweep() -> None:
    """What `memory_bytes` leaves out is given back: it reads as zeros."""
    gate, known = Gate(1_000_000), Known(2_000_000)
    keys = random_keys(np.random.default_rng(1), 1_200_000)
    gate.add(keys)
    known.add(keys)
    old = gate._blocks
    for _ in range(32):
        piece = gate.next_piece()
        assert piece is not None
        piece.build(known.keys_in)
        gate.finish(piece)
    swept = piece.high * old.count >> 64
    pages = swept * BLOCK // 4096
    assert not old.words[: pages * 4096 // BLOCK].any()
    assert old.words[swept + 1 :].any(axis=1).all()
    assert gate.may_contain(keys).all()


@pytest.mark.parametrize("seed", range(examples(10)))
def test_no_key_is_missed_at_any_moment(seed: int) -> None:
    """Random pages, whose keys are added before, while and after a piece is built, which may
    fail. A key that is found by mistake in the old blocks is stored too, and must be found in
    the new ones."""
    dice, choose = np.random.default_rng(seed), random.Random(seed)
    gate, known = Gate(), Known(1_000_000)
    start = random_keys(dice, 80_000 + choose.randrange(20_000))
    gate.add(start)
    known.add(start)
    piece: GatePiece | None = None
    begun: Iterator[Keys] | None = None
    for _ in range(400):
        does = choose.random()
        if does < 0.5:
            page = random_keys(dice, choose.choice([1, 40, 300, 2000]))
            if choose.random() < 0.5:
                gate.add(page)
            else:
                gate.test_and_add(page)
            known.add(page)
        elif piece is None:
            piece = gate.next_piece()
            if piece is not None:
                begun = known.keys_in(piece.low, piece.high)  # those of this moment
        elif does < 0.6:
            gate.abandon(piece)
            piece = None
        else:
            assert begun is not None
            of_then = begun
            piece.build(lambda low, high, of_then=of_then: of_then)
            gate.finish(piece)
            piece = None
        assert gate.may_contain(choose_some(choose, known)).all()
    assert gate.may_contain(known.keys).all()


def choose_some(choose: random.Random, known: Known) -> Keys:
    """The newest, and some from the whole."""
    return np.concatenate([known.keys[-500:], known.keys[choose.randrange(97) :: 97]])


def test_it_grows_from_a_drum_in_a_thread(tmp_path: object) -> None:
    """With keys that are stored, that wait, and that are added while the thread builds."""
    dice = np.random.default_rng(1)
    drum = Drum(RunFolder(tmp_path), DrumManifest())  # type: ignore[arg-type]  # it is a path
    gate, pages, pieces = Gate(), [], 0
    thread, piece = None, None
    for number in range(2500):
        page = random_keys(dice, 80)
        pages.append(page)
        drum.check_update(page)
        gate.test_and_add(page)
        if number % 1000 == 999:
            drum.adopt(drum.merge())
        if thread is None:
            piece = gate.next_piece()
            if piece is not None:
                thread = threading.Thread(target=piece.build, args=(drum.keys_in,))
                thread.start()
        elif not thread.is_alive():
            assert piece is not None
            gate.finish(piece)
            thread, pieces = None, pieces + 1
        assert gate.may_contain(page).all()
        if number % 100 == 0:
            assert gate.may_contain(np.concatenate(pages)).all()
    if thread is not None and piece is not None:
        thread.join()
        gate.finish(piece)
    while (piece := gate.next_piece()) is not None:
        piece.build(drum.keys_in)
        gate.finish(piece)
    assert gate.may_contain(np.concatenate(pages)).all()
    assert pieces > 0
    assert len(gate) == pytest.approx(200_000, rel=0.03)
