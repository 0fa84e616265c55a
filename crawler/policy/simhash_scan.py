"""The loops of the fingerprints, compiled.

Rule: 32 and 64 bits are cut off where they would be by the processor, so that the interpreter finds
the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from crawler.model.compiled import compiled, is_compiled

PIECE: Final = 1 << 16
"""A word ends where a piece of the text ends: what is stored for years was made so."""
_IN_PIECE: Final = PIECE - 1
ALONE: Final = 1 << 31
"""Marks a letter that is a word of its own."""
_LAST_OF_PLANE_0: Final = 0xFFFF
_LOW: Final = 0xFFFFFFFF
_ALL: Final = 0xFFFFFFFFFFFFFFFF

# An odd number with no pattern: the golden ratio's. A word is a polynomial in it, modulo 2^32.
BASE: Final = 0x9E3779B1
# Odd, without a pattern: the increments and multipliers of splitmix64 and wyhash.
_PLACE_0: Final = 0x9E3779B97F4A7C15
_PLACE_1: Final = 0xA0761D6478BD642F
_PLACE_2: Final = 0xE7037ED1A0B428DB
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB

_LANES: Final = 0x0101010101010101  # the lowest bit of each byte
_FULL: Final = 255  # so many ones fit into a byte

# With one signed operand numba would compute in floating point.
_u64: Any = np.uint64 if is_compiled else int


@compiled
def hash_words(codes, letters, powers, hashes):
    """Write a number for each word of the text with these code points, from hashes[1] on, and
    return how many words it has. *letters*: the letter of each code point of plane 0, 0 for none.
    Above are old scripts and mathematical letters, and Han; emoji between them are no letters.
    *powers*: of the base, from the first on.

    Where a word begins is computed, not branched at: a processor guesses wrong at each word.
    """
    count, hashed, place, inside = 0, 0, 0, 0
    for at in range(len(codes)):
        code = int(codes[at])
        if code <= _LAST_OF_PLANE_0:
            letter = int(letters[code])
        elif code < 0x1F000:
            letter = code
        else:
            letter = code | ALONE if 0x20000 <= code < 0x40000 else 0
        is_letter = int(letter != 0)
        is_alone = letter >> 31
        begins = is_letter & (1 - inside | is_alone | int(at & _IN_PIECE == 0))
        count += begins
        goes_on = begins - 1  # as a mask
        place = place + 1 & goes_on & _IN_PIECE
        hashed = (hashed & goes_on) + letter * int(powers[place]) & _LOW
        hashes[count] = hashed
        inside = is_letter & (1 - is_alone)
    return count


@compiled
def hash_shingles(words, shingles):
    """Write a hash of each three words in a row, well mixed (splitmix64's finaliser)."""
    for at in range(len(shingles)):
        mixed = _u64(words[at]) * _u64(_PLACE_0) + _u64(words[at + 1]) * _u64(_PLACE_1)
        mixed = (mixed + _u64(words[at + 2]) * _u64(_PLACE_2)) & _u64(_ALL)
        mixed = (mixed ^ mixed >> _u64(30)) * _u64(_MIX_1) & _u64(_ALL)
        mixed = (mixed ^ mixed >> _u64(27)) * _u64(_MIX_2) & _u64(_ALL)
        shingles[at] = mixed ^ mixed >> _u64(31)


@compiled
def simhash(shingles, lanes, ones):
    """Return the number whose bits are set that more than half of the weighted *shingles*, which
    are sorted, have. Of equal ones the 1st, 2nd, 4th, 8th... count. *lanes*: eight
    zeros, each for eight counters of a byte; *ones*, of 64 zeros, takes them before they are full.
    """
    weight, nth, filled = 0, 0, 0
    for at in range(len(shingles)):
        nth = nth + 1 if at and shingles[at] == shingles[at - 1] else 1
        if nth & (nth - 1) == 0:
            for shift in range(8):
                lanes[shift] += shingles[at] >> _u64(shift) & _u64(_LANES)
            weight += 1
            filled += 1
        if filled == _FULL or at == len(shingles) - 1:
            for shift in range(8):
                for byte in range(8):
                    ones[8 * byte + shift] += lanes[shift] >> _u64(8 * byte) & _u64(_FULL)
                lanes[shift] = 0
            filled = 0
    found = _u64(0)
    for bit in range(64):
        if ones[bit] > weight // 2:
            found |= _u64(1) << _u64(bit)
    return found
