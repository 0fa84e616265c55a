"""Validators of an answer: what a server is asked by whether a page has changed (RFC 9110, 8.8 and
13.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Final

MAX_BYTES: Final = 128
"""Of an ETag that is kept: longer ones are as long as what they are for."""
_is_etag = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"').fullmatch
_FUTURE_S: Final = 60.0  # by which the clock of a server may be ahead


def validators_of(headers: Iterable[tuple[bytes, bytes]], at: float) -> str | None:
    """Return the validators of an answer with *headers*, fetched *at* that time, or None: a wrongly
    quoted or long ETag and a date in the future are none."""
    etag = modified = b""
    for name, value in headers:
        match name.lower():
            case b"etag" if len(value) <= MAX_BYTES and _is_etag(value):
                etag = value
            case b"last-modified" if _is_past(value, at):
                modified = value
    if not etag and not modified:
        return None
    return f"{etag.decode('latin-1')}\n{modified.decode('latin-1')}"


def conditions(validators: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request that asks for the page only if it has changed."""
    etag, _, modified = validators.partition("\n")
    asked = ((b"If-None-Match", etag), (b"If-Modified-Since", modified))
    return [(name, value.encode("latin-1")) for name, value in asked if value]


def _is_past(date: bytes, at: float) -> bool:
    try:
        return parsedate_to_datetime(date.decode("ascii")).timestamp() <= at + _FUTURE_S
    except (ValueError, TypeError, OverflowError, IndexError):
        return False
