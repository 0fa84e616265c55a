"""Counts the words and lines of a text in one pass, compiled.

Rule: time is linear in the text. What the counts are for is in text_quality.py.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from crawler.model.compiled import compiled_part, compiled_short, is_compiled, u64

# What is counted, by its place in the numbers.
WORDS: Final = 0
LETTERS: Final = 1  # of words: characters
DIGITS: Final = 2
LINES: Final = 3
BULLETS: Final = 4  # lines that begin with one
ENDS_IN_ELLIPSIS: Final = 5  # lines
ENDS_TERMINAL: Final = 6  # lines that end with a sign that ends a sentence
SHORT: Final = 7  # lines
REPEATED: Final = 8  # lines that occurred before
REPEATED_LETTERS: Final = 9  # characters of these
SAMPLED: Final = 10  # words of the sample
ALPHABETIC: Final = 11  # of these, with a letter
STOP_WORDS: Final = 12  # of these
NEWLINES: Final = 13
HASHES: Final = 14
ELLIPSES: Final = 15  # of three dots
BRACES: Final = 16
FIGURES: Final = 17

SAMPLE_BYTES: Final = 4096
"""So much of a text says of which kind its words are: some 650. To look at each word takes 3 ns a
byte, everything else 0.3."""
SHORT_CHARS: Final = 30
"""A line of no more is a short one (FineWeb's `short_line_length`)."""

# Kinds of bytes.
_LETTER: Final = 1  # of ASCII
_DIGIT: Final = 2
_SPACE: Final = 4
_LONG: Final = 8  # of a letter of more than one byte
_KINDS: Final = np.array(
    [
        (chr(code).isalpha() and code < 128) * _LETTER
        | (48 <= code < 58) * _DIGIT
        | (code <= 32) * _SPACE
        | (code >= 128) * _LONG
        for code in range(256)
    ],
    np.int64,
)
# An odd number without a pattern: the golden ratio's.
_MIX: Final = 0x9E3779B97F4A7C15
_ALL: Final = 0xFFFFFFFFFFFFFFFF


def _packed(word: str) -> int:
    return int.from_bytes(word.encode(), "big")


STOP_WORD_LIST: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Gopher's (Rae et al. 2021, A1)."""
_STOP_WORDS: Final = np.array([_packed(word) for word in STOP_WORD_LIST], np.int64)
_SMALL: Final = 0x2020202020  # makes small letters of five of ASCII
_LONGEST: Final = 5  # bytes, with a sign behind it: longer words are none of these
_FULL_STOP, _DASH, _HASH_SIGN, _BRACE = map(ord, ".-#{")
_TEN: Final = 10
_BULLET, _DOTS = 0x2022, 0x2026
BEFORE: Final = 8
"""So many bytes, spaces, stand before a text, and behind it up to a whole eight and one more."""
_TENS: Final = 0x0A0A0A0A0A0A0A0A
_BLOCK: Final = 64  # eights: most blocks have only letters that are parts of words
_LOWEST: Final = 0x0101010101010101  # the lowest bit of each byte
_LOW: Final = 0x7F7F7F7F7F7F7F7F  # all but the highest
_HALF: Final = 0xFFFFFFFF
_EVEN: Final = 0x00FF00FF00FF00FF  # each second byte
_LOWEST_OF_PAIRS: Final = 0x0001000100010001
_HIGHEST: Final = 0x8080808080808080


@compiled_part
def _width(code):
    return 1 if code < 0xC0 else 2 if code < 0xE0 else 3 if code < 0xF0 else 4


@compiled_part
def _letter(text, at, size):
    """Return the code point of more than one byte at *at*, and how many bytes it has."""
    code = int(text[at])
    width = min(_width(code), size - at)
    if width == 1:
        return code, 1
    code &= 31 if width == 2 else 15 if width == 3 else 7
    for index in range(1, width):
        code = code << 6 | int(text[at + index]) & 63
    return code, width


# First and one after the last: signs, punctuation, arrows, emoji, private use. U+AA, B5 and BA are
# letters.
_SIGNS: Final = np.array(
    [
        *((0x80, 0xAA), (0xAB, 0xB5), (0xB6, 0xBA), (0xBB, 0xC0), (0x2000, 0x2C00)),
        *((0x2E00, 0x2E80), (0x3000, 0x3005), (0x3008, 0x3021), (0xE000, 0xF900)),
        *((0xFE10, 0xFE70), (0xFF00, 0xFF10), (0x1F000, 0x20000)),
    ],
    np.int64,
)
# A sentence or a quotation ends so.
_TERMINALS: Final = np.array(
    [
        ord(sign)
        for sign in ".!?\"'\u2019\u201d\u2026\xbb\u3002\uff0e\uff01"
        "\uff1f\u300d\u061f\u06d4\u0964\u0965\u104b\u17d4\u1362\u0589"
    ],
    np.int64,
)


@compiled_part
def _is_sign(code):
    """Whether a code point beyond ASCII is no letter."""
    found = False
    for index in range(len(_SIGNS)):
        found |= _SIGNS[index, 0] <= code < _SIGNS[index, 1]
    return found


@compiled_part
def _is_terminal(code):
    found = False
    for index in range(len(_TERMINALS)):
        found |= _TERMINALS[index] == code
    return found


@compiled_part
def _characters(text, begin, end):
    letters = 0
    for at in range(begin, end):
        code = int(text[at])
        letters += (code < 0x80) | (code >= 0xC0)
    return letters


@compiled_part
def _hash_line(eights, begin, end):
    """Return a hash of the bytes from *begin* to *end*: NH (Black et al. 1999, of UMAC), which the
    processor's vectors compute. *eights*: the same memory, eight bytes a number, and one more."""
    first, shift, left = begin >> 3, u64((begin & 7) << 3), end - begin
    hashed = u64(0)
    for index in range(left >> 3):
        hashed += _product(_eight(eights, first + index, shift), index)
    rest = (u64(1) << u64((left & 7) << 3)) - u64(1)
    hashed += _product(_eight(eights, first + (left >> 3), shift) & rest, left >> 3)
    hashed = (hashed ^ u64(left)) * u64(_MIX) & u64(_ALL)
    return hashed ^ hashed >> u64(29)


@compiled_part
def _eight(eights, at, shift):
    """Return the eight bytes that begin *shift* bits behind the beginning of a number."""
    above = u64(eights[at + 1]) << u64(1) << (u64(63) - shift)
    return u64(eights[at]) >> shift | above & u64(_ALL)


@compiled_part
def _product(eight, index):
    key = u64(index + 1) * u64(_MIX) & u64(_ALL)
    low = (eight & u64(_HALF)) + key & u64(_HALF)
    return low * ((eight >> u64(32)) + (key >> u64(32)) & u64(_HALF))


@compiled_part
def _end_line(text, eights, begin, end, seen, figures):
    """Count a line."""
    figures[LINES] += 1
    figures[SHORT] += end - begin <= 4 * SHORT_CHARS and (
        _characters(text, begin, end) <= SHORT_CHARS
    )
    at = end - 1
    while at > begin and 0x80 <= text[at] < 0xC0:
        at -= 1
    last, _ = _letter(text, at, end)
    figures[ENDS_TERMINAL] += _is_terminal(last)
    has_dots = last == _FULL_STOP and end - begin > 2 and text[end - 2] == text[end - 3] == last
    figures[ENDS_IN_ELLIPSIS] += last == _DOTS or has_dots
    first, _ = _letter(text, begin, end)
    figures[BULLETS] += first in (_DASH, _BULLET)
    hashed = _hash_line(eights, begin, end) | u64(1)  # 0 is an empty place
    last_place = u64(len(seen) - 1)
    place = hashed >> u64(7) & last_place
    while seen[place] != u64(0):
        if seen[place] == hashed:
            figures[REPEATED] += 1
            figures[REPEATED_LETTERS] += _characters(text, begin, end)
            return
        place = (place + u64(1)) & last_place
    seen[place] = hashed


@compiled_short
def count_words(text, eights, size, figures):
    """Count words, letters, digits and signs of *text*, which is BEFORE to *size*, into *figures*.
    *eights*: the same memory, eight bytes a number. A word is what stands between spaces, or a
    letter that is alone."""
    at, last = BEFORE >> 3, size >> 3
    while at < last:
        end = min(at + _BLOCK, last)
        if not _count_block(eights, at, end, figures):
            _count_bytes(text, at << 3, end << 3, figures)
        at = end
    _count_bytes(text, last << 3, size, figures)


@compiled_part
def _count_block(eights, first, end, figures):
    """Count the same in the numbers *first* to *end* of *eights*. The loop has no branch, so LLVM
    makes vector instructions of it: 0.3 ns a byte, where byte by byte takes 3. Return False, and
    count nothing, if a letter is alone, or two dots stand together."""
    words = letters = digits = newlines = hashes = braces = u64(0)  # up to 255 in each byte
    others = _are_alone(u64(eights[first - 1]))
    for at in range(first, end):
        eight, before = u64(eights[at]), u64(eights[at - 1])
        low, are_ascii = eight & u64(_LOW), ~eight & u64(_HIGHEST)
        are_letters = _over(low, 32) & are_ascii | _over(low, 63) & eight
        letters += are_letters >> u64(7)
        after_space = _are_spaces(eight) << u64(8) | _are_spaces(before) >> u64(56)
        words += (are_letters & after_space) >> u64(7)
        digits += (_over(low, 47) & ~_over(low, 57) & are_ascii) >> u64(7)
        newlines += _equal(low, are_ascii, _TEN) >> u64(7)
        hashes += _equal(low, are_ascii, _HASH_SIGN) >> u64(7)
        braces += _equal(low, are_ascii, _BRACE) >> u64(7)
        dots, last = _are_dots(eight), _are_dots(before)
        others |= dots & (dots << u64(8) | last >> u64(56)) | _are_alone(eight)
    if others != u64(0):
        return False
    figures[WORDS] += _sum(words)
    figures[LETTERS] += _sum(letters)
    figures[DIGITS] += _sum(digits)
    figures[NEWLINES] += _sum(newlines)
    figures[HASHES] += _sum(hashes)
    figures[BRACES] += _sum(braces)
    return True


# These take eight bytes as one number and return a number in which those bytes that are meant have
# their highest bit. *low*: without the highest bits; *among*: the bytes that may be meant.


@compiled_part
def _over(low, code):
    return low + u64(_LOWEST) * u64(127 - code) & u64(_HIGHEST)


@compiled_part
def _equal(low, among, code):
    return among & ~((low ^ u64(_LOWEST) * u64(code)) + u64(_LOW))


@compiled_part
def _are_spaces(eight):
    return ~(_over(eight & u64(_LOW), 32) | eight) & u64(_HIGHEST)


@compiled_part
def _are_dots(eight):
    return _equal(eight & u64(_LOW), ~eight & u64(_HIGHEST), _FULL_STOP)


@compiled_part
def _are_alone(eight):
    """Return the bytes E0, E1, E3 to E9: all letters that are alone begin with one of these."""
    low = eight & u64(_LOW)
    found = _over(low, 0x5F) & ~_over(low, 0x69) & eight
    return found & ~_equal(low, found, 0x62)


@compiled_part
def _sum(counts):
    """Return the sum of eight bytes."""
    pairs = (counts & u64(_EVEN)) + (counts >> u64(8) & u64(_EVEN))
    return (pairs * u64(_LOWEST_OF_PAIRS) & u64(_ALL)) >> u64(48)


@compiled_part
def _count_bytes(text, begin, end, figures):
    """Count the same from *begin* to *end*, byte by byte, and where three dots end."""
    words = letters = digits = newlines = hashes = braces = ellipses = 0
    for at in range(begin, end):
        code, one, before = int(text[at]), int(text[at + 1]), int(text[at - 1])
        third, second = int(text[at - 3]), int(text[at - 2])
        is_letter = (code > 32) & ((code < 0x80) | (code >= 0xC0))
        follows = (before <= 32) | _begins_alone(third, second)
        words += is_letter & (_begins_alone(code, one) | follows)
        letters += is_letter
        digits += (code >= 48) & (code < 58)
        newlines += code == _TEN
        hashes += code == _HASH_SIGN
        braces += code == _BRACE
        are_dots = (code == _FULL_STOP) & (before == _FULL_STOP) & (second == _FULL_STOP)
        ellipses += are_dots & (third != _FULL_STOP)
    figures[WORDS] += words
    figures[LETTERS] += letters
    figures[DIGITS] += digits
    figures[NEWLINES] += newlines
    figures[HASHES] += hashes
    figures[BRACES] += braces
    figures[ELLIPSES] += ellipses


@compiled_part
def _begins_alone(code, one):
    """Whether the bytes *code* and *one* begin a letter that is alone: U+3040 to U+9FFF, and Thai
    to Khmer."""
    is_han = (code >= 0xE3) & (code < 0xEA) & ((code > 0xE3) | (one > 0x80))
    is_thai = (code == 0xE0) & (one >= 0xB8) & (one < 0xBC)
    is_burmese = (code == 0xE1) & (one >= 0x80) & (one < 0x83)
    return is_han | is_thai | is_burmese | ((code == 0xE1) & (one >= 0x9E) & (one < 0xA0))


@compiled_short
def count_lines(text, eights, size, seen, figures):
    """Count the lines of *text*, as `count_words` takes it, and of which kind the words of its
    first SAMPLE_BYTES are. *seen*: zeros, a power of two and more than the lines."""
    _sample_words(text, min(size, BEFORE + SAMPLE_BYTES), figures)
    line, at = BEFORE, BEFORE
    while at <= size:
        if at & 7 == 0 and at + 8 <= size:
            eight = u64(eights[at >> 3]) ^ u64(_TENS)
            if not (eight - u64(_LOWEST)) & ~eight & u64(_HIGHEST):
                at += 8
                continue
        if at == size or text[at] == _TEN:
            begin, end = line, at
            while begin < end and text[begin] <= 32:
                begin += 1
            while end > begin and text[end - 1] <= 32:
                end -= 1
            if begin < end:
                _end_line(text, eights, begin, end, seen, figures)
            line = at + 1
        at += 1


@compiled_part
def _sample_words(text, size, figures):
    """Count of which kind the words of *text* are, which is BEFORE to *size*."""
    at = BEFORE
    while at < size:
        if text[at] <= 32:
            at += 1
            continue
        begin, kinds, packed = at, 0, 0
        while at < size:
            kind = _KINDS[text[at]]
            if kind & (_SPACE | _LONG):
                break
            kinds |= kind
            packed = packed << 8 | int(text[at])
            at += 1
        is_ascii = at == size or _KINDS[text[at]] & _LONG == 0
        while at < size and _KINDS[text[at]] & _SPACE == 0:
            width = 1
            if _KINDS[text[at]] & _LONG:
                point, width = _letter(text, at, size)
                if _begins_alone(int(text[at]), int(text[at + 1])):
                    if at == begin:
                        kinds |= _LETTER
                        at += width
                    break  # the word before it ends
                kinds |= 0 if _is_sign(point) else _LETTER
            kinds |= _KINDS[text[at]] & _LETTER
            at += width
        figures[SAMPLED] += 1
        figures[ALPHABETIC] += kinds & _LETTER
        length = at - begin
        if is_ascii and length <= _LONGEST:
            if _KINDS[text[at - 1]] & (_LETTER | _DIGIT) == 0:
                packed, length = packed >> 8, length - 1
            if _KINDS[text[begin]] & _LETTER and length < _LONGEST:
                packed |= _SMALL >> (8 * (_LONGEST - length))
                for index in range(len(_STOP_WORDS)):
                    figures[STOP_WORDS] += packed == _STOP_WORDS[index]


def readable(page: bytes) -> tuple[Any, Any]:
    """Return *page* as these functions take it: by bytes, and by eights of them."""
    memory = b"".join((bytes(BEFORE), page, bytes(16 - len(page) % 8)))
    if is_compiled:
        return np.frombuffer(memory, np.uint8), np.frombuffer(memory, "<u8")
    return memory, memoryview(memory).cast("Q")
