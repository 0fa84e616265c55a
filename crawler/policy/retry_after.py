"""How long a Retry-After header asks us to stay away (RFC 9110, 10.2.3): seconds, or a date.

Rule: any bytes may come. What cannot be read asks for nothing; a date gone by asks for 0 s.
"""

from __future__ import annotations

import re
from calendar import timegm
from email.utils import parsedate_tz
from typing import Final

MAX_BYTES: Final = 64
"""The longest form of a date has 33 (RFC 850); no more is looked at."""

_is_seconds = re.compile(rb"(\d+)(?:\.\d*)?").fullmatch
# A weekday and a time must be there: parsedate_tz reads a date into much else.
_is_date = re.compile(rb"[A-Za-z]+,? [\x20-\x7e]*\d\d:\d\d:\d\d[\x20-\x7e]*").fullmatch


def retry_after_s(value: bytes, now: float, max_s: float) -> float | None:
    """Seconds from *now*, from 0 to *max_s*. None: it does not say."""
    text = value.strip()
    seconds = _is_seconds(text)
    if seconds:
        # Rounded up, and ten digits are beyond any maximum: no huge number is ever built.
        digits = seconds[1].lstrip(b"0")
        return min(max_s, float(digits[:10] or b"0") + (b"." in text))
    if len(text) > MAX_BYTES or not _is_date(text):
        return None
    at = _epoch_s(text.decode("ascii"))
    return None if at is None else min(max_s, max(0.0, at - now))


def _epoch_s(text: str) -> float | None:
    try:
        parts = parsedate_tz(text)
        if parts is None:
            return None
        return float(timegm((*parts[:6], 0, 1, 0)) - (parts[9] or 0))  # no zone: GMT
    except (ValueError, OverflowError):  # a year that no calendar has
        return None
