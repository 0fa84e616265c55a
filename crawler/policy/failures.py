"""The kinds of failure of a fetch, by the words of counters, outcomes, summary and metrics."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

WORDS: Final = MappingProxyType(
    {
        "broken": "error in a callback or pipeline",
        "connect": "no connection",
        "disconnect": "left amid the answer",
        "dns": "name not found",
        "redirects": "redirects without an end",
        "robots_failed": "robots.txt not fetched",
        "robots_unreachable": "robots.txt unreachable",
        "tls": "no trustworthy TLS connection",
    }
)
"""Readable words for the kinds of errors that are not clear by themselves."""

_STATUSES: Final = (408, 429, *range(500, 512), *range(520, 531))
"""Those that are registered, and Cloudflare's."""

FAILURES: Final = (
    *("timeout", "connect", "dns", "tls", "protocol", "disconnect", "redirects"),
    *("robots_unreachable", "robots_failed", "broken", "other"),
    *(f"status_{status}" for status in _STATUSES),
    "status_5xx",
)
"""All kinds. `robots_failed` counts fetches of a robots.txt, which have no outcome."""


def status_failure(status: int) -> str:
    """Return the kind of failure of a page that is tried again for its *status*."""
    return f"status_{status}" if status in _STATUSES else "status_5xx"


def words_of(kind: str) -> str:
    """Return a kind of error in readable words: `status_503` is "status 503"."""
    return WORDS.get(kind, kind.replace("_", " "))
