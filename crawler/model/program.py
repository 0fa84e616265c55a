"""The name of the program that was typed, for messages that name a command to type."""

from __future__ import annotations

import re
import sys
from typing import Final, Literal

PROGRAM: Final[Literal["gossamer", "scrapy"]] = (
    "gossamer" if re.search(r"\bgossamer(\.\w+)?$", sys.argv[0]) else "scrapy"
)
"""`gossamer` in a process of the console script (`crawler/cli/gossamer.py`) and in the workers that
it starts. Else `scrapy`, which a clone has without being installed."""
