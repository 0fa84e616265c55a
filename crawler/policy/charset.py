"""Bytes of a page to text: by its BOM, else its header, else its own words, else by looking.

Rule: only the encodings of the web (WHATWG Encoding, 4.2). Python knows others, and some of
them are traps: `zip` and `idna` raise, `punycode` takes quadratic time.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import Final

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    to_unicode,
)

UTF_8: Final = "utf-8"
_WESTERN: Final = "cp1252"  # what a page is in that says nothing and is no UTF-8
# Chinese in two bytes a letter is valid UTF-8 by chance once in six letters.
_SURELY_UTF_8_BYTES: Final = 12
_ASCII: Final = bytes(range(128))

# The names the web has for them, where Python has others.
_NAMES: Final = {
    **{f"iso8859-{part}": f"iso-8859-{part}" for part in range(2, 17)},
    **{f"cp{page}": f"windows-{page}" for page in (874, *range(1250, 1259))},
    "cp866": "ibm866",
    "cp932": "shift_jis",
    "cp949": "euc-kr",
    "big5hkscs": "big5",
    "euc_jp": "euc-jp",
    "iso2022_jp": "iso-2022-jp",
    "utf-16-le": "utf-16le",
    "utf-16-be": "utf-16be",
    "mac-roman": "macintosh",
    "mac-cyrillic": "x-mac-cyrillic",
}

_OF_THE_WEB: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ibm866", "koi8-r", "koi8-u", "mac-roman"),
        *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        *("cp874", *(f"cp{page}" for page in range(1250, 1259)), "mac-cyrillic"),
        *("gb18030", "big5hkscs", "euc-jp", "iso-2022-jp", "cp932", "cp949"),
    )
)


def read_text(body: bytes, content_type: str, *, marked_up: bool = True) -> tuple[str, str]:
    """The text, and the WHATWG name of the encoding it was read with. Never fails: what cannot
    be read becomes U+FFFD. *marked_up*: the body may declare its encoding, as HTML does."""
    by_bom, bom = read_bom(body)
    if by_bom is not None and bom is not None:
        return _read(body[len(bom) :], by_bom)
    told = _by_header(content_type) or _by_itself(body, marked_up)
    if told == UTF_8:
        try:
            return body.decode(), UTF_8
        except UnicodeDecodeError:
            told = _by_itself(body, marked_up)
    return _read(body, _likely(body, told))


def declared(head: bytes) -> str:
    """What markup says itself that it is in, as Python calls it; UTF-8 if nothing of the web."""
    return _by_itself(head, marked_up=True)


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
    return UTF_8 if cut or beyond_ascii > 3 * broken else _WESTERN


@lru_cache(maxsize=256)
def _by_header(content_type: str) -> str | None:
    return _of_the_web(http_content_type_encoding(content_type))


def _by_itself(body: bytes, marked_up: bool) -> str:
    told = _of_the_web(html_body_declared_encoding(body)) if marked_up else None
    # As UTF-16 it could not have been read so far.
    return UTF_8 if told is None or told.startswith("utf-16") else told


def _of_the_web(encoding: str | None) -> str | None:
    if encoding == "utf-16":
        return "utf-16-le"
    return encoding if encoding in _OF_THE_WEB else None
