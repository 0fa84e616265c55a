"""Bytes of a page to text: its content codings (gzip, brotli...) and its character encoding. And
the queries of its links in that encoding.

Rule: the encoding is that of the BOM, else of the header, else of the page's own declaration, else
a guess from the first letters beyond ASCII (docs/decisions/0033). Only encodings of the web (WHATWG
Encoding, 4.2) count: of Python's others, `zip` and `idna` raise, `punycode` takes quadratic time.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, Protocol, cast
from unicodedata import normalize
from urllib.parse import quote

import brotli  # type: ignore[import-untyped]  # it ships no types
from chardetng_py import EncodingDetector  # type: ignore[import-untyped]  # it ships no types
from isal import isal_zlib
from w3lib.encoding import read_bom, to_unicode
from webencodings.labels import LABELS  # type: ignore[import-untyped]  # it ships no types

from crawler.model.page import Flag

UTF_8: Final = "utf-8"
_WESTERN: Final = "cp1252"
# Chinese in a two-byte encoding is by chance valid UTF-8 in one of six letters.
_SURELY_UTF_8_BYTES: Final = 12
_ASCII: Final = bytes(range(128))

# Browsers look at 1,024 bytes, and read again if they find a declaration later.
_DECLARED_WITHIN: Final = 4096
_GUESSED_FROM: Final = 64 * 1024  # bytes: 168 of 170 real pages right in 5 ms; 159 with 16 KB

# Python's best codec where its name is not the web's. Those of East Asia have letters that the
# codec of the same name lacks.
_CODECS: Final = {
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "gbk": "gb18030_2000",  # the same codec by another name, as the two differ in what they encode
    "ibm866": "cp866",
    "iso-8859-8-i": "iso8859-8",
    "macintosh": "mac-roman",
    "shift_jis": "cp932",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
}
_NO_TEXT: Final = frozenset({"replacement", "x-user-defined"})  # no letters of their own
_NAMES: Final = {
    _CODECS.get(name) or codecs.lookup(name).name: name
    for name in (*sorted(set(LABELS.values()) - _NO_TEXT), "iso-8859-8")
}
"""Names of the web (WHATWG), by Python's."""
_PYTHON: Final = {
    label: _CODECS.get(name) or codecs.lookup(name).name
    for label, name in LABELS.items()
    if name not in _NO_TEXT
}
# The label of UTF-16 without a byte order.
_PYTHON["utf-16"] = "utf-16-le"

