"""Scans a page once: a state machine after the tokenizer of WHATWG HTML (13.2.5), compiled.

Rule: time and memory are linear in the page, whatever it holds. Only bytes and integers here: what
tags and attributes mean is decided in html.py, but for what decides where text and tags begin and
end. The same source runs without numba, a thousand times slower.

`scan` writes two things. *rows* has the tags that say something: see LINK and the following. *out*
has the text, in UTF-8 with white space folded, and these bytes:

    1, 2        begin and end of a link that has a row
    8           begin of another one: to this page, or beyond the limit
    3, 4        begin and end of what the author marked as no content
    6, 7        begin and end of what the author marked as the content
    5           in place of 3 or 6: never ended
    11          end of a line of preformatted text
    16 to 31    begin of a line, 16 and its features: 1 heading, 2 list, 4 preformatted, 8 table

`choose` reduces that to the lines of content.
"""

from __future__ import annotations

import html
from html.entities import html5
from typing import Any, Final

import numpy as np

from crawler.model.compiled import compiled, compiled_part, compiled_short, is_compiled, u64

# Rows: what, and three numbers; bytes are counted from the beginning of the page.
LINK: Final = 1  # an <a> without rel: begin and end of its URL, whether it has references
IMAGE: Final = 2  # an <img> with src only: the same
# A tag in READ: number of its element, how many rows of attributes follow, and whether it declares
# nothing about the page, as in a template or a drawing.
TAG: Final = 3
ATTRIBUTE: Final = 4  # its number, begin and end of its value
TITLE: Final = 5  # begin and end of the text of a <title>
DATA: Final = 6  # begin and end of JSON for search engines
SHEET: Final = 7  # begin and end of the text of a <style> that may fetch something
STYLE: Final = 8  # begin and end of the style of any element that may
# Begin and end of the background attribute of any element, and 0; or of that of which a script
# makes one, and LATE, or LATE_SOURCE if it may be something else.
BACKGROUND: Final = 9

HEADLINE: Final = 10  # begin and end of the text of an <h1>, in *out*

LATE: Final = 1
LATE_SOURCE: Final = 2

# Bits of an element.
INLINE: Final = 1  # ends neither a line nor a word: H<sub>2</sub>O
RAW: Final = 2  # holds only text: up to its end tag nothing is a tag
FOREIGN: Final = 4  # within it XML's rules hold: a tag may close itself, and no element is RAW
NEVER_FOREIGN: Final = 8  # ends a drawing or formula that was not closed (13.2.6.5)
HIDES: Final = 16  # around the content, or not shown as text
CONTENT: Final = 32  # within it a header or footer is part of the content
HAS_END: Final = 64  # has an end tag, so that the effect of a role or `hidden` has an end
READ: Final = 128  # of its tags there are rows
PART: Final = 256  # content within CONTENT, else it hides
IN_SVG: Final = 512  # in a drawing, HTML's rules hold again within it ("integration points")
IN_MATH: Final = 1024
HEADING: Final = 2048
LIST: Final = 4096
SHOWN_RAW: Final = 8192  # RAW, and a reader sees it
TABLE: Final = 16384
CELL: Final = 32768
STRUCTURE: Final = 65536  # Markdown has a sign for it

_BY_BIT: Final[dict[int, str]] = {
    INLINE: "a abbr acronym b bdi bdo big blink cite code data del dfn em font i img input ins kbd"
    " label link mark math meta nobr picture q rb rp rt rtc ruby s samp script small source span"
    " strike strong sub sup svg time tt u var wbr",
    RAW: "iframe noembed noframes script style textarea title xmp plaintext",
    FOREIGN: "svg math",
    NEVER_FOREIGN: "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6"
    " head hr i img li listing menu meta nobr ol p pre ruby s small span strong strike sub sup"
    " table tt u ul var",
    HIDES: "aside footer header menu nav audio canvas datalist dialog math noscript object select"
    " svg template video",
    CONTENT: "article main",
    HAS_END: "div section span ul ol dl table form article details center fieldset figure"
    " blockquote main p",
    READ: "area frame iframe link meta img source video audio embed object input base html script"
    " track image use amp-img",
    PART: "header footer",
    IN_SVG: "foreignobject desc title",
    IN_MATH: "mi mo mn ms mtext annotation-xml",
    HEADING: "h1 h2 h3 h4 h5 h6",
    LIST: "ul ol dl",
    SHOWN_RAW: "xmp plaintext",
    TABLE: "table tr",
    CELL: "td th",
    STRUCTURE: "h1 h2 h3 h4 h5 h6 ul ol li pre listing code table blockquote",
}
ELEMENTS: Final = ("", *sorted({name for names in _BY_BIT.values() for name in names.split()}))
"""Names of elements, by number; 0 is any other."""
_BITS: Final = np.array(
    [
        sum(bit for bit, names in _BY_BIT.items() if name and name in names.split())
        for name in ELEMENTS
    ],
    np.int64,
)
# Attributes that scripts turn into `src` and `srcset` when a reader comes near: those of lazysizes,
# jQuery's Lazy Load, vanilla-lazyload, Unveil, Echo, Slick, Flickity, WP Rocket, Jetpack, Mirage of
# Cloudflare, mod_pagespeed, Slider Revolution, Avada, LiteSpeed, NitroPack, Breeze, Ezoic, Optimole
# and WP Fastest Cache.
_LATE: Final = (
    "data-src data-original data-lazy data-lazy-src data-src-retina data-hi-res-src data-echo"
    " data-cfsrc data-pagespeed-lazy-src data-flickity-lazyload data-flickity-lazyload-src"
    " data-lazyload data-orig-src data-original-src data-litespeed-src nitro-lazy-src data-breeze"
    " data-ezsrc data-opt-src data-wpfc-original-src data-img-src data-defer-src data-actualsrc"
    " data-srcset data-original-set data-lazy-srcset data-flickity-lazyload-srcset"
    " data-orig-srcset nitro-lazy-srcset data-brsrcset data-ezsrcset data-wpfc-original-srcset"
)
ATTRIBUTES: Final = tuple(
    # A list is 58 lines.
    "href hreflang rel src srcset poster data type content name property itemprop http-equiv lang"
    " xml:lang hidden role alt encoding color face size as xlink:href imagesrcset"
    f" {_LATE} data-poster".split()
)
"""Names of the attributes that are read, by number."""
_ROLES: Final = (
    "alert alertdialog banner complementary contentinfo dialog menu menubar navigation search"
    " toolbar"
)

