"""Bytes of a page to text.

Rule: only the encodings of the web (WHATWG Encoding, 4.2). Python knows others, and some of
them are traps: `zip` and `idna` raise, `punycode` takes quadratic time.
"""

from __future__ import annotations

import codecs
from typing import Final

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    to_unicode,
)

_OF_THE_WEB: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ibm866", "koi8-r", "koi8-u", "mac-roman"),
        *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        *("cp874", *(f"cp{page}" for page in range(1250, 1259)), "mac-cyrillic"),
        *("gb18030", "big5hkscs", "euc-jp", "iso-2022-jp", "cp932", "cp949"),
    )
)


def text_of(body: bytes, content_type: str) -> str:
    """Never fails: what cannot be read becomes U+FFFD."""
    by_bom, bom = read_bom(body)
    if by_bom is not None and bom is not None:
        return to_unicode(body[len(bom) :], by_bom)
    told = _of_the_web(http_content_type_encoding(content_type))
    if told is None:
        told = _of_the_web(html_body_declared_encoding(body))
        if told is not None and told.startswith("utf-16"):
            told = "utf-8"  # it could not have been read otherwise
    return to_unicode(body, told or "utf-8")


def _of_the_web(encoding: str | None) -> str | None:
    if encoding == "utf-16":
        return "utf-16-le"
    return encoding if encoding in _OF_THE_WEB else None
