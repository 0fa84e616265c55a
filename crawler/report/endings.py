"""How a crawl ended: Scrapy's finish reasons as sentences for the user.

Rule: a reason that is not in the table, as of a user's own component, is shown as it is.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

ENDINGS: Final = MappingProxyType(
    {
        "finished": "Finished: nothing is left to fetch",
        "until": "Finished: it was to run until then",
        "rounds": "Finished: its rounds are over",
        "max_pages": "Stopped: as many pages as max_pages asks for",
        "max_bytes": "Stopped: as many bytes as max_bytes asks for",
        "shutdown": "Stopped on request (Ctrl-C or a signal)",
        "bad_seeds": "Not begun: the seeds are not usable",
        "start_error": "Not begun: the spider failed to start",
        "no_uplink": "Stopped: our own connection is down, so nothing was reached; no URL is lost",
        "store_failed": "Stopped: a store failed; what was acknowledged is safe",
        "no_browser": "Stopped: no browser starts; install one, or set CRAWLER_RENDER=never",
        "memusage_exceeded": "Stopped: it took more memory than MEMUSAGE_LIMIT_MB",
        "closespider_timeout": "Stopped: the time of CLOSESPIDER_TIMEOUT is over",
    }
)
NOT_BEGUN: Final = frozenset({"bad_seeds", "start_error"})
FAILED: Final = NOT_BEGUN | {"store_failed", "no_uplink", "no_browser"}
"""These end the command with a status other than 0."""
TRY_AGAIN: Final = 75
"""The exit status if the same command may succeed later: EX_TEMPFAIL of sysexits.h."""


def ending(reason: str, failure: str = "") -> str:
    """Return one sentence for *reason*, without its full stop."""
    sentence = ENDINGS.get(reason, f"Stopped: {reason}")
    return f"{sentence} ({failure})" if failure else sentence
