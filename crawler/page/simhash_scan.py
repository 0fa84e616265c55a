"""The loops of the fingerprints, compiled.

Rule: 32 and 64 bits are cut off where they would be by the processor, so that the interpreter finds
the same.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from crawler.model.compiled import compiled, u32, u64

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
    size, count, total, power, inverse = len(codes), 0, u32(0), u32(1), u32(1)
    block[0, 0] = 0
    for first in range(0, size, BLOCK):
        length = min(BLOCK, size - first)
        highest = u32(0)
        for at in range(length):
            code = u32(codes[first + at])
            highest |= code
            lower = code | u32(32)
            is_letter = (lower >= u32(97)) & (lower <= u32(122))
            is_letter |= (code >= u32(48)) & (code <= u32(57))
            block[0, at + 1] = lower if is_letter else u32(0)
        if highest > u32(_LAST_OF_ASCII):
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
            before, letter = u32(block[0, at]), u32(block[0, at + 1])
            begins = (before == 0) | ((before | letter) & u32(ALONE) != 0)
            block[1, at] = begins & (letter != 0)
            block[2, at] = u32(letter * u32(_POWERS[at]) & _LOW) * power & _LOW
            block[3, at] = u32(_INVERSES[at]) * inverse & _LOW
        if first % _PIECE == 0:
            block[1, 0] = block[0, 1] != 0
        for at in range(length):
            hashes[count] = total
            inverses[count] = block[3, at]
            count += int(block[1, at])
            total = u32(total + u32(block[2, at]) & _LOW)
        block[0, 0] = block[0, length]
        power = u32(power * u32(_BLOCK_POWER) & _LOW)
        inverse = u32(inverse * u32(_BLOCK_INVERSE) & _LOW)
    hashes[count] = total
    for word in range(count):
        between = u32(u32(hashes[word + 1]) - u32(hashes[word]) & _LOW)
        hashes[word] = between * u32(inverses[word]) & _LOW
    return count


@compiled
def hash_shingles(words, shingles):
    """Write a hash of each three words in a row, well mixed (splitmix64's finaliser)."""
    for at in range(len(shingles)):
        mixed = u64(words[at]) * u64(_PLACE_0) + u64(words[at + 1]) * u64(_PLACE_1)
        mixed = (mixed + u64(words[at + 2]) * u64(_PLACE_2)) & u64(_ALL)
        mixed = (mixed ^ mixed >> u64(30)) * u64(_MIX_1) & u64(_ALL)
        mixed = (mixed ^ mixed >> u64(27)) * u64(_MIX_2) & u64(_ALL)
        shingles[at] = mixed ^ mixed >> u64(31)


@compiled
def group(shingles, seen, grouped):
    """Write *shingles* to *grouped*, those first of which there is surely no equal one, and return
    how many these are. *seen*: two rows of zeros, a power of two long; each shingle has a bit in
    them, which is set in the first if it was seen and in the second if it was seen again."""
    last_bit = u64(64 * len(seen[0]) - 1)
    for at in range(len(shingles)):
        place = shingles[at] & last_bit
        word, bit = place >> u64(6), u64(1) << (place & u64(63))
        seen[1, word] |= seen[0, word] & bit
        seen[0, word] |= bit
    front, back = 0, len(shingles) - 1
    for at in range(len(shingles)):
        shingle = shingles[at]
        place = shingle & last_bit
        is_again = int(seen[1, place >> u64(6)] >> (place & u64(63)) & u64(1))
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
            lanes = u64(0)  # eight counters of a byte
            for at in range(begin, end):
                lanes += shingles[at] >> u64(shift) & u64(_LANES)
            for byte in range(8):
                ones[8 * byte + shift] += lanes >> u64(8 * byte) & u64(_FULL)
    found = u64(0)
    for bit in range(64):
        if ones[bit] > weight // 2:
            found |= u64(1) << u64(bit)
    return found
