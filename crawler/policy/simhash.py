"""Fingerprints: 64 bits of which few differ where two texts differ little (Charikar's SimHash).

Rule: a fingerprint is stored and compared for years, so it is a function of the text alone:
integers only, no byte order, no seed. Features are runs of three words, each once, with a weight of
1 + log2 of how often it occurs, rounded down; docs/decisions/0015 has the measurements.
"""

from __future__ import annotations

from functools import cache
from typing import Final
from unicodedata import ucd_3_2_0

import numpy as np
from numpy.typing import NDArray

# Words as numbers, the same on any machine and version of Python. What a letter is comes from
# Unicode 3.2, which Python keeps; what is younger counts as a letter, without cases. Han, kana,
# Thai and their like, written without spaces: each character is a word. A word is letters, digits
# and marks; case does not count.

Words = NDArray[np.uint32]
Codes = NDArray[np.uint32]

# Cost and memory are linear in the text; of a longer one only the beginning counts (4 ms).
MAX_CHARS: Final = 1 << 19
# A piece fits into the cache of the processor; a word ends with its piece.
_PIECE: Final = 1 << 16

_ALONE: Final = np.uint32(1 << 31)  # marks a character that is a word of its own
_ALONE_FROM: Final = (  # first and one after the last; plane 0
    *((0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800), (0x2E80, 0x3000)),  # Thai to Khmer
    *((0x3005, 0x3008), (0x3021, 0x302A), (0x3040, 0x3100), (0x31F0, 0x3200)),  # kana
    *((0x3400, 0x4DC0), (0x4E00, 0xA4D0), (0xF900, 0xFB00)),  # Han, Yi
)
# Above plane 0: old scripts and mathematical letters; Han. Emoji between them are no letters.
_PLANES: Final = ((0x10000, 0x1F000, np.uint32(0)), (0x20000, 0x40000, _ALONE))

# ASCII: the bit of lower case, and where letters and digits are.
_CASE, _A, _ALPHABET = np.uint8(0x20), np.uint8(ord("a")), np.uint8(26)
_ZERO, _DIGITS = np.uint8(ord("0")), np.uint8(10)

# An odd number with no pattern: the golden ratio's. A word is a polynomial in it, modulo 2^32.
_BASE: Final = 0x9E3779B1


def word_hashes(text: str) -> Words:
    """Return a number for each word of *text*, in order. Equal words have equal numbers; two others
    once in 2^32."""
    if len(text) <= _PIECE:
        return _hash_words(text)
    end = min(len(text), MAX_CHARS)
    return np.concatenate([_hash_words(text[at : at + _PIECE]) for at in range(0, end, _PIECE)])


def _hash_words(text: str) -> Words:
    """Return the hash of each word. After place *s* it is the sum of code x base^(i - s). Sums of
    all that is before a place give them all at once, each multiplied by base^-s so that its place
    does not count. Written for speed: 50 numpy calls of 1 us are half the price of a short page."""
    # The space makes every word begin after a separator.
    text = " " + text
    letters, starts = _read_ascii(text) if text.isascii() else _read(text)
    powers, inverses = _powers()
    sums = letters * powers[: len(letters)]
    np.add.accumulate(sums, out=sums)
    before = sums.take(starts)
    # Separators are 0 and add nothing: a word may end where the next one begins.
    hashes = np.empty_like(before)
    hashes[:-1] = before[1:]
    hashes[-1:] = sums[-1:]
    hashes -= before
    hashes *= inverses.take(starts)
    return hashes


def _read_ascii(text: str) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return what `_read` does, in letters of one byte: in half the time."""
    codes = np.frombuffer(text.encode(), np.uint8)
    letters = codes | _CASE  # of a digit this bit is set already
    is_word = (letters - _A) < _ALPHABET
    is_word |= (codes - _ZERO) < _DIGITS
    letters *= is_word
    begins: NDArray[np.intp] = (is_word[1:] > is_word[:-1]).nonzero()[0]
    return letters, begins


def _read(text: str) -> tuple[Codes, NDArray[np.intp]]:
    """Return the letters, 0 for other characters; and the place before the first of each word."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    highest = int(codes.max())
    letters = _fold(codes, highest)
    return letters, _starts(letters, highest)


def _starts(letters: Codes, highest: int) -> NDArray[np.intp]:
    """Return the places before the first character of each word."""
    is_letter = letters != 0
    begins = is_letter[1:] > is_letter[:-1]
    if highest >= _ALONE_FROM[0][0]:
        alone = letters >= _ALONE
        begins |= alone[1:]
        begins |= is_letter[1:] & alone[:-1]
    places: NDArray[np.intp] = begins.nonzero()[0]
    return places


def _fold(codes: Codes, highest: int) -> Codes:
    """Return 0 for no letter, else the code point without case, marked if it is a word alone."""
    letters: Codes = _letters().take(codes, mode="clip")
    if highest > 0xFFFF:
        letters[codes > 0xFFFF] = 0
        for first, end, mark in _PLANES:
            within = (codes >= first) & (codes < end)
            letters[within] = codes[within] | mark
    return letters


