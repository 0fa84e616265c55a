"""An error of ours, as the person at the command line reads it."""

from __future__ import annotations

import sys
from typing import Final

from crawler.core.errors import CrawlerError

NAME: Final = "gossamer"


def complain(error: CrawlerError | str) -> None:
    """One sentence, no traceback: it is about the user's input or machine, not our code."""
    print(f"{NAME}: error: {error}", file=sys.stderr, flush=True)
