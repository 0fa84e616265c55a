"""Settings of Scrapy's that have no effect here, because something of ours does their work.

Rule: told, not ignored. Somebody who sets DOWNLOAD_DELAY = 10 counts on ten seconds, and a
host is not to learn that they were one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings

from crawler.core.errors import ConfigError

SCHEDULER: Final = "crawler.scheduler.scheduler.FrontierScheduler"
DOWNLOADER: Final = "crawler.download.downloader.FrontierDownloader"

REPLACED: Final[Mapping[str, tuple[object, str]]] = {
    # name: (the value that says what is done anyway, what to do instead)
    "SCHEDULER": (SCHEDULER, "the frontier is the scheduler here"),
    "DOWNLOADER": (DOWNLOADER, "the frontier needs its own downloader"),
    "ROBOTSTXT_OBEY": (True, "robots.txt is always obeyed"),
    "ROBOTSTXT_USER_AGENT": (None, "use CRAWLER_USER_AGENT_NAME"),
    "USER_AGENT": (default_settings.USER_AGENT, "use CRAWLER_USER_AGENT_NAME and CRAWLER_CONTACT"),
    "DOWNLOAD_DELAY": (0, "use CRAWLER_MIN_DELAY_S"),
    "AUTOTHROTTLE_ENABLED": (False, "use CRAWLER_DELAY_FACTOR"),
    "DOWNLOAD_TIMEOUT": (default_settings.DOWNLOAD_TIMEOUT, "use CRAWLER_TOTAL_TIMEOUT_S"),
    "DOWNLOAD_MAXSIZE": (
        default_settings.DOWNLOAD_MAXSIZE,
        "use CRAWLER_HTML_MAX_BYTES, CRAWLER_PDF_MAX_BYTES and CRAWLER_OTHER_MAX_BYTES",
    ),
    "DOWNLOAD_VERIFY_CERTIFICATES": (True, "use CRAWLER_TLS"),
    "RETRY_ENABLED": (True, "use CRAWLER_RETRIES"),
    "RETRY_TIMES": (default_settings.RETRY_TIMES, "use CRAWLER_RETRIES"),
    "REDIRECT_ENABLED": (True, "use CRAWLER_MAX_REDIRECTS"),
    "REDIRECT_MAX_TIMES": (default_settings.REDIRECT_MAX_TIMES, "use CRAWLER_MAX_REDIRECTS"),
    "URLLENGTH_LIMIT": (default_settings.URLLENGTH_LIMIT, "use CRAWLER_MAX_URL_LENGTH"),
}


def refuse_replaced(settings: BaseSettings) -> None:
    """Raise ConfigError for a setting that the project, the spider or the command line has."""
    for name, (same, instead) in REPLACED.items():
        priority = settings.getpriority(name)
        if priority is None or priority <= SETTINGS_PRIORITIES["addon"]:
            continue
        value = settings[name]
        if str(value) != str(same):
            raise ConfigError(f"{name} is {value!r}, but has no effect here: {instead}")
