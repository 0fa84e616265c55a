"""Bytes of a page to text: its content codings (gzip, brotli...) and its character encoding.

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
from functools import lru_cache
from typing import Final, Protocol, cast

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
    "gbk": "gb18030",
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
    codecs.lookup(_CODECS.get(name, name)).name: name
    for name in (*sorted(set(LABELS.values()) - _NO_TEXT), "iso-8859-8", "gb18030")
}
"""Names of the web (WHATWG), by Python's."""
_PYTHON: Final = {
    label: codecs.lookup(_CODECS.get(name, name)).name
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
