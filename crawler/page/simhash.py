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
Hashes = NDArray[np.uint64]

# Cost and memory are linear in the text; of a longer one only the beginning counts (5 ms).
MAX_CHARS: Final = 1 << 19
WORDS: Final = 3  # of a feature

_ALONE: Final = np.uint32(1 << 31)  # marks a character that is a word of its own
_ALONE_FROM: Final = (  # first and one after the last; plane 0
    *((0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800), (0x2E80, 0x3000)),  # Thai to Khmer
    *((0x3005, 0x3008), (0x3021, 0x302A), (0x3040, 0x3100), (0x31F0, 0x3200)),  # kana
    *((0x3400, 0x4DC0), (0x4E00, 0xA4D0), (0xF900, 0xFB00)),  # Han, Yi
)


def fingerprint(text: str, min_words: int = 50) -> int | None:
    """Return 64 bits, unsigned, or None if *text* has fewer words, which would say little."""
    from crawler.page.simhash_scan import group, simhash  # noqa: PLC0415  # it imports numba: 0.4 s

    words = word_hashes(text)
    if len(words) < max(min_words, WORDS):
        return None
    shingles = shingle_hashes(words)
    # Only those that may be equal to another are sorted: all would take 78 us for 28,500 letters.
    seen = np.zeros((2, 1 << (len(shingles) // 4).bit_length()), np.uint64)
    grouped = np.empty_like(shingles)
    alike = group(shingles, seen, grouped)
    grouped[alike:].sort()
    return int(simhash(grouped, alike, np.zeros(64, np.int64)))


def word_hashes(text: str) -> Words:
    """Return a number for each word of *text*, in order. Equal words have equal numbers; two others
    once in 2^32."""
    from crawler.page.simhash_scan import BLOCK, hash_words  # noqa: PLC0415  # as above

    text = text[:MAX_CHARS]
    if text.isascii():
        codes = np.frombuffer(text.encode(), np.uint8)
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    hashes, inverses = np.empty((2, len(codes) + 1), np.uint32)
    block = np.empty((4, BLOCK + 1), np.uint32)
    return hashes[: hash_words(codes, _letters(), block, hashes, inverses)]


def shingle_hashes(words: Words) -> Hashes:
    """Return a hash of each three words in a row."""
    from crawler.page.simhash_scan import hash_shingles  # noqa: PLC0415  # as above

    hashes = np.empty(max(0, len(words) - WORDS + 1), np.uint64)
    hash_shingles(words, hashes)
    return hashes


@cache
def _letters() -> Words:
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
