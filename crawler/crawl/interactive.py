"""Errands: what the commands fetch, view, shell, parse and check do. A person asks for a page, and
gets it; no crawl is begun, gone on with, or disturbed.

Rule: manners as in any crawl (who we say we are, robots.txt, one request to a host at a time and a
pause after it, no inside addresses), but nothing is kept, and nothing outlives the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scrapy.settings import BaseSettings

SCHEDULER: Final = "crawler.scheduler.interactive.ErrandScheduler"
"""A command that is an errand has it among its default settings: by that it is known."""

SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_WARC": False,
    "CRAWLER_COLUMNS": False,
    "CRAWLER_ARCHIVE_URL": "",
    "CRAWLER_FRONTIER_URL": "",
    "JOBDIR": None,  # Scrapy's scheduler would pickle its requests there
    "DOWNLOAD_DELAY_JITTER": 0,  # else half of what is the shortest pause
    "STATS_DUMP": False,
}
"""What holds during one, whatever the project says."""


def is_interactive(settings: BaseSettings) -> bool:
    return bool(settings["SCHEDULER"] == SCHEDULER)
