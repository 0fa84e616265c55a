"""What a person can type next."""

from __future__ import annotations

import shlex
import sys
from typing import Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from crawler.config.settings import ArchiveSettings
from crawler.model.types import CrawlerError


def frontier_command(action: str, data_dir: str) -> str:
    """`scrapy frontier` with *action*, on *data_dir*."""
    if data_dir == ArchiveSettings().data_dir:
        return f"scrapy frontier {action}"
    return f"scrapy frontier {action} -s {shlex.quote(f'CRAWLER_DATA_DIR={data_dir}')}"


def shared_command(action: str, settings: BaseSettings) -> str:
    """The same on a crawl that workers share. What was typed to find it must be typed again, but
    is not shown where it may hold a password."""
    shown = {
        "CRAWLER_FRONTIER_URL": "...",
        "CRAWLER_FRONTIER_NAME": settings["CRAWLER_FRONTIER_NAME"],
    }
    typed = [
        f"-s {shlex.quote(f'{name}={value}')}"
        for name, value in shown.items()
        if settings.getpriority(name) == SETTINGS_PRIORITIES["cmdline"]
    ]
    return " ".join(["scrapy frontier", action, *typed])


# An error of ours, as the person at the command line reads it.

NAME: Final = "gossamer"


def complain(error: CrawlerError | str) -> None:
    """One sentence, no traceback: it is about the user's input or machine, not our code."""
    print(f"{NAME}: error: {error}", file=sys.stderr, flush=True)
