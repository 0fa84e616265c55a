"""Dates as pages write them.

Rule: never fails; a date without a zone is taken for UTC, one that makes no sense for none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_LONGEST: Final = 64  # letters; no date is written so long


def epoch(written: str) -> float | None:
    """Epoch seconds of an ISO 8601 or an e-mail date."""
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
