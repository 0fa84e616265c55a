"""What a person can type next."""

from __future__ import annotations

import shlex

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from crawler.core.content_settings import Archive


def frontier_command(action: str, data_dir: str) -> str:
    """`scrapy frontier` with *action*, on *data_dir*."""
    if data_dir == Archive().data_dir:
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