_HASH: Final = (1 << 30) - 1


def _hash_of(name: str) -> int:
    found = 0
    for code in name.encode():
        found = (found * 31 + code) & _HASH
    return found


def _table(names: dict[str, int], size: int) -> tuple[Any, Any]:
    """Return the hashes of *names* by slot, and their numbers: a hash table with open addressing.
    -1 is an empty slot."""
    hashes, numbers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    for name, number in names.items():
        slot = _hash_of(name) & (size - 1)
        while hashes[slot] >= 0:
            if hashes[slot] == _hash_of(name):
                raise ValueError(f"{name} has the hash of another name")
            slot = (slot + 1) & (size - 1)
        hashes[slot], numbers[slot] = _hash_of(name), number
    return hashes, numbers


_NAMES, _NUMBERS = _table({name: at for at, name in enumerate(ELEMENTS) if at}, 1024)
_KEYS, _KEY_NUMBERS = _table({name: at for at, name in enumerate(ATTRIBUTES)}, 256)
_ROLE_NAMES, _ROLE_NUMBERS = _table({**dict.fromkeys(_ROLES.split(), 3), "main": 6}, 64)

# References by name. Those that old pages write without a semicolon have at most six letters.
_REFERENCES: Final = sorted(html5)
_REFERENCE_NAMES, _REFERENCE_NUMBERS = _table(
    {name: at for at, name in enumerate(_REFERENCES)}, 8192
)
_CHARACTERS: Final = np.array(
    [[ord(html5[name][0]), ord((html5[name] + "\0")[1])] for name in _REFERENCES], np.int64
)
_LONGEST_NAME: Final = max(map(len, _REFERENCES))
_LONGEST_OLD: Final = max(len(name) for name in _REFERENCES if name[-1] != ";")
# What a reference by number stands for, of the first 160; 0: nothing.
_LOW_CHARACTERS: Final = np.array(
    [ord(html.unescape(f"&#{code};") or "\0") for code in range(160)], np.int64
)

_H1: Final = ELEMENTS.index("h1")
_A, _IMG, _BR, _P, _TR, _PRE, _LISTING, _FONT, _SVG, _SCRIPT, _STYLE, _TITLE, _PLAINTEXT = map(
    ELEMENTS.index, "a img br p tr pre listing font svg script style title plaintext".split()
)
_TEMPLATE: Final = ELEMENTS.index("template")
_ANNOTATION, _META, _HTML, _BASE = map(ELEMENTS.index, "annotation-xml meta html base".split())
_HREF, _REL, _SRC, _TYPE, _HIDDEN, _ROLE, _ALT, _ENCODING = map(
    ATTRIBUTES.index, "href rel src type hidden role alt encoding".split()
)
# An <img> with one of these has more than one URL.
_SEVERAL: Final = sum(1 << ATTRIBUTES.index(name) for name in ("srcset", *_LATE.split()))
_OF_FONT: Final = sum(1 << ATTRIBUTES.index(name) for name in ("color", "face", "size"))

# The state of the text: indexes of one array, because compiled functions share no variables.
_END: Final = 0  # of what was written
_GAP: Final = 1  # what stands before the next word: see below
_PRE_DEPTH: Final = 2
_IN_HEADING: Final = 3
_LISTS: Final = 4  # how many are open
_TABLES: Final = 5
_ROW: Final = 6  # 0: in no row of a table; 1: it has no text; 2: it has; 3: in several lines
# Begins and ends of the values of the attributes of a tag.
_BEGINS: Final = 7
_ENDS: Final = _BEGINS + len(ATTRIBUTES)
_STYLED: Final = _ENDS + len(ATTRIBUTES)  # end of the style of a tag, 0: none; behind it its begin
_BACKED: Final = _STYLED + 2  # the same of its background
_LATE_BACKED: Final = _BACKED + 2  # the same of one that a script is to make, and which
# Drawings and formulas that are open, and HTML within them.
_MAX_OPEN: Final = 64  # guess: drawings are not nested; an end tag searches through so many
_OPENED: Final = _LATE_BACKED + 3
# Elements that mark their text, one within the other: hashes of their names, how many elements of
# the name are open, what they mark, and their places in *out*.
_MAX_MARKED: Final = 32  # guess
_MAX_HEADLINES: Final = 8  # of which the first with a text is taken
_MAX_FACTS: Final = 1_000  # guess: tags that declare something; real pages have a hundred
_MARKED: Final = _OPENED + _MAX_OPEN
_DEPTHS: Final = _MARKED + _MAX_MARKED
_KINDS: Final = _DEPTHS + _MAX_MARKED
_PLACES: Final = _KINDS + _MAX_MARKED
STATES: Final = _PLACES + _MAX_MARKED
_NO_MARK: Final = 0
_HIDING_MARK: Final = 3  # the byte that begins it; the next one ends it
_CONTENT_MARK: Final = 6

# Gaps, the stronger ones last.
_NONE: Final = 0
_SPACE: Final = 1
_TAB: Final = 2  # between cells
_CELL_LINE: Final = 3  # between blocks in a cell
_LINE: Final = 4

_CDATA: Final = _hash_of("cdata")
_STYLE_NAME: Final = _hash_of("style")
_BACKGROUND_NAME: Final = _hash_of("background")
# How the names of attributes begin of which scripts make backgrounds: data-bg, data-bgset...
_DATA: Final = _hash_of("data-")
_LAZY: Final = _hash_of("lazy-")
_BG: Final = _hash_of("bg")
_SRC_NAME: Final = _hash_of("src")
_ORIGINAL: Final = _hash_of("original")
_IMAGE_SRC: Final = _hash_of("image-src")
_LD_JSON: Final = _hash_of("ld+json")
_TEXT_HTML: Final = _hash_of("text/html")
_XHTML: Final = _hash_of("application/xhtml+xml")


# Bytes that stand for themselves among words: 1, all but white space, "&", "<" and the begin of
# U+00A0; 2, a space.
_LETTERS_AND_SPACES: Final = np.array(
    [2 if code == 32 else code > 38 and code not in (60, 0xC2) for code in range(256)], np.int64
)
# How many letters a byte of UTF-8 counts: none but the first, and that of a letter that is a word
# (CJK) three.
_WEIGHTS: Final = np.array(
    [0 if 0x80 <= code < 0xC0 else 3 if 0xE3 <= code < 0xF0 else 1 for code in range(256)], np.int64
)

