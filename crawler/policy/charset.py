"""Bytes of a page to text: by its BOM, else its header, else its own words, else by looking.

Rule: only the encodings of the web (WHATWG Encoding, 4.2), by all of their labels. Python knows
others, and some of them are traps: `zip` and `idna` raise, `punycode` takes quadratic time. What
declares nothing and is no UTF-8 is guessed from its first letters beyond ASCII
(docs/decisions/0033).
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Final

from chardetng_py import EncodingDetector  # type: ignore[import-untyped]  # it ships no types
from w3lib.encoding import read_bom, to_unicode
from webencodings.labels import LABELS  # type: ignore[import-untyped]  # it ships no types

UTF_8: Final = "utf-8"
_WESTERN: Final = "cp1252"
# Chinese in two bytes a letter is valid UTF-8 by chance once in six letters.
_SURELY_UTF_8_BYTES: Final = 12
_ASCII: Final = bytes(range(128))

_DECLARED_WITHIN: Final = (
    4096  # bytes; browsers look at 1,024, and read again where they find later
)
_GUESSED_FROM: Final = 64 * 1024  # bytes: 168 of 170 real pages right in 5 ms; 159 with 16 KB

# Where Python's best codec for an encoding of the web is not called like it. Those of East Asia
# have letters that the codec of the same name lacks.
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
_NO_TEXT: Final = frozenset({"replacement", "x-user-defined"})  # one letter; glyphs of a font
_NAMES: Final = {
    codecs.lookup(_CODECS.get(name, name)).name: name
    for name in (*sorted(set(LABELS.values()) - _NO_TEXT), "iso-8859-8", "gb18030")
}
"""The names the web has, by Python's."""
_PYTHON: Final = {
    label: codecs.lookup(_CODECS.get(name, name)).name
    for label, name in LABELS.items()
    if name not in _NO_TEXT
}
# An old name of UTF-16 that the standard left to Python.
_PYTHON["utf-16"] = "utf-16-le"

_header_label = re.compile(
    r"""(?:^|;)[ \t]*charset[ \t]*=[ \t]*(?:"[ \t]*([^"]*)"|'?([^\s;,"']+))""", re.IGNORECASE
).search
# Each letter is read once at most.
_declarations = re.compile(
    r"""<!--.*?(?:-->|$)
    | <meta(?=[\s/])(?P<meta>(?:[^<>=]|=\s*(?:"[^"]*"|'[^']*')?)*)
    | <\?xml\s(?P<xml>[^<>]*)
    | <body[\s>]""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
).finditer
_attributes = re.compile(r"""([^\s/>="']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""").findall
_content_label = re.compile(r"""charset\s*=\s*["']?\s*([^\s;"']+)""", re.IGNORECASE).search
_names_type = re.compile(r"content[-_ ]?type", re.IGNORECASE).search
_PRAGMA: Final = frozenset({"http-equiv", "http_equiv", "httpequiv"})  # misspelt so, too

# Markup in UTF-16 without a BOM: "<", and a letter, "!" or "?" behind it.
_utf_16_le = re.compile(rb"(?:[ \t\r\n]\0)*<\0[A-Za-z!?]\0").match
_utf_16_be = re.compile(rb"(?:\0[ \t\r\n])*\0<\0[A-Za-z!?]").match
_beyond_ascii = re.compile(rb"[\x80-\xff]|\x1b\$").search  # or ISO-2022-JP


def unicode_mark(body: bytes) -> tuple[str, bytes] | tuple[None, None]:
    """The encoding that its first bytes show, and its BOM, which may be empty."""
    by_bom = read_bom(body)
    if by_bom[0] is None and b"\0" in body[:2]:
        if _utf_16_le(body):
            return "utf-16-le", b""
        if _utf_16_be(body):
            return "utf-16-be", b""
    return by_bom


def read_text(body: bytes, content_type: str, *, marked_up: bool = True) -> tuple[str, str]:
    """The text, and the WHATWG name of the encoding it was read with. Never fails: what cannot
    be read becomes U+FFFD. *marked_up*: the body may declare its encoding, as HTML does."""
    by_bom, bom = unicode_mark(body)
    if by_bom is not None and bom is not None:
        return _read(body[len(bom) :], by_bom)
    told = _by_header(content_type) or _by_itself(body, marked_up)
    if told is None and _in_seven_bits(body):
        return _read(body, _guess(body))
    if told in (None, UTF_8):
        try:
            return body.decode(), UTF_8
        except UnicodeDecodeError:
            told = _by_itself(body, marked_up)
    return _read(body, _likely(body, told or UTF_8))


def declared(head: bytes) -> str:
    """What markup says itself that it is in, as Python calls it; UTF-8 if nothing of the web."""
    return _by_itself(head, marked_up=True) or UTF_8


def _read(body: bytes, encoding: str) -> tuple[str, str]:
    return to_unicode(body, encoding), _NAMES.get(encoding, encoding)


def _likely(body: bytes, told: str) -> str:
    """What is declared wrongly is most often UTF-8, or said to be."""
    beyond_ascii = len(body.translate(None, delete=_ASCII))
    if not beyond_ascii:
        return told
    try:
        body.decode()
    except UnicodeDecodeError:
        if told != UTF_8:
            return told
    else:
        return UTF_8 if beyond_ascii >= _SURELY_UTF_8_BYTES else told
    broken = to_unicode(body, UTF_8).count("\ufffd")
    # One broken letter, or a page cut in the middle of one, makes it no other: a letter beyond
    # ASCII takes two bytes and more, one of another encoding becomes one U+FFFD.
    cut = broken == 1 and beyond_ascii < 4 and body[-1] > 127
    return UTF_8 if cut or beyond_ascii > 3 * broken else _guess(body)


def _in_seven_bits(body: bytes) -> bool:
    """Whether it shifts to Japanese as ISO-2022-JP does."""
    found = _beyond_ascii(body) if b"\x1b$" in body else None
    return found is not None and found[0] == b"\x1b$"


def _guess(body: bytes) -> str:
    """Of what it may be in, by the frequencies of letters (as Firefox does); never UTF-8."""
    found = _beyond_ascii(body)
    begin = found.start() if found else 0
    end = begin + _GUESSED_FROM
    detector = EncodingDetector()
    detector.feed(body[begin:end], last=end >= len(body))
    return _PYTHON.get(detector.guess(tld=None, allow_utf8=False).lower(), _WESTERN)


@lru_cache(maxsize=256)
def _by_header(content_type: str) -> str | None:
    found = _header_label(content_type)
    return _PYTHON.get((found[1] or found[2] or "").strip().lower()) if found else None


def _by_itself(body: bytes, marked_up: bool) -> str | None:
    label = _declared_label(body[:_DECLARED_WITHIN].decode("latin-1")) if marked_up else None
    told = _PYTHON.get(label.strip().lower()) if label else None
    # As UTF-16 it could not have been read so far.
    return UTF_8 if told and told.startswith("utf-16") else told


def _declared_label(head: str) -> str | None:
    for found in _declarations(head):
        label = None
        if found["xml"] is not None:
            label = _values(found["xml"]).get("encoding")
        elif found["meta"] is not None:
            given = _values(found["meta"])
            label = given.get("charset")
            if label is None and any(_names_type(given.get(name, "")) for name in _PRAGMA):
                content = _content_label(given.get("content", ""))
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
