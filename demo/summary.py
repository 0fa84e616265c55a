"""What the crawler says of its crawl, as far as the story needs it.

Rule: the one place here that knows the summary's keys. What is missing is None, and the
story leaves it out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "summary.json"


@dataclass(frozen=True, slots=True)
class Summary:
    """What no server can see."""

    duplicates: int | None = None
    dead_letters: int | None = None
    left: int | None = None  # URLs of patterns that had brought enough


def read_summary(data_dir: Path) -> Summary:
    """The summary of the crawl that kept its things in *data_dir*."""
    try:
        figures = json.loads((data_dir / FILE).read_text())
    except FileNotFoundError:  # the crawl ended before it could write one
        return Summary()
    return Summary(
        duplicates=figures.get("duplicates"),
        dead_letters=figures.get("dead_letters"),
        left=figures.get("links", {}).get("left"),
    )