_header_label = re.compile(
    r"""(?:^|;)[ \t]*charset[ \t]*=[ \t]*(?:"[ \t]*([^"]*)"|'?([^\s;,"']+))""", re.IGNORECASE
).search
# Linear: each letter is read at most once.
_declarations = re.compile(
    r"""<!--.*?(?:-->|$)
    | <meta(?=[\s/])(?P<meta>(?:[^<>=]|=\s*(?:"[^"]*"|'[^']*')?)*)
    | <\?xml\s(?P<xml>[^<>]*)
    | <body[\s>]""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
).finditer
# Linear: a name is tried from its first letter only, and at its whole length.
_attributes = re.compile(
    r"""(?<![^\s/>="'])([^\s/>="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
).findall
_content_label = re.compile(r"""charset\s*=\s*["']?\s*([^\s;"']+)""", re.IGNORECASE).search
_names_type = re.compile(r"content[-_ ]?type", re.IGNORECASE).search
_PRAGMA: Final = frozenset({"http-equiv", "http_equiv", "httpequiv"})  # with common misspellings

# Markup in UTF-16 without a BOM: "<" and after it a letter, "!" or "?".
_utf_16_le = re.compile(rb"(?:[ \t\r\n]\0)*<\0[A-Za-z!?]\0").match
_utf_16_be = re.compile(rb"(?:\0[ \t\r\n])*\0<\0[A-Za-z!?]").match
_beyond_ascii = re.compile(rb"[\x80-\xff]|\x1b\$").search  # or an escape of ISO-2022-JP


_UTF_16_BYTES: Final = 1024  # among which UTF-16 has a NUL, as no other encoding of pages


def may_be_utf_16(body: bytes) -> bool:
    """Return whether an HTML page may be in UTF-16, so that no words can be looked for in it."""
    return b"\0" in body[:_UTF_16_BYTES]


def detect_unicode(body: bytes) -> tuple[str, bytes] | tuple[None, None]:
    """Return the encoding that the first bytes show, and its BOM, which may be empty."""
    by_bom = read_bom(body)
    if by_bom[0] is None and b"\0" in body[:2]:
        if _utf_16_le(body):
            return "utf-16-le", b""
        if _utf_16_be(body):
            return "utf-16-be", b""
    return by_bom


def read_text(body: bytes, content_type: str, *, marked_up: bool = True) -> tuple[str, str]:
    """Return the text, and the WHATWG name of the encoding it was read with. Never fails: what
    cannot be read becomes U+FFFD. *marked_up*: the body may declare its encoding, as HTML does."""
    by_bom, bom = detect_unicode(body)
    if by_bom is not None and bom is not None:
        return _decode(body[len(bom) :], by_bom)
    encoding = _header_encoding(content_type) or _declared_encoding(body, marked_up)
    if encoding is None and _is_iso_2022_jp(body):
        return _decode(body, _guess(body))
    if encoding in (None, UTF_8):
        try:
            return body.decode(), UTF_8
        except UnicodeDecodeError:
            encoding = _declared_encoding(body, marked_up)
    return _decode(body, _correct(body, encoding or UTF_8))


@lru_cache(maxsize=64)  # many hosts declare the same few
def declared_charset(content_type: str) -> str:
    """Return the charset of a Content-Type as it is written there, or ""."""
    found = _header_label(content_type)
    return (found[1] or found[2] or "").strip() if found else ""


def declared_encoding(head: bytes) -> str:
    """Return Python's name of the encoding that markup declares; UTF-8 if it is not of the web."""
    return _declared_encoding(head, marked_up=True) or UTF_8


def _decode(body: bytes, encoding: str) -> tuple[str, str]:
    return to_unicode(body, encoding), _NAMES.get(encoding, encoding)


def _correct(body: bytes, encoding: str) -> str:
    """Correct a declared *encoding*: a body declared wrongly is most often UTF-8, or said to be."""
    beyond_ascii = len(body.translate(None, delete=_ASCII))
    if not beyond_ascii:
        return encoding
    try:
        body.decode()
    except UnicodeDecodeError:
        if encoding != UTF_8:
            return encoding
    else:
        return UTF_8 if beyond_ascii >= _SURELY_UTF_8_BYTES else encoding
    broken = to_unicode(body, UTF_8).count("\ufffd")
    # A single broken letter, or a page cut in a letter, may still be UTF-8: there a letter beyond
    # ASCII takes two or more bytes; in another encoding each becomes a U+FFFD.
    cut = broken == 1 and beyond_ascii < 4 and body[-1] > 127
    return UTF_8 if cut or beyond_ascii > 3 * broken else _guess(body)


def _is_iso_2022_jp(body: bytes) -> bool:
    """Return whether the body shifts to Japanese as ISO-2022-JP does."""
    found = _beyond_ascii(body) if b"\x1b$" in body else None
    return found is not None and found[0] == b"\x1b$"


def _guess(body: bytes) -> str:
    """Guess the encoding by the frequencies of letters (as Firefox does); never UTF-8."""
    found = _beyond_ascii(body)
    begin = found.start() if found else 0
    end = begin + _GUESSED_FROM
    detector = EncodingDetector()
    detector.feed(body[begin:end], last=end >= len(body))
    return _PYTHON.get(detector.guess(tld=None, allow_utf8=False).lower(), _WESTERN)


@lru_cache(maxsize=256)
def _header_encoding(content_type: str) -> str | None:
    found = _header_label(content_type)
    return _PYTHON.get((found[1] or found[2] or "").strip().lower()) if found else None


def _declared_encoding(body: bytes, marked_up: bool) -> str | None:
    label = _declared_label(body[:_DECLARED_WITHIN].decode("latin-1")) if marked_up else None
    encoding = _PYTHON.get(label.strip().lower()) if label else None
    # The declaration was read as ASCII, so the page is not in UTF-16.
    return UTF_8 if encoding and encoding.startswith("utf-16") else encoding


def _declared_label(head: str) -> str | None:
    for found in _declarations(head):
        label = None
        if found["xml"] is not None:
            label = _values(found["xml"]).get("encoding")
        elif found["meta"] is not None:
            attributes = _values(found["meta"])
            label = attributes.get("charset")
            if label is None and any(_names_type(attributes.get(name, "")) for name in _PRAGMA):
                content = _content_label(attributes.get("content", ""))
                label = content[1] if content else None
        elif found[0][:4] != "<!--":
            return None  # the body begins
        if label:
            return label
    return None


def _values(attributes: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, double, single, bare in _attributes(attributes):
        found.setdefault(name.lower(), double or single or bare)
    return found


# Queries of links (WHATWG URL, "query state"): in the encoding of the page, but in UTF-8 if that is
# an encoding that only decodes. Paths are in UTF-8 always.

_DECODES_ONLY: Final = frozenset({UTF_8, "utf-16le", "utf-16be"})
_run_beyond_ascii = re.compile(r"[^\x00-\x7f]+").sub
# What may stand in a query. WHATWG would leave more, as the second byte of a letter may be a
# backslash; servers refuse those with 400 (RFC 3986 allows none of them).
_IN_QUERY: Final = "-._~!$&()*+,;=:@/?"
_HKSCS_ONLY: Final = 0xA1  # Big5 letters whose first byte is below are read, but never written
_JIS_ROWS: Final = 94


def encode_query(url: str, charset: str) -> str:
    """Return *url*, a link as written, with the query as a browser sends it for a page in
    *charset* (a WHATWG name). A letter that the encoding lacks becomes a character reference."""
    if url.isascii() or charset in _DECODES_ONLY or charset not in _PYTHON:
        return url
    head, mark, fragment = url.partition("#")
    path, question, query = head.partition("?")
    encoded = _run_beyond_ascii(lambda run: _escaped_letters(run[0], charset), query)
    return f"{path}{question}{encoded}{mark}{fragment}"


def _escaped_letters(letters: str, charset: str) -> str:
    if charset == "iso-2022-jp":
        return _in_iso_2022_jp(letters)
    return "".join([_escaped_letter(letter, charset) for letter in letters])


@lru_cache(maxsize=16_384)  # the letters of East Asia that a page may repeat
def _escaped_letter(letter: str, charset: str) -> str:
    encoded = _in_jis(letter, charset) if charset in _OF_JIS else _encoded(letter, charset)
    return quote(encoded, _IN_QUERY) if encoded else _reference(letter)


def _reference(letter: str) -> str:
    is_half = "\ud800" <= letter < "\ue000"  # of a pair
    return f"%26%23{0xFFFD if is_half else ord(letter)}%3B"


def _encoded(letter: str, charset: str) -> bytes | None:
    if charset == "gbk" and letter == "\u20ac":
        return b"\x80"
    try:
        encoded = letter.encode(_PYTHON[charset])
    except UnicodeEncodeError:
        return None
    # Some codecs also write a similar letter in place of one that they lack.
    if encoded.decode(_PYTHON[charset]) != letter:
        return None
    if charset == "big5" and encoded[0] < _HKSCS_ONLY:
        return None
    # Four bytes are in GB 18030 only. Both encode no letter as what decodes to U+E5E5.
    is_beyond_gbk = charset == "gbk" and len(encoded) > 2
    return None if is_beyond_gbk or (letter == "\ue5e5" and charset[0] == "g") else encoded


_JIS_ASCII: Final = {"\u00a5": b"\\", "\u203e": b"~"}
_OF_JIS: Final = frozenset({"euc-jp", "shift_jis"})
_MINUS: Final = {"\u2212": "\uff0d"}
# Python's codecs read some letters as others than the standard does.
_OF_STANDARD: Final = _MINUS | {
    "\u301c": "\uff5e",
    "\u2016": "\u2225",
    "\xa2": "\uffe0",
    "\xa3": "\uffe1",
    "\xac": "\uffe2",
}
# ISO-2022-JP has no letters of half width. NFKC would combine the last two, which are marks.
_FULL_WIDTH: Final = _OF_STANDARD | {
    **{chr(code): normalize("NFKC", chr(code)) for code in range(0xFF61, 0xFF9E)},
    "\uff9e": "\u309b",
    "\uff9f": "\u309c",
}


def _in_jis(letter: str, charset: str) -> bytes | None:
    if letter in _JIS_ASCII:
        return _JIS_ASCII[letter]
    if charset == "shift_jis":
        letter = _MINUS.get(letter, letter)
        # The codec also reads letters that were never assigned.
        return None if "\ue000" <= letter < "\uf900" else _encoded(letter, charset)
    if "\uff61" <= letter <= "\uff9f":  # Katakana of half width
        return bytes((0x8E, ord(letter) - 0xFF61 + 0xA1))
    at = _jis_places().get(_OF_STANDARD.get(letter, letter))
    return None if at is None else bytes(0xA1 + each for each in divmod(at, _JIS_ROWS))


def _in_iso_2022_jp(letters: str) -> str:
    """Encode *letters*, of which ASCII precedes and follows, by escapes between its three sets."""
    encoded, mode = [], "(B"
    for written in letters:
        letter = _FULL_WIDTH.get(written, written)
        at = _jis_places().get(letter)
        wanted = "(J" if letter in _JIS_ASCII else "(B" if at is None else "$B"
        if wanted != mode:
            encoded.append(f"%1B{wanted}")
            mode = wanted
        if at is not None:
            each = bytes(0x21 + part for part in divmod(at, _JIS_ROWS))
        else:
            each = _JIS_ASCII.get(letter, b"")
        encoded.append(quote(each, _IN_QUERY) if each else _reference(letter))
    return "".join(encoded) + ("" if mode == "(B" else "%1B(B")


@cache
def _jis_places() -> dict[str, int]:
    """Return the places of letters in JIS X 0208 with the rows of NEC, the first of each. Shift_JIS
    has them in order, two rows to a first byte."""
    places: dict[str, int] = {}
    for at in range(_JIS_ROWS * _JIS_ROWS):
        lead, trail = divmod(at, 2 * _JIS_ROWS)
        lead += 0x81 if lead < 0x1F else 0xC1
        trail += 0x40 if trail < 0x3F else 0x41
        letter = bytes((lead, trail)).decode("cp932", "ignore")
        if letter:
            places.setdefault(letter, at)
    return places


# Content codings: gzip, deflate, brotli, zstd. Whatever comes in, at most *room* bytes and one come
# out; of a damaged body, what precedes the damage is kept.

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS: Final = 3  # guess: two occur where a proxy compresses a second time
MAX_STREAMS: Final = 64  # guess; in a row, as gzip and zstd allow. Each costs a copy of the rest
MAX_WINDOW_LOG: Final = 23  # RFC 9659: zstd may ask for 8 MB on the web, no more
SLICES: Final = 4096  # how finely a damaged body is cut to find where the damage begins
NOT_CODED: Final = frozenset({b"", b"identity", b"none", b"utf-8", b"utf8", b"binary", b"8bit"})
"""What servers send when there is no coding, or in place of the charset."""

_NOT_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_LOOKED_AT_BYTES: Final = 512
_DEFLATE: Final = 8  # the only method of zlib and gzip
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15  # zlib's names of the three formats


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """A body without its codings, as far as it could be decoded."""

    body: bytes
    flags: frozenset[Flag] = frozenset()


class Stream(Protocol):
    """The decoder of one coded stream."""

    def feed(self, data: bytes, room: int) -> bytes:
        """Return about *room* bytes (at least 1) of what *data* and all before it hold. Raises one
        of DAMAGE."""

    @property
    def rest(self) -> bytes | None:
        """The bytes after the end, or None if the end has not come."""


def codings_of(values: Iterable[bytes]) -> list[bytes]:
    """Return the codings in all Content-Encoding lines, in the order they were applied."""
    names = (name.strip().lower() for value in values for name in value.split(b","))
    return [name for name in names if name not in NOT_CODED]


def undo_codings(body: bytes, codings: list[bytes], max_bytes: int) -> DecodedBody:
    """Undo *codings*, the last one first; if one is unknown or there are too many, none of them."""
    if len(codings) > MAX_CODINGS or not all(name in STREAMS for name in codings):
        return DecodedBody(body, frozenset({Flag.UNDECODED}))
    flags: frozenset[Flag] = frozenset()
    for name in reversed(codings):
        step = _undo(body, STREAMS[name], max_bytes) if body else DecodedBody(b"")
        body, flags = step.body, flags | step.flags
    return DecodedBody(body, flags)


def _undo(body: bytes, open_stream: Callable[[bytes], Stream], room: int) -> DecodedBody:
    try:
        output, flaw = _undo_at_once(body, open_stream, room + 1)
    except DAMAGE:
        output, flaw = _undo_until_damage(body, open_stream, room + 1), Flag.DECODED_BROKEN
    if len(output) > room:
        return DecodedBody(output[:room], frozenset({Flag.DECODED_LENGTH}))
    if flaw is None:
        return DecodedBody(output)
    if not output and not _NOT_TEXT.search(body[:_LOOKED_AT_BYTES]):
        # It was not coded: some servers decompress a body but keep its header.
        output, flaw = body[:room], Flag.DECODED_BROKEN
    return DecodedBody(output, frozenset({flaw}))


def _undo_at_once(
    body: bytes, open_stream: Callable[[bytes], Stream], room: int
) -> tuple[bytes, Flag | None]:
    """Decode all of it, and name its flaw, if any. The usual case: one call, no copy."""
    stream = open_stream(body)
    output = stream.feed(body, room)
    for _ in range(MAX_STREAMS):
        rest = stream.rest
        # Bytes after the end that begin no stream of the same kind are ignored, as browsers do.
        if not rest or rest[:3] != body[:3] or len(output) >= room:
            return output, Flag.DECODED_CUT if rest is None else None
        stream = open_stream(rest)
        output += stream.feed(rest, room - len(output))
    return output, Flag.DECODED_BROKEN


def _undo_until_damage(body: bytes, open_stream: Callable[[bytes], Stream], room: int) -> bytes:
    """Decode in small slices: a decoder that raises loses only the output of its last slice."""
    stream = open_stream(body)
    output = bytearray()
    step = max(16, len(body) // SLICES)
    for start in range(0, len(body), step):
        try:
            output += stream.feed(body[start : start + step], room - len(output))
        except DAMAGE:
            break
        if len(output) >= room or stream.rest is not None:
            break
    return bytes(output)


class _Inflate:
    def __init__(self, window_bits: int) -> None:
        self._stream = isal_zlib.decompressobj(window_bits)

    def feed(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    @property
    def rest(self) -> bytes | None:
        return self._stream.unused_data if self._stream.eof else None


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes, room: int) -> bytes:
        output: bytes = self._stream.process(data, output_buffer_limit=room)
        return output

    @property
    def rest(self) -> bytes | None:
        return b"" if self._stream.is_finished() else None


class _Zstd:
    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): MAX_WINDOW_LOG}
        self._stream = zstd.ZstdDecompressor(options=options)

    def feed(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    @property
    def rest(self) -> bytes | None:
        return self._stream.unused_data if self._stream.eof else None


def _deflate(body: bytes) -> Stream:
    """Open deflate with zlib's header, as the standard says, or without, as Microsoft sent it."""
    has_method = body[0] & 0x0F == _DEFLATE
    is_zlib = has_method and int.from_bytes(body[:2], "big") % 31 == 0  # RFC 1950 2.2
    return _Inflate(_ZLIB_BITS if is_zlib else _RAW_BITS)


STREAMS: Final[dict[bytes, Callable[[bytes], Stream]]] = {
    b"gzip": lambda body: _Inflate(_GZIP_BITS),
    b"x-gzip": lambda body: _Inflate(_GZIP_BITS),
    b"deflate": _deflate,
    b"br": lambda body: _Brotli(),
    b"zstd": lambda body: _Zstd(),
}
DAMAGE: Final[tuple[type[Exception], ...]] = (
    cast("type[Exception]", isal_zlib.error),  # its stubs call it an instance
    brotli.error,
    zstd.ZstdError,
    EOFError,
    ValueError,
)
