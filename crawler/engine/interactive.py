"""Interactive runs: the commands fetch, view, shell, parse and check, which fetch pages for the
user outside any crawl.

Rule: politeness as in any crawl (user agent, robots.txt, one request to a host at a time and a
pause after it, no inside addresses), but no data outlives the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scrapy.settings import BaseSettings

SCHEDULER: Final = "crawler.scheduler.interactive.InteractiveScheduler"
"""Interactive commands have this among their default settings, which identifies them."""

SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_WARC": False,
    "CRAWLER_COLUMNS": False,
    "CRAWLER_CHANGES": False,
    "CRAWLER_ARCHIVE_URL": "",
    "CRAWLER_FRONTIER_URL": "",
    "JOBDIR": None,  # Scrapy's scheduler would pickle its requests there
    "DOWNLOAD_DELAY_JITTER": 0,  # else a pause could be half of the shortest
    "STATS_DUMP": False,
}
"""Settings of interactive runs, which override those of the project."""


def is_interactive(settings: BaseSettings) -> bool:
    return bool(settings["SCHEDULER"] == SCHEDULER)