# Bytes that mean something.
_LT, _GT, _SLASH, _EQUALS, _DASH, _BANG, _QUESTION = map(ord, "<>/=-!?")
_AMP, _NUMBER_SIGN, _SEMICOLON, _OPENING, _CLOSING, _ROUND = map(ord, "&#;[](")


@compiled_part
def _find(hashes, numbers, wanted):
    """Return the number of the name with the hash *wanted*, or -1."""
    last = len(hashes) - 1
    slot = wanted & last
    while hashes[slot] >= 0:
        if hashes[slot] == wanted:
            return numbers[slot]
        slot = (slot + 1) & last
    return -1


@compiled_part
def _hash(page, begin, end):
    """Return the hash of a name, without regard to the case of ASCII letters."""
    found = 0
    for at in range(begin, end):
        code = int(page[at])
        if 65 <= code <= 90:
            code += 32
        found = (found * 31 + code) & _HASH
    return found


@compiled_part
def _is_space(code):
    return code <= 32 and (code == 32 or code == 10 or code == 9 or code == 13 or code == 12)


@compiled_part
def _ends_name(code):
    return code <= 62 and (code == _GT or code == _SLASH or _is_space(code))


@compiled_part
def _is_letter(code):
    return 97 <= (code | 32) <= 122


@compiled_part
def _late_background(page, name, length):
    """Return LATE or LATE_SOURCE if the attribute at *name*, of 7 bytes or more, is one of which
    scripts make backgrounds, or 0."""
    if _hash(page, name, name + 5) != _DATA:
        return 0
    at, end = name + 5, name + length
    rest = _hash(page, at, end)
    if rest == _SRC_NAME or rest == _ORIGINAL or rest == _IMAGE_SRC:
        return LATE_SOURCE
    if at + 7 <= end and _hash(page, at, at + 5) == _LAZY:
        at += 5
    is_background = at + 10 <= end and _hash(page, at, at + 10) == _BACKGROUND_NAME
    return LATE if is_background or _hash(page, at, at + 2) == _BG else 0


@compiled_part
def _attributes(page, at, size, wants, state):
    """Pass the attributes of a tag from *at* on. Return the end of the tag, or -1 if it has none;
    the known attributes, as bits; and whether the tag closes itself. The first of two counts."""
    known = 0
    closes = False
    while at < size:
        code = page[at]
        if code == _GT:
            return at + 1, known, closes
        if code == _SLASH or _is_space(code):
            closes = code == _SLASH
            at += 1
            continue
        closes = False
        name = at
        at += 1
        while at < size and (page[at] > _GT or not (page[at] == _EQUALS or _ends_name(page[at]))):
            at += 1
        end_of_name = at
        while at < size and _is_space(page[at]):
            at += 1
        begin = end = end_of_name
        if at < size and page[at] == _EQUALS:
            at += 1
            while at < size and _is_space(page[at]):
                at += 1
            if at >= size:
                return -1, known, False
            quote = page[at]
            if quote == 34 or quote == 39:
                at += 1
                begin = at
                while at < size and page[at] != quote:
                    at += 1
                end = at
                at += 1
            else:
                begin = at
                while at < size and (
                    page[at] > _GT or not (page[at] == _GT or _is_space(page[at]))
                ):
                    at += 1
                end = at
        else:
            at = end_of_name
        length = end_of_name - name
        if length == 5 and page[name] | 32 == 115 and _hash(page, name, end_of_name) == _STYLE_NAME:
            state[_STYLED], state[_STYLED + 1] = end, begin
        elif length == 10 and _hash(page, name, end_of_name) == _BACKGROUND_NAME:
            state[_BACKED], state[_BACKED + 1] = end, begin
        elif length >= 7 and page[name + 4] == _DASH:
            late = _late_background(page, name, length)
            if late:
                state[_LATE_BACKED], state[_LATE_BACKED + 1] = end, begin
                state[_LATE_BACKED + 2] = late
        if wants:
            number = _find(_KEYS, _KEY_NUMBERS, _hash(page, name, end_of_name))
            if number >= 0 and not known >> number & 1:
                known |= 1 << number
                state[_BEGINS + number], state[_ENDS + number] = begin, end
    return -1, known, False


@compiled_part
def _open_line(out, state):
    """Write what stands before a word, and return the end of what is written."""
    end = state[_END]
    gap = state[_GAP]
    if gap >= _CELL_LINE:
        features = (1 if state[_IN_HEADING] else 0) | (2 if state[_LISTS] else 0)
        features |= (4 if state[_PRE_DEPTH] else 0) | (8 if state[_TABLES] else 0)
        out[end] = 16 + features
        end += 1
        if state[_ROW]:
            state[_ROW] = 3 if gap == _CELL_LINE else 2
    elif gap == _TAB:
        out[end] = 9
        end += 1
    elif gap == _SPACE:
        out[end] = 32
        end += 1
    state[_GAP] = _NONE
    return end


@compiled_part
def _write_character(code, out, end):
    """Write a code point in UTF-8."""
    if code < 0x80:
        out[end] = code
        return end + 1
    if code < 0x800:
        out[end] = 0xC0 | code >> 6
        out[end + 1] = 0x80 | code & 63
        return end + 2
    if code < 0x10000:
        out[end] = 0xE0 | code >> 12
        out[end + 1] = 0x80 | code >> 6 & 63
        out[end + 2] = 0x80 | code & 63
        return end + 3
    out[end] = 0xF0 | code >> 18
    out[end + 1] = 0x80 | code >> 12 & 63
    out[end + 2] = 0x80 | code >> 6 & 63
    out[end + 3] = 0x80 | code & 63
    return end + 4


@compiled_part
def _by_number(page, at, size):
    """Read a reference by number from behind its "#" on. Return its end, and the character; -1 if
    it is none."""
    base = 10
    if at < size and page[at] | 32 == 120:
        base = 16
        at += 1
    code, begin = 0, at
    while at < size:
        digit = int(page[at])
        if 48 <= digit <= 57:
            digit -= 48
        elif base == 16 and 97 <= digit | 32 <= 102:
            digit = (digit | 32) - 87
        else:
            break
        code = min(code * base + digit, 0x110000)
        at += 1
    if at == begin:
        return at, -1
    if at < size and page[at] == _SEMICOLON:
        at += 1
    if code < 160:
        return at, _LOW_CHARACTERS[code]
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return at, 0xFFFD
    is_none = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    return at, 0 if is_none else code