@cache
def _letters() -> Codes:
    """Return the letter of each code point of plane 0: 30 ms, once."""
    letters = np.zeros(0x10000, np.uint32)
    for code in range(0x10000):
        kind = ucd_3_2_0.category(chr(code))
        if kind[0] in "LMN":
            folded = chr(code).casefold()
            letters[code] = ord(folded) if len(folded) == 1 else code
        elif kind == "Cn" and 0x0200 <= code < 0xFDD0 and not 0x2000 <= code < 0x2C00:
            letters[code] = code  # of a younger script; the gap between has symbols
    for first, end in _ALONE_FROM:
        letters[first:end] |= np.where(letters[first:end] > 0, _ALONE, np.uint32(0))
    return letters


@cache
def _powers() -> tuple[Codes, Codes]:
    """Return the powers of the base and of its inverse, for each place in a piece."""
    factors = np.full((2, _PIECE + 1), [[_BASE], [pow(_BASE, -1, 1 << 32)]], np.uint32)
    factors[:, 0] = 1
    powers = np.multiply.accumulate(factors, axis=1, dtype=np.uint32)
    return powers[0], powers[1]


Hashes = NDArray[np.uint64]

WORDS: Final = 3  # of a feature

# Odd, without a pattern: the increments and multipliers of splitmix64 and wyhash.
_PLACES: Final = (
    *(np.uint64(0x9E3779B97F4A7C15), np.uint64(0xA0761D6478BD642F)),
    np.uint64(0xE7037ED1A0B428DB),
)
_MIX: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST: Final = np.uint64(31)

_LANES: Final = np.uint64(0x0101010101010101)  # the lowest bit of each byte
_SHIFTS: Final = np.arange(8, dtype=np.uint64)[:, None]
_FULL: Final = 255  # so many ones fit into a byte
_BLOCK: Final = 64 * _FULL  # hashes counted at a time: 1 MB


def fingerprint(text: str, min_words: int = 50) -> int | None:
    """Return 64 bits, unsigned, or None if *text* has fewer words, which would say little."""
    words = word_hashes(text)
    if len(words) < max(min_words, WORDS):
        return None
    return simhash_of(by_weight(shingle_hashes(words)))


def shingle_hashes(words: Words) -> Hashes:
    """Return a hash of each three words in a row, well mixed (splitmix64's finaliser)."""
    wide = words.astype(np.uint64)
    mixed = wide[:-2] * _PLACES[0]
    mixed += wide[1:-1] * _PLACES[1]
    mixed += wide[2:] * _PLACES[2]
    for shift, factor in _MIX:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> _LAST
    return mixed


def by_weight(hashes: Hashes) -> Hashes:
    """Return each hash as often as its weight: of all its occurrences the 1st, 2nd, 4th, 8th..."""
    ordered = hashes.copy()
    ordered.sort()
    # Most occur once: only for the others it is computed which occurrence they are.
    again = (ordered[1:] == ordered[:-1]).nonzero()[0]
    begins = np.ones(len(again), bool)
    np.not_equal(again[1:] - again[:-1], 1, out=begins[1:])
    nth = again - np.maximum.accumulate(np.where(begins, again, 0)) + 2
    surplus = again[nth & (nth - 1) != 0] + 1
    if not len(surplus):
        return ordered
    keep = np.ones(len(ordered), bool)
    keep[surplus] = False
    return ordered[keep]


def simhash_of(hashes: Hashes) -> int:
    """Return the number whose bits are set that more than half of *hashes* have."""
    ones = _ones(hashes[:_BLOCK])
    for at in range(_BLOCK, len(hashes), _BLOCK):
        ones += _ones(hashes[at : at + _BLOCK])
    more = np.packbits(ones > len(hashes) // 2, bitorder="little")
    return int.from_bytes(more.tobytes(), "little")


def _ones(hashes: Hashes) -> NDArray[np.int64]:
    """Count how many of *hashes* have each bit: a row for each byte, the lowest bit first.

    Eight counters in each 64-bit number, until one could overflow: 8 ns a hash. Measured beside it,
    for 3,500 hashes: this 29 us; matrix product of unpacked bits 65; histograms of bytes 89; sums
    of unpacked bits 164; counters of 2, 4 and 8 bits in turn 43.
    """
    blocks = -(-len(hashes) // _FULL)
    padded = np.zeros(blocks * _FULL, np.uint64)
    padded[: len(hashes)] = hashes
    lanes = padded >> _SHIFTS
    lanes &= _LANES
    counters = np.add.reduce(lanes.reshape(8, blocks, _FULL), axis=2)
    counts = counters.astype("<u8", copy=False).view(np.uint8).reshape(8, blocks, 8)
    by_byte: NDArray[np.int64] = np.add.reduce(counts, axis=1, dtype=np.int64).T
    return by_byte
