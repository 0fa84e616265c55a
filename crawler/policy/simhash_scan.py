"""The loops of the fingerprints, compiled.

Rule: 32 and 64 bits are cut off where they would be by the processor, so that the interpreter finds
the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from crawler.model.compiled import compiled, is_compiled

ALONE: Final = 1 << 31
"""Marks a letter that is a word of its own."""
BLOCK: Final = 256
"""Letters at once: what is found of them stays in the nearest cache. Divides `_PIECE`."""
_PIECE: Final = 1 << 16  # a word ends where a piece of the text ends: so it is stored for years
_LAST_OF_PLANE_0: Final = 0xFFFF
_LAST_OF_ASCII: Final = 0x7F
_LOW: Final = 0xFFFFFFFF
_ALL: Final = 0xFFFFFFFFFFFFFFFF

# An odd number with no pattern: the golden ratio's. A word is a polynomial in it, modulo 2^32: its
# first letter times the base, its second times the base squared...
_BASE: Final = 0x9E3779B1
_INVERSE: Final = pow(_BASE, -1, 1 << 32)
_POWERS: Final = np.array([pow(_BASE, at + 1, 1 << 32) for at in range(BLOCK)], np.uint32)
_INVERSES: Final = np.array([pow(_INVERSE, at, 1 << 32) for at in range(BLOCK)], np.uint32)
_BLOCK_POWER: Final = pow(_BASE, BLOCK, 1 << 32)
_BLOCK_INVERSE: Final = pow(_INVERSE, BLOCK, 1 << 32)
# Odd, without a pattern: the increments and multipliers of splitmix64 and wyhash.
_PLACE_0: Final = 0x9E3779B97F4A7C15
_PLACE_1: Final = 0xA0761D6478BD642F
_PLACE_2: Final = 0xE7037ED1A0B428DB
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB

_LANES: Final = 0x0101010101010101  # the lowest bit of each byte
_FULL: Final = 255  # so many ones fit into a byte

# With one signed operand numba would compute in floating point.
_u32: Any = np.uint32 if is_compiled else int
_u64: Any = np.uint64 if is_compiled else int


@compiled
def hash_words(codes, letters, block, hashes, inverses):
    """Write a number for each word of the text with these code points to *hashes*, and return how
    many words it has. *letters*: the letter of each code point of plane 0, 0 for none. Above are
    old scripts and mathematical letters, and Han; emoji between them are no letters. *block*: four
    rows of memory for BLOCK numbers and one. *hashes* and *inverses* have room for one more than
    the letters.

    The polynomial of the whole text is summed up. That of a word is the sum behind it less the sum
    before it, divided by the power at its begin: the base is odd, so it has an inverse. But for the
    sum itself each loop over a block is one that the compiler makes vector instructions of.
    """
    size, count, total, power, inverse = len(codes), 0, _u32(0), _u32(1), _u32(1)
    block[0, 0] = 0
    for first in range(0, size, BLOCK):
        length = min(BLOCK, size - first)
        highest = _u32(0)
        for at in range(length):
            code = _u32(codes[first + at])
            highest |= code
            lower = code | _u32(32)
            is_letter = (lower >= _u32(97)) & (lower <= _u32(122))
            is_letter |= (code >= _u32(48)) & (code <= _u32(57))
            block[0, at + 1] = lower if is_letter else _u32(0)
        if highest > _u32(_LAST_OF_ASCII):
            for at in range(length):
                code = int(codes[first + at])
                if code <= _LAST_OF_PLANE_0:
                    letter = int(letters[code])
                elif code < 0x1F000:
                    letter = code
                else:
                    letter = code | ALONE if 0x20000 <= code < 0x40000 else 0
                block[0, at + 1] = letter
        for at in range(length):
            before, letter = _u32(block[0, at]), _u32(block[0, at + 1])
            begins = (before == 0) | ((before | letter) & _u32(ALONE) != 0)
            block[1, at] = begins & (letter != 0)
            block[2, at] = _u32(letter * _u32(_POWERS[at]) & _LOW) * power & _LOW
            block[3, at] = _u32(_INVERSES[at]) * inverse & _LOW
        if first % _PIECE == 0:
            block[1, 0] = block[0, 1] != 0
        for at in range(length):
            hashes[count] = total
            inverses[count] = block[3, at]
            count += int(block[1, at])
            total = _u32(total + _u32(block[2, at]) & _LOW)
        block[0, 0] = block[0, length]
        power = _u32(power * _u32(_BLOCK_POWER) & _LOW)
        inverse = _u32(inverse * _u32(_BLOCK_INVERSE) & _LOW)
    hashes[count] = total
    for word in range(count):
        between = _u32(_u32(hashes[word + 1]) - _u32(hashes[word]) & _LOW)
        hashes[word] = between * _u32(inverses[word]) & _LOW
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
def group(shingles, seen, grouped):
    """Write *shingles* to *grouped*, those first of which there is surely no equal one, and return
    how many these are. *seen*: two rows of zeros, a power of two long; each shingle has a bit in
    them, which is set in the first if it was seen and in the second if it was seen again."""
    last_bit = _u64(64 * len(seen[0]) - 1)
    for at in range(len(shingles)):
        place = shingles[at] & last_bit
        word, bit = place >> _u64(6), _u64(1) << (place & _u64(63))
        seen[1, word] |= seen[0, word] & bit
        seen[0, word] |= bit
    front, back = 0, len(shingles) - 1
    for at in range(len(shingles)):
        shingle = shingles[at]
        place = shingle & last_bit
        is_again = int(seen[1, place >> _u64(6)] >> (place & _u64(63)) & _u64(1))
        grouped[front] = grouped[back] = shingle  # what is written too far is written again
        front += 1 - is_again
        back -= is_again
    return front


@compiled
def simhash(shingles, alike, ones):
    """Return the number whose bits are set that more than half of the weighted *shingles* have. Of
    equal ones the 1st, 2nd, 4th, 8th... count. Those from *alike* on are sorted, and moved; of
    those before no two are equal. *ones*: 64 zeros."""
    weight, nth = alike, 0
    for at in range(alike, len(shingles)):
        nth = nth + 1 if at > alike and shingles[at] == shingles[at - 1] else 1
        shingles[weight] = shingles[at]
        weight += int(nth & (nth - 1) == 0)
    for begin in range(0, weight, _FULL):
        end = min(begin + _FULL, weight)
        for shift in range(8):
            lanes = _u64(0)  # eight counters of a byte
            for at in range(begin, end):
                lanes += shingles[at] >> _u64(shift) & _u64(_LANES)
            for byte in range(8):
                ones[8 * byte + shift] += lanes >> _u64(8 * byte) & _u64(_FULL)
    found = _u64(0)
    for bit in range(64):
        if ones[bit] > weight // 2:
            found |= _u64(1) << _u64(bit)
    return found