@compiled_part
def _by_name(page, at, size):
    """Read a reference by name from behind its "&" on. Return its end, and its number; -1 if it is
    none. Without a semicolon the longest known beginning counts."""
    found, end, hashed, begin = -1, at, 0, at
    last = min(size, at + _LONGEST_NAME)
    while at < last:
        code = int(page[at])
        is_end = code == _SEMICOLON
        if not (is_end or _is_letter(code) or (48 <= code <= 57 and at > begin)):
            break
        hashed = (hashed * 31 + code) & _HASH
        at += 1
        if is_end or at - begin <= _LONGEST_OLD:
            number = _find(_REFERENCE_NAMES, _REFERENCE_NUMBERS, hashed)
            if number >= 0:
                found, end = number, at
        if is_end:
            break
    return end, found


@compiled_part
def _write(page, at, size, stop, out, state):
    """Write the words from *at* to *size*, or to the byte *stop*, with white space folded unless it
    is preformatted. Returns where they end. Without *stop*, 0, there are no references."""
    end = state[_END]
    is_pre = state[_PRE_DEPTH] > 0
    gap = state[_GAP]
    while at < size:
        if _LETTERS_AND_SPACES[page[at]] == 1:
            if gap == _SPACE:
                out[end] = 32
                end, gap = end + 1, _NONE
            elif gap:
                state[_END], state[_GAP] = end, gap
                end, gap = _open_line(out, state), _NONE
            # With single spaces between words: to leave the loop at each costs more.
            last = 0
            while at < size:
                kind = _LETTERS_AND_SPACES[page[at]]
                if kind == 0 or kind & last:
                    break
                out[end] = page[at]
                end += 1
                at += 1
                last = kind & 2
            if last and not is_pre:
                end, gap = end - 1, _SPACE
            continue
        code = int(page[at])
        if code == stop:
            break
        other = 0
        at += 1
        if code == _AMP and stop and at < size:
            if page[at] == _NUMBER_SIGN:
                behind, found = _by_number(page, at + 1, size)
                if found >= 0:
                    code, at = found, behind
                    if code == 0:
                        continue
            elif _is_letter(page[at]):
                behind, number = _by_name(page, at, size)
                if number >= 0:
                    code, other, at = _CHARACTERS[number, 0], _CHARACTERS[number, 1], behind
        elif code == 0xC2 and at < size:
            code = 0xA0 if page[at] == 0xA0 else 0x80 | page[at] & 63
            at += 1
        if is_pre and code == 0xA0:
            code = 32
        if is_pre and (code == 32 or code == 9 or code == 10 or code == 13):
            if code == 13:
                if at < size and page[at] == 10:
                    continue
                code = 10
            if gap >= _CELL_LINE:
                if code == 10:  # at the beginning of the block
                    continue
                state[_END], state[_GAP] = end, gap
                end, gap = _open_line(out, state), _NONE
            out[end] = 11 if code == 10 else code
            end += 1
            gap = _NONE
        elif code <= 32 or code == 0xA0:
            gap = max(gap, _SPACE)
        else:
            if gap == _SPACE:
                out[end] = 32
                end, gap = end + 1, _NONE
            elif gap:
                state[_END], state[_GAP] = end, gap
                end, gap = _open_line(out, state), _NONE
            end = _write_character(code, out, end)
            if other:
                end = _write_character(other, out, end)
    state[_END], state[_GAP] = end, gap
    return at


@compiled_part
def _end_of_raw(page, at, size, name, length, is_script):
    """Return where the end tag of a raw element begins, or *size*. In a comment in a script, an end
    tag may be that of a script within (13.2.5.20, "script data double escaped")."""
    comment, nested = False, False
    while at < size:
        if page[at] == _DASH and comment:
            if at + 2 < size and page[at + 1] == _DASH and page[at + 2] == _GT:
                comment = nested = False
        elif page[at] == _LT:
            if is_script and at + 3 < size and page[at + 1] == _BANG and page[at + 2] == _DASH:
                if page[at + 3] == _DASH and not comment:
                    comment = True
                    at += 2  # "<!-->" ends it
                    continue
            is_end = at + 1 < size and page[at + 1] == _SLASH
            begin = at + 1 + is_end
            end = begin + length
            if end < size and _ends_name(page[end]) and _hash(page, begin, end) == name:
                if is_end and not nested:
                    return at
                nested = comment and not is_end
        at += 1
    return size


@compiled_part
def _is_mark(out, begin, end):
    """Whether the text is a single sign, as the pilcrow that links a heading to itself."""
    letters, first, at = 0, 0, begin
    while at < end:
        code = int(out[at])
        at += 1
        if code <= 32:
            continue
        if code >= 0xC0:
            more = 1 if code < 0xE0 else 2 if code < 0xF0 else 3
            code &= 31 if more == 1 else 15 if more == 2 else 7
            for _ in range(more):
                if at < end:
                    code = code << 6 | int(out[at]) & 63
                    at += 1
        letters += 1
        first = code
        if letters > 1:
            return False
    is_ascii_sign = 32 < first < 127 and not (_is_letter(first) or 48 <= first <= 57)
    is_icon = 0x2000 <= first < 0x2C00 or 0xE000 <= first < 0xF900 or first >= 0x1F000
    return letters == 1 and (is_ascii_sign or 0xA1 <= first < 0xC0 or is_icon)


@compiled_part
def _trimmed(page, begin, end):
    while begin < end and _is_space(page[begin]):
        begin += 1
    while end > begin and _is_space(page[end - 1]):
        end -= 1
    return begin, end


@compiled_part
def _add(rows, count, what, one, two, three):
    if count < len(rows):
        rows[count, 0] = what
        rows[count, 1] = one
        rows[count, 2] = two
        rows[count, 3] = three
    return count + 1


@compiled_part
def _has_reference(page, begin, end):
    for at in range(begin, end):
        if page[at] == _AMP:
            return 1
    return 0


@compiled_part
def _may_fetch(page, begin, end):
    """Return whether there may be url() or @import in styles: of most pages there is none."""
    for at in range(begin + 1, end):
        code = page[at]
        if code == _ROUND and page[at - 1] | 32 == 108:
            return True
        if code | 32 == 105 and page[at - 1] == 64:
            return True
    return False


