"""Reads the dates of pages.

Rule: it never raises. A date without a zone counts as UTC, and an invalid date as none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_LONGEST: Final = 64  # letters; no date is written so long


def epoch(written: str) -> float | None:
    """Return the epoch seconds of an ISO 8601 or an e-mail date, or None."""
    written = written.strip()
    if not written or len(written) > _LONGEST:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            date = read(written)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, TypeError, IndexError):
            continue
    return None
