"""Fingerprints: the same for ever, equal to the oracle's, near for near texts, cheap for any."""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simhash import Simhash

from crawler.page import simhash_scan
from crawler.page.simhash import (
    MAX_CHARS,
    _letters,
    fingerprint,
    shingle_hashes,
    word_hashes,
)
from crawler.page.simhash_scan import group, simhash
from tests.harness.budget import examples
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.page.simhash_scan")

FOX = "The quick brown fox jumps over the lazy dog. " * 3 + "It was not amused; nor was the cat!"


def words(text: str) -> int:
    return len(word_hashes(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(FOX, 0x10F62F4905C8005E, id="English, with repeats"),
        pytest.param("один два три четыре пять", 0xF0283C9E519CC18A, id="Cyrillic"),
        pytest.param("日本語の文章です。", 0xC8117872600742BB, id="Japanese, without spaces"),
        pytest.param("𐌰𐌱 𠀀𠀁 b😀c d", 0x84A74C1725D7200A, id="above plane 0"),
    ],
)
def test_the_fingerprints_that_are_stored_stay_valid(text: str, value: int) -> None:
    assert fingerprint(text, 3) == value


def test_letters_are_the_same_under_every_python() -> None:
    table = _letters().astype("<u4").tobytes()
    assert hashlib.sha256(table).hexdigest()[:16] == "21df3bd7ef9b1766"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Straße ÉTÉ", "straße été", id="case does not count"),
        pytest.param("a, b - c!", "a b\n\tc", id="nor what stands between words"),
        pytest.param("don't", "don t", id="an apostrophe parts words"),
        pytest.param("漢字", "漢 字", id="each Han character is a word"),
        pytest.param("กข", "ก ข", id="and each Thai one"),
        pytest.param("b漢b", "b 漢 b", id="beside Latin ones too"),
        pytest.param("a😀b", "a b", id="emoji are no letters"),
        pytest.param("a\ud800b", "a b", id="half a surrogate is none"),
    ],
)
def test_words_that_are_the_same(one: str, other: str) -> None:
    assert word_hashes(one).tolist() == word_hashes(other).tolist()


def test_words_that_differ() -> None:
    different = "a b ab ba aa aaa 1 11 10 01 é e naïve naive 漢 字 𠀀 𠀁 don dont"
    assert len(set(word_hashes(different).tolist())) == words(different) == 20


@pytest.mark.parametrize("text", ["", " ", "?!... --- 😀", "one two"])
def test_too_little_text_has_no_fingerprint(text: str) -> None:
    assert fingerprint(text, 3) is None
    assert fingerprint(text, 0) is None


def test_a_fingerprint_needs_as_many_words_as_are_asked_for() -> None:
    assert fingerprint("word " * 49) is None
    assert fingerprint("word " * 50) is not None


def hashed(packed: bytes) -> int:
    """The package tries b"test" first."""
    return 0 if packed == b"test" else int(packed)


def oracle(text: str) -> int:
    """The package `simhash`, given our features, weights and hashes."""
    often = Counter(shingle_hashes(word_hashes(text)).tolist())
    features = [(str(feature), times.bit_length()) for feature, times in often.items()]
    value: int = Simhash(features, hashfunc=hashed).value
    return value


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["a", "b", "Über", "漢", "x1", "😀"]), min_size=9, max_size=300))
def test_the_simhash_package_agrees_on_repetitive_texts(parts: list[str]) -> None:
    text = " ".join(parts)
    if words(text) >= 3:
        assert fingerprint(text, 3) == oracle(text)


def prose(dice: random.Random, count: int) -> list[str]:
    """Words as often as in natural language (Zipf)."""
    return dice.choices([f"w{n}" for n in range(5000)], [1 / (n + 1) for n in range(5000)], k=count)


@pytest.mark.parametrize("count", [50, 255, 257, 258, 3000, 17_000])
def test_the_simhash_package_agrees_on_prose(count: int) -> None:
    text = " ".join(prose(random.Random(count), count))
    assert fingerprint(text) == oracle(text)


def test_the_simhash_package_agrees_on_real_text() -> None:
    text = (
        str(np.__doc__) + str(random.__doc__) + str(pytest.__doc__) + str(np.linalg.lstsq.__doc__)
    )
    assert fingerprint(text) == oracle(text)