@compiled
def scan(page, is_xml, max_links, out, rows, state, tags):
    """Scan *page*, UTF-8 without NUL. *out* has room for 6/5 of it and 8 bytes, since no reference
    is longer in UTF-8. *state* has STATES integers. Returns how much of *out* is written, and
    how many rows and *tags* there are: those for which there is no room are left out. *tags* are
    what Markdown needs to know: where in *out*, twice the element and 1 for an end tag, and begin
    and end of the URL of a link; without room none is counted."""
    tag_count, has_tags = 0, len(tags) > 0
    size, count, links, facts = len(page), 0, 0, 0
    for index in range(_BEGINS):
        state[index] = 0
    state[_STYLED] = state[_STYLED + 1] = state[_BACKED] = state[_LATE_BACKED] = 0
    state[_GAP] = _LINE
    depth = 0
    templates = 0  # that are open
    marked = hidden = contents = 0  # elements that mark their text, and how many of each kind
    headlines, headline = 0, -1  # how many rows there are, and where one begins that is open
    anchor, anchor_end, anchor_gap = False, 0, 0  # within a link to this page; the state before it
    at = 0
    while at < size:
        if page[at] != _LT:
            at = _write(page, at, size, _LT, out, state)
            continue
        code = int(page[at + 1]) if at + 1 < size else 0
        is_end = code == _SLASH
        if (
            code == _BANG
            or code == _QUESTION
            or (is_end and at + 2 < size and not _is_letter(page[at + 2]))
        ):
            begin = at + 2
            if at + 3 < size and code == _BANG and page[at + 2] == _DASH and page[at + 3] == _DASH:
                # Comments end at --> and --!>; <!--> and <!---> are whole.
                at += 4
                if at < size and page[at] == _GT:
                    at += 1
                    continue
                if at + 1 < size and page[at] == _DASH and page[at + 1] == _GT:
                    at += 2
                    continue
                while at < size:
                    if page[at] == _DASH and at + 2 < size and page[at + 1] == _DASH:
                        if page[at + 2] == _GT:
                            at += 3
                            break
                        if page[at + 2] == _BANG and at + 3 < size and page[at + 3] == _GT:
                            at += 4
                            break
                    at += 1
                continue
            is_foreign = depth > 0 and _BITS[state[_OPENED + depth - 1]] & FOREIGN != 0
            if (
                (is_xml or is_foreign)
                and code == _BANG
                and at + 8 < size
                and page[at + 2] == _OPENING
            ):
                if _hash(page, at + 3, at + 8) == _CDATA and page[at + 8] == _OPENING:
                    begin = at = at + 9
                    while at < size:
                        if page[at] == _CLOSING and at + 2 < size and page[at + 1] == _CLOSING:
                            if page[at + 2] == _GT:
                                break
                        at += 1
                    _write(page, begin, at, 0, out, state)
                    at += 3
                    continue
            at = begin
            while at < size and page[at] != _GT:
                at += 1
            at += 1
            continue
        begin = at + 1 + is_end
        if begin >= size or not _is_letter(page[begin]):
            _write(page, at, at + 1, 0, out, state)
            at += 1
            continue

        at = begin
        while at < size and not _ends_name(page[at]):
            at += 1
        name, length = _hash(page, begin, at), at - begin
        element = max(_find(_NAMES, _NUMBERS, name), 0)
        bits = _BITS[element]
        wants = not is_end and (
            element == _A
            or bits & (READ | HAS_END) != 0
            or (depth > 0 and (element == _FONT or element == _ANNOTATION))
        )
        at, known, closes = _attributes(page, at, size, wants, state)
        if at < 0:
            break
        if state[_STYLED] or state[_BACKED] or state[_LATE_BACKED]:
            if not is_end and links <= max_links:
                before = count
                if _may_fetch(page, state[_STYLED + 1], state[_STYLED]):
                    count = _add(rows, count, STYLE, state[_STYLED + 1], state[_STYLED], 0)
                if state[_BACKED]:
                    count = _add(rows, count, BACKGROUND, state[_BACKED + 1], state[_BACKED], 0)
                late = state[_LATE_BACKED + 2]
                if state[_LATE_BACKED] and (late == LATE or not bits & READ):
                    begin, behind = state[_LATE_BACKED + 1], state[_LATE_BACKED]
                    count = _add(rows, count, BACKGROUND, begin, behind, late)
                links += count - before
            state[_STYLED] = state[_STYLED + 1] = state[_BACKED] = state[_LATE_BACKED] = 0
        is_foreign = depth > 0 and _BITS[state[_OPENED + depth - 1]] & FOREIGN != 0
        is_empty = closes and (is_xml or bits & FOREIGN != 0)

        # Drawings, formulas, and the HTML within them.
        if depth > 0 or bits & FOREIGN:
            if is_end and element != _BR and element != _P:
                if element:
                    for place in range(depth - 1, -1, -1):
                        if state[_OPENED + place] == element:
                            depth = place
                            break
            elif bits & FOREIGN:
                if not is_empty and depth < _MAX_OPEN:
                    state[_OPENED + depth] = element
                    depth += 1
            elif is_foreign:
                within = IN_SVG if state[_OPENED + depth - 1] == _SVG else IN_MATH
                holds_html = bits & within != 0
                if element == _ANNOTATION:
                    told = 0
                    if known >> _ENCODING & 1:
                        told = _hash(page, state[_BEGINS + _ENCODING], state[_ENDS + _ENCODING])
                    holds_html = holds_html and (told == _TEXT_HTML or told == _XHTML)
                if holds_html:
                    if not closes and depth < _MAX_OPEN:
                        state[_OPENED + depth] = element
                        depth += 1
                elif bits & NEVER_FOREIGN or (element == _FONT and known & _OF_FONT):
                    while depth > 0 and _BITS[state[_OPENED + depth - 1]] & FOREIGN:
                        depth -= 1

        is_foreign_now = depth > 0 and _BITS[state[_OPENED + depth - 1]] & FOREIGN != 0
        if element == _TEMPLATE and not is_foreign_now and not is_empty:
            templates = max(0, templates - 1) if is_end else templates + 1

        # What the author marked, as content or as none. What is never closed marks nothing.
        kind = _NO_MARK
        if not is_end and not is_empty:
            if bits & CONTENT:
                kind = _CONTENT_MARK
            elif (bits & HIDES and not (bits & PART and contents)) or (
                bits & HAS_END and known >> _HIDDEN & 1
            ):
                kind = _HIDING_MARK
            if bits & HAS_END and known >> _ROLE & 1 and kind != _HIDING_MARK:
                one, two = _trimmed(page, state[_BEGINS + _ROLE], state[_ENDS + _ROLE])
                kind = max(kind, _find(_ROLE_NAMES, _ROLE_NUMBERS, _hash(page, one, two)))
        if kind and marked < _MAX_MARKED:
            state[_MARKED + marked], state[_DEPTHS + marked] = name, 1
            state[_KINDS + marked], state[_PLACES + marked] = kind, state[_END]
            marked += 1
            hidden += kind == _HIDING_MARK
            contents += kind == _CONTENT_MARK
            out[state[_END]] = 5
            state[_END] += 1
            anchor = False
        elif marked and not is_empty:
            for place in range(marked - 1, -1, -1):
                if state[_MARKED + place] == name:
                    state[_DEPTHS + place] += -1 if is_end else 1
                    if state[_DEPTHS + place] == 0:
                        kind = state[_KINDS + place]
                        out[state[_PLACES + place]] = kind
                        out[state[_END]] = kind + 1
                        state[_END] += 1
                        anchor = False
                        for above in range(place, marked):
                            hidden -= state[_KINDS + above] == _HIDING_MARK
                            contents -= state[_KINDS + above] == _CONTENT_MARK
                        marked = place
                    break

        # What the tag does to the text.
        if has_tags and bits & STRUCTURE and not is_foreign_now:
            tag_count = _add(tags, tag_count, state[_END], 2 * element + is_end, 0, 0)
        if element == _A:
            if is_end and has_tags:
                tag_count = _add(tags, tag_count, state[_END], 2 * _A + 1, 0, 0)
            if is_end:
                if anchor and _is_mark(out, anchor_end, state[_END]):
                    state[_END], state[_GAP] = anchor_end, anchor_gap
                anchor = False
                out[state[_END]] = 2
                state[_END] += 1
            elif known >> _HREF & 1:
                one, two = _trimmed(page, state[_BEGINS + _HREF], state[_ENDS + _HREF])
                has_row = one < two and page[one] != _NUMBER_SIGN and links <= max_links
                if has_tags and has_row and not is_empty:
                    tag_count = _add(tags, tag_count, state[_END], 2 * _A, one, two)
                if not is_empty or has_row:
                    out[state[_END]] = 1 if has_row else 8
                    state[_END] += 1
                if is_empty and has_row:
                    out[state[_END]] = 2
                    state[_END] += 1
                elif not is_empty:
                    anchor = one < two and page[one] == _NUMBER_SIGN
                    anchor_end, anchor_gap = state[_END], state[_GAP]
                if has_row:
                    links += 1
                    has_reference = _has_reference(page, one, two)
                    if known >> _REL & 1:
                        count = _add(rows, count, TAG, _A, 2, 0)
                        count = _add(rows, count, ATTRIBUTE, _HREF, one, two)
                        one, two = state[_BEGINS + _REL], state[_ENDS + _REL]
                        count = _add(rows, count, ATTRIBUTE, _REL, one, two)
                    else:
                        count = _add(rows, count, LINK, one, two, has_reference)
        elif bits & CELL:
            if is_end:
                state[_GAP] = max(state[_GAP], _CELL_LINE)
            elif state[_ROW] == 2:
                state[_GAP] = _TAB
            else:
                state[_ROW] = max(1, state[_ROW])
                state[_GAP] = _LINE
        elif element == _BR and state[_PRE_DEPTH]:
            if state[_GAP] < _CELL_LINE:
                out[state[_END]] = 11
                state[_END] += 1
        elif not bits & INLINE and depth == 0:
            if state[_ROW] == 0 or bits & TABLE:
                state[_GAP] = _LINE
            elif state[_GAP] != _TAB:
                state[_GAP] = max(state[_GAP], _CELL_LINE)
            step = -1 if is_end else 1
            if bits & TABLE:
                state[_ROW] = 1 if element == _TR and not is_end else 0
                if element != _TR:
                    state[_TABLES] = max(0, state[_TABLES] + step)
            elif bits & LIST:
                state[_LISTS] = max(0, state[_LISTS] + step)
            elif bits & HEADING:
                state[_IN_HEADING] = not is_end
                if headline >= 0:
                    headlines += 1
                    count = _add(rows, count, HEADLINE, headline, state[_END], 0)
                is_first = element == _H1 and not is_end and headlines < _MAX_HEADLINES
                headline = state[_END] if is_first else -1
            elif element == _PRE or element == _LISTING:
                state[_PRE_DEPTH] = max(0, state[_PRE_DEPTH] + step)
        if is_end:
            continue

        # What the tag says.
        is_fact = element == _META or element == _HTML or element == _BASE
        facts += is_fact
        if bits & READ and known and (facts <= _MAX_FACTS if is_fact else links <= max_links):
            if element == _IMG and known >> _ALT & 1 and not hidden and state[_GAP] < _CELL_LINE:
                # An image among words stands for a word.
                _write(page, state[_BEGINS + _ALT], state[_ENDS + _ALT], 256, out, state)
            if element == _IMG and known >> _SRC & 1 and not known & _SEVERAL:
                one, two = _trimmed(page, state[_BEGINS + _SRC], state[_ENDS + _SRC])
                count = _add(rows, count, IMAGE, one, two, _has_reference(page, one, two))
                links += 1
            else:
                links += not is_fact
                is_mute = templates > 0 or is_foreign_now
                count = _add(rows, count, TAG, element, 0, is_mute)
                tag = count - 1
                for number in range(len(ATTRIBUTES)):
                    if known >> number & 1:
                        one, two = state[_BEGINS + number], state[_ENDS + number]
                        count = _add(rows, count, ATTRIBUTE, number, one, two)
                if tag < len(rows):
                    rows[tag, 2] = count - tag - 1
        if bits & RAW and not is_empty and not is_foreign:
            behind = size
            if element != _PLAINTEXT:
                behind = _end_of_raw(page, at, size, name, length, element == _SCRIPT)
            if element == _TITLE:
                if templates == 0:
                    count = _add(rows, count, TITLE, at, behind, 0)
            elif element == _STYLE and links <= max_links and _may_fetch(page, at, behind):
                count = _add(rows, count, SHEET, at, behind, 0)
            elif (
                element == _SCRIPT
                and known >> _TYPE & 1
                and state[_ENDS + _TYPE] - state[_BEGINS + _TYPE] >= 7
            ):
                if _hash(page, state[_ENDS + _TYPE] - 7, state[_ENDS + _TYPE]) == _LD_JSON:
                    count = _add(rows, count, DATA, at, behind, 0)
            elif bits & SHOWN_RAW:
                _write(page, at, behind, 0, out, state)
            at = behind
    return state[_END], count, tag_count


