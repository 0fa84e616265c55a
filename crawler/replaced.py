"""Settings of Scrapy's that have no effect here, because something of ours does their work.

Rule: told, not ignored. Somebody who sets DOWNLOAD_DELAY = 10 counts on ten seconds, and a
host is not to learn that they were one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings

from crawler.core.errors import ConfigError
from crawler.errand import is_errand
from crawler.policy.retry import RETRIED

SCHEDULER: Final = "crawler.scheduler.scheduler.FrontierScheduler"
DOWNLOADER: Final = "crawler.download.downloader.FrontierDownloader"

_ORDER: Final = "the order is the frontier's: use CRAWLER_PRIORITIZER, or a request's priority"

REPLACED: Final[Mapping[str, tuple[object, str]]] = {
    # name: (the value that says what is done anyway, what to do instead)
    "SCHEDULER": (SCHEDULER, "the frontier is the scheduler here"),
    "SCHEDULER_DISK_QUEUE": (default_settings.SCHEDULER_DISK_QUEUE, _ORDER),
    "SCHEDULER_MEMORY_QUEUE": (default_settings.SCHEDULER_MEMORY_QUEUE, _ORDER),
    "SCHEDULER_PRIORITY_QUEUE": (default_settings.SCHEDULER_PRIORITY_QUEUE, _ORDER),
    "DUPEFILTER_CLASS": (
        default_settings.DUPEFILTER_CLASS,
        "the frontier makes the seen test, which requests with dont_filter=True pass",
    ),
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
    "RETRY_HTTP_CODES": (
        default_settings.RETRY_HTTP_CODES,
        f"tried again are {', '.join(map(str, sorted(RETRIED)))}",
    ),
    "REDIRECT_ENABLED": (True, "use CRAWLER_MAX_REDIRECTS"),
    "REDIRECT_MAX_TIMES": (default_settings.REDIRECT_MAX_TIMES, "use CRAWLER_MAX_REDIRECTS"),
    "METAREFRESH_ENABLED": (
        False,
        "for web a refresh is a link, a spider of your own has to yield its target",
    ),
    "COMPRESSION_ENABLED": (True, "answers are always asked for compressed"),
    "URLLENGTH_LIMIT": (default_settings.URLLENGTH_LIMIT, "use CRAWLER_MAX_URL_LENGTH"),
}


def refuse_replaced(settings: BaseSettings) -> None:
    """Raise ConfigError for settings that the project, the spider or the command line has."""
    told = [
        f"{name} is {settings[name]!r}, but has no effect here: {instead}"
        for name, (same, instead) in REPLACED.items()
        if _is_said(settings, name) and str(settings[name]) != str(same)
    ]
    if told:
        raise ConfigError("; ".join(told))


def _is_said(settings: BaseSettings, name: str) -> bool:
    if name == "SCHEDULER" and is_errand(settings):
        return False
    priority = settings.getpriority(name)
    return priority is not None and priority > SETTINGS_PRIORITIES["addon"]