def simhash_of(hashes: list[int]) -> int:
    ordered = np.array(sorted(hashes), np.uint64)
    return int(simhash(ordered, 0, np.zeros(64, np.int64)))


def test_a_tie_leaves_its_bit_unset() -> None:
    assert simhash_of([0b0110, 0b0011]) == 0b0010


def test_of_equal_hashes_the_1st_2nd_and_4th_count() -> None:
    assert simhash_of([1, 1, 1, 2, 2]) == 0, "two against two"
    assert simhash_of([1, 1, 1, 1, 2, 2]) == 1, "three against two"


@pytest.mark.parametrize("bits", [16, 64], ids=["hashes made to have one place", "no two"])
def test_shingles_that_are_equal_stay_together(bits: int) -> None:
    """However many have the same place in the memory of what was seen, those that are set aside are
    none that occur again."""
    dice = random.Random(bits)
    shingles = np.array([dice.getrandbits(bits) << 64 - bits for _ in range(1000)] * 2, np.uint64)
    grouped = np.empty_like(shingles)
    alike = group(shingles, np.zeros((2, 512), np.uint64), grouped)
    assert sorted(grouped.tolist()) == sorted(shingles.tolist())
    assert alike == 0, "each occurs twice"
    shingles = shingles[:1000]
    grouped = np.empty_like(shingles)
    alike = group(shingles, np.zeros((2, 512), np.uint64), grouped)
    often = Counter(shingles.tolist())
    assert all(often[each] == 1 for each in grouped[:alike].tolist())
    assert alike > 900 if bits == 64 else alike == 0


@settings(max_examples=examples(100))
@given(st.text(alphabet="ab \u6f22\xc9\U0001f600\U00020000", max_size=600))
def test_the_interpreter_finds_the_same(text: str) -> None:
    assert texts_read(INTERPRETED, text) == texts_read(simhash_scan, text)


def texts_read(module: ModuleType, text: str) -> tuple[list[int], list[int], int | None]:
    """Return what the loops of *module* find: hashes of words and shingles, and the fingerprint."""
    with patch.dict(sys.modules, {simhash_scan.__name__: module}):
        found = word_hashes(text)
        return found.tolist(), shingle_hashes(found).tolist(), fingerprint(text, 3)


def test_a_short_piece_may_end_anywhere() -> None:
    """Texts are worked on in pieces of 65,536 characters: what is beyond counts as well."""
    begin = "x" * 65_000 + " "
    assert words(begin + "y " * 1000) == 1001
    assert words("漢" * 70_000) == 70_000
    assert words("x" * 70_000) == 2
    assert words("x" + " " * 200_000 + "y" * 70_000) == 3


def edited(dice: random.Random, text: list[str], share: float) -> list[str]:
    """*share* of the words replaced, each by one that is nowhere else."""
    places = dice.sample(range(len(text)), round(share * len(text)))
    return [f"new{at}" if at in places else word for at, word in enumerate(text)]


def test_near_texts_are_near_and_others_far() -> None:
    dice = random.Random(4)
    apart, edits = [], []
    for _ in range(40):
        text = prose(dice, 1000)
        one, other = fingerprint(" ".join(text)), fingerprint(" ".join(prose(dice, 1000)))
        near = fingerprint(" ".join(edited(dice, text, 0.002)))
        assert one is not None and other is not None and near is not None
        apart.append((one ^ other).bit_count())
        edits.append((one ^ near).bit_count())
    assert sum(bits <= 3 for bits in edits) >= 30
    assert min(apart) > 10


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        pytest.param("a" * 2_000_000, 8, id="2 MB of one word end with their pieces"),
        pytest.param("a " * 1_000_000, MAX_CHARS // 2, id="one word a million times"),
        pytest.param("漢" * 1_000_000, MAX_CHARS, id="a million words without spaces"),
        pytest.param("😀" * 1_000_000, 0, id="a million emoji"),
        pytest.param(" ".join(map(str, range(10**6))), 89_238, id="a million different words"),
    ],
)
def test_an_endless_text_is_fingerprinted_by_its_beginning(text: str, counted: int) -> None:
    assert words(text) == counted
    longer = fingerprint(text + " and more")
    assert longer == fingerprint(text[:MAX_CHARS])