# What `choose` knows of a line is one number: its features (the bits 1 to 8), these bits, and above
# them how many of its letters are seen; one that is a word (CJK) counts three.
_IN_CONTENT: Final = 16  # in content that the page marks as such
_OF_LINKS: Final = 32  # more than half of the letters are in links
_KEPT: Final = 64
_LETTERS: Final = 7  # how far above
_SPACES: Final = 0x2020202020202020
_HIGHEST: Final = 0x8080808080808080  # the highest bit of each byte
_MOST_LETTERS: Final = (1 << 24) - 1  # of a line that are counted

PROSE_CHARS: Final = 100
"""Shorter lines are titles, dates, buttons: about 15 words."""
LEAST_IN_CONTENT: Final = 5
"""Marked content of less than a fifth of the text is no content: a banner, or an empty frame."""
LEAST_PART: Final = 3
"""Prose of less than a third of the text is more likely what a host repeats on all pages; the page
is about the rest: a table, a list, a product."""

# The state after the previous line.
_SHORT: Final = 0  # a short line, with links or nothing before it
_LINKS: Final = 1
_LONE: Final = 2  # prose behind links; if links follow, it is the text of a teaser
_PROSE: Final = 3  # prose, or short lines behind it, about which the next longer line decides


@compiled_part
def _summary(place, letters, linked):
    place |= _OF_LINKS if 2 * linked > letters else 0
    return place | min(letters, _MOST_LETTERS) << _LETTERS


@compiled_part
def _text_end(out, eights, at, size):
    """Return where the text from *at* on ends, at a byte that is a mark, and whether all of it is
    ASCII. *eights*: the same memory, eight bytes a number."""
    every = u64(0)
    while at < size:
        if at & 7 == 0:
            while at + 8 <= size:
                eight = u64(eights[at >> 3])
                # A byte below a space has no highest bit, but gets one by the subtraction.
                if (eight - u64(_SPACES)) & ~eight & u64(_HIGHEST):
                    break
                every |= eight
                at += 8
            if at == size:
                break
        if out[at] < 32:
            break
        every |= u64(out[at])
        at += 1
    return at, every & u64(_HIGHEST) == 0


@compiled_part
def _measure(out, eights, size, lines, sees_all):
    """Fill *lines* and return how many letters are seen."""
    line, inside, hidden, contents, letters, linked, whole, place = -1, 0, 0, 0, 0, 0, 0, 0
    at = 0
    while at < size:
        code = out[at]
        if code >= 32:
            begin = at
            at, is_ascii = _text_end(out, eights, at, size)
            weight = at - begin
            if not is_ascii:
                weight = 0
                for index in range(begin, at):
                    weight += _WEIGHTS[out[index]]
            if hidden == 0:
                letters += weight
                linked += weight * inside
                if contents:
                    place |= _IN_CONTENT
            continue
        at += 1
        if code >= 16:
            if line >= 0:
                lines[line] = _summary(place, letters, linked)
            whole += letters
            letters = linked = 0
            line += 1
            place = code - 16
        elif code <= 2 or code == 8:
            inside = 0 if code == 2 else 1
        elif code <= 4:
            hidden += 0 if sees_all else 1 if code == 3 else -1
        elif code <= 7:
            contents += 1 if code == 6 else -1 if code == 7 else 0
    if line >= 0:
        lines[line] = _summary(place, letters, linked)
    return whole + letters


@compiled_part
def is_kept(line):
    """Whether a line, by its number after `choose`, is content."""
    return line & _KEPT != 0 and line >> _LETTERS > 0


@compiled_part
def _keep(lines, begin, end):
    for line in range(begin, end):
        lines[line] |= _KEPT


@compiled_part
def _select(lines, count):
    """Mark the lines of content: what markup marks, or else prose, what is between prose, and
    headings before it. Only lengths and tags decide, so this works in any language
    (docs/decisions/0014)."""
    marked = whole = 0
    for line in range(count):
        letters = lines[line] >> _LETTERS
        whole += letters
        if lines[line] & _IN_CONTENT:
            marked += letters
    if LEAST_IN_CONTENT * marked >= whole:
        for line in range(count):
            if lines[line] & _IN_CONTENT:
                lines[line] |= _KEPT
        return
    last, waiting = _SHORT, -1  # the first line about which a later one decides
    for line in range(count):
        place = lines[line]
        letters = place >> _LETTERS
        if letters == 0:
            continue
        if place & _OF_LINKS:
            waiting, last = -1, _LINKS
        elif letters < PROSE_CHARS and not place & 4:
            if last == _LONE:
                _keep(lines, waiting, line)
                waiting, last = line, _PROSE
            elif last == _PROSE:
                waiting = line if waiting < 0 else waiting
            elif place & 1:  # a heading belongs to what follows
                waiting, last = line, _PROSE if last == _SHORT else last
            elif waiting < 0:
                last = _SHORT
        elif last == _LINKS:
            waiting, last = line if waiting < 0 else waiting, _LONE
        else:
            _keep(lines, line if waiting < 0 else waiting, line + 1)
            waiting, last = -1, _PROSE
    if last == _LONE:
        _keep(lines, waiting, count)
    kept = 0
    for line in range(count):
        if lines[line] & _KEPT:
            kept += lines[line] >> _LETTERS
    if LEAST_PART * kept < whole:
        _keep(lines, 0, count)


@compiled
def count_lines(out, size):
    """Return how many lines `scan` wrote."""
    count = 0
    for at in range(size):
        count += 16 <= out[at] < 32
    return count


@compiled
def choose(out, eights, size, lines, is_all, text, linked):
    """Write the lines of content of what `scan` wrote to *text*, each with its end but the last.
    Returns how long that is. *is_all*: all lines are. *lines*: a number for each line. *linked*
    becomes how many bytes were written, without line ends, how many of these in links, and whether
    what the author hides is seen."""
    count = len(lines)
    sees_all = is_all
    if _measure(out, eights, size, lines, is_all) == 0:
        sees_all = True  # a page of which nothing would be left keeps all it has
        _measure(out, eights, size, lines, True)
    if is_all:
        _keep(lines, 0, count)
    else:
        _select(lines, count)
    line, hidden, end, begin, is_kept, inside = -1, 0, 0, 0, False, 0
    linked[0] = linked[1] = 0
    linked[2] = sees_all
    at = 0
    while at < size:
        code = out[at]
        if code >= 32:
            first = at
            at, _ = _text_end(out, eights, at, size)
            if is_kept and hidden == 0:
                if end == begin and out[first - 1] < 16:
                    while first < at and out[first] == 32:
                        first += 1
                for index in range(at - first):
                    text[end + index] = out[first + index]
                end += at - first
                linked[0] += at - first
                linked[1] += (at - first) * inside
            continue
        at += 1
        if code >= 16:
            line += 1
            end = _without_spaces(text, begin, end)
            is_kept = lines[line] & _KEPT != 0 and lines[line] >> _LETTERS > 0
            if is_kept and end:
                text[end] = 10
                end += 1
            begin = end
        elif code >= 9:
            if is_kept and hidden == 0:
                text[end] = 10 if code == 11 else code
                end += 1
        elif 3 <= code <= 4 and not sees_all:
            hidden += 1 if code == 3 else -1
        elif code <= 2 or code == 8:
            inside = 0 if code == 2 else 1
    return _without_spaces(text, begin, end)


@compiled_part
def _without_spaces(text, begin, end):
    """Return the end of the text without the white space at its end."""
    while end > begin and text[end - 1] <= 32:
        end -= 1
    return end


_MOST_LINK_TEXT: Final = 256  # bytes; longer texts are of links that are not closed


@compiled_short
def choose_link_texts(out, eights, size, text):
    """Write the text of each link that has a row to *text*, each with a line end behind it. Returns
    how long that is. *eights*: the same memory as *out*, eight bytes a number."""
    end, begin, at = 0, -1, 0
    while at < size:
        code = out[at]
        if code >= 32 and (begin < 0 or end - begin >= _MOST_LINK_TEXT):
            at, _ = _text_end(out, eights, at, size)
            continue
        at += 1
        if code <= 2 or code == 8:
            if begin >= 0:
                end = _end_link_text(text, begin, end)
            begin = end if code == 1 else -1
        elif begin >= 0 and end - begin < _MOST_LINK_TEXT:
            if code > 32:
                text[end] = code
                end += 1
            elif code >= 9 and end > begin and text[end - 1] != 32:
                text[end] = 32
                end += 1
    return end if begin < 0 else _end_link_text(text, begin, end)


@compiled_part
def _end_link_text(text, begin, end):
    """Write the line end of a text, without spaces and without a letter of which bytes are missing
    before it. Returns its end."""
    at = end - 1
    while at > begin and 0x80 <= text[at] < 0xC0:
        at -= 1
    if at >= begin:
        code = text[at]
        width = 1 if code < 0xC0 else 2 if code < 0xE0 else 3 if code < 0xF0 else 4
        end = end if at + width <= end else at
    end = _without_spaces(text, begin, end)
    text[end] = 10
    return end + 1


def scanned(page: bytes, is_xml: bool, max_links: int) -> tuple[Any, int, list[int]]:
    """Return what `scan` wrote of *page* and how much that is, and its rows, four numbers each."""
    out, end, rows, _ = scanned_with_tags(page, is_xml, max_links, has_tags=False)
    return out, end, rows


def scanned_with_tags(
    page: bytes, is_xml: bool, max_links: int, *, has_tags: bool = True
) -> tuple[Any, int, list[int], Any]:
    """Return what `scanned` does, and the tags that `markdown` takes; without *has_tags* none."""
    out = memory(len(page) * 6 // 5 + 8)
    state = np.empty(STATES, np.int64)
    room = len(page) // 64 + 64  # rows; of a page with more there is a second scan
    tag_room = room if has_tags else 0
    while True:
        rows, tags = np.empty((room, 4), np.int32), np.empty((tag_room, 4), np.int32)
        found = scan(readable(page), is_xml, max_links, out, rows, state, tags)
        end, count, tag_count = found
        if count <= room and tag_count <= tag_room:
            return out, int(end), rows[:count].ravel().tolist(), tags[:tag_count]
        room, tag_room = max(room, count), max(tag_room, tag_count)


def content(out: Any, size: int, *, is_all: bool) -> str:
    """Return the lines of content of what `scan` wrote, or all lines."""
    return content_and_link_share(out, size, is_all=is_all)[0]


def content_and_link_share(out: Any, size: int, *, is_all: bool = False) -> tuple[str, float]:
    """Return what `content` does, and which share of it is in links."""
    text, share, _, _ = chosen_lines(out, size, is_all=is_all)
    return text, share


def chosen_lines(out: Any, size: int, *, is_all: bool = False) -> tuple[str, float, Any, bool]:
    """Return what `content_and_link_share` does, and what `choose` knows: of each line a number,
    and whether what the author hides is seen."""
    lines, text = np.empty(count_lines(out, size), np.int32), memory(size)
    linked = np.empty(3, np.int64)
    end = choose(out, _eights(out), size, lines, is_all, text, linked)
    share = int(linked[1]) / (int(linked[0]) or 1)
    return str(text[:end], "utf-8"), share, lines, bool(linked[2])


def link_texts(out: Any, size: int) -> list[str]:
    """Return the texts of the links that have a row, in the order of these, and an empty one."""
    text = memory(size + 8)
    end = choose_link_texts(out, _eights(out), size, text)
    return str(text[:end], "utf-8").split("\n")


_MARKS: Final = bytes((*range(1, 9), 10, *range(12, 16)))
_IN_LINE: Final = bytes(max(code, 32) for code in range(256))


def headline(out: Any, begin: int, end: int) -> str:
    """Return the text of what `scan` wrote from *begin* to *end*, in one line."""
    return " ".join(bytes(out[begin:end]).translate(_IN_LINE, _MARKS).decode().split())


def readable(page: bytes) -> Any:
    return np.frombuffer(page, np.uint8) if is_compiled else page


def memory(size: int) -> Any:
    size = size + 7 & ~7  # for `_eights`
    return np.empty(size, np.uint8) if is_compiled else bytearray(size)


def _eights(out: Any) -> Any:
    return out.view(np.uint64) if is_compiled else memoryview(out).cast("Q")
