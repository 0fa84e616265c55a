"""The crawler as a Scrapy add-on: everything a project needs is `ADDONS` with this class in it.

Rule: components are named, not imported. A project's own components keep their places beside ours,
and a setting of Scrapy's that has no effect here is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Self

from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings
from scrapy.utils.python import global_object_name

from crawler.assembly.components import (
    COMPONENTS,
    OUR_FEEDS,
    SCRAPYS_FEEDS,
)
from crawler.config.settings import Config, read_config
from crawler.data.data_dir import path_of_spider
from crawler.engine import interactive
from crawler.engine.interactive import is_interactive
from crawler.model.choices import Tls
from crawler.model.types import ConfigError
from crawler.policy.politeness import RETRY_STATUSES
from crawler.shared.address import redis_address

SCHEDULER: Final = "crawler.scheduler.scheduler.FrontierScheduler"
DOWNLOADER: Final = "crawler.download.downloader.FrontierDownloader"

_ORDER: Final = "the order is the frontier's: use CRAWLER_PRIORITIZER, or a request's priority"

# Scrapy's settings that have no effect here, as the crawler does their work. They are refused:
# a user who sets DOWNLOAD_DELAY = 10 relies on ten seconds.
REPLACED: Final[Mapping[str, tuple[object, str]]] = {
    # name: (the only value that is accepted, what to do instead)
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
        f"tried again are {RETRY_STATUSES}",
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
    """Raise ConfigError if the project, the spider or the command line sets a replaced one."""
    errors = [
        f"{name} is {settings[name]!r}, but has no effect here: {instead}"
        for name, (same, instead) in REPLACED.items()
        if _is_set(settings, name) and str(settings[name]) != str(same)
    ]
    if errors:
        raise ConfigError("; ".join(errors))


def refuse_wrong_reactor(settings: BaseSettings) -> None:
    """Raise ConfigError for a reactor that is chosen too late, or that is not asyncio's."""
    if settings.getpriority("TWISTED_REACTOR_ENABLED") == SETTINGS_PRIORITIES["spider"]:
        raise ConfigError(
            "TWISTED_REACTOR_ENABLED is in a spider's custom_settings, where it comes too late:"
            " set it in settings.py or behind -s, which are read before the event loop is made"
        )
    reactor, asyncios = settings["TWISTED_REACTOR"], default_settings.TWISTED_REACTOR
    if settings.getbool("TWISTED_REACTOR_ENABLED") and reactor != asyncios:
        raise ConfigError(
            f"TWISTED_REACTOR is {reactor!r}, but pages are fetched by asyncio: remove the setting,"
            f" its default is {asyncios}"
        )


def _is_set(settings: BaseSettings, name: str) -> bool:
    if name == "SCHEDULER" and is_interactive(settings):
        return False
    priority = settings.getpriority(name)
    return priority is not None and priority > SETTINGS_PRIORITIES["addon"]


SETTINGS: Final[Mapping[str, object]] = {
    "DOWNLOADER": DOWNLOADER,
    # A page is one item: 100, the default, starts 100 tasks a response, 1 ms of CPU.
    "CONCURRENT_ITEMS": 1,
    "CONCURRENT_REQUESTS": 64,
    # The frontier limits its leases. This limits requests beside it, such as media pipelines'.
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    # A crawl of many hosts would keep a jar for each of them in memory.
    "COOKIES_ENABLED": False,
    # 54 us a page, for figures that are counted elsewhere already.
    "DOWNLOADER_STATS": False,
    "LOG_FORMATTER": "crawler.report.logs.PageLogFormatter",
    # Both run any code in the crawl for anyone who can connect.
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "FEED_URI_PARAMS": "crawler.report.extensions.uri_params",
}

SWITCHED_OFF: Final[Mapping[str, tuple[str, str]]] = {
    "COOKIES_ENABLED": (
        "DOWNLOADER_MIDDLEWARES_BASE",
        "scrapy.downloadermiddlewares.cookies.CookiesMiddleware",
    ),
    "REMOTE_CONTROL_ENABLED": (
        "EXTENSIONS_BASE",
        "scrapy.extensions.remote_control.RemoteControl",
    ),
    "TELNETCONSOLE_ENABLED": ("EXTENSIONS_BASE", "scrapy.extensions.telnet.TelnetConsole"),
}
"""Components that Scrapy imports to find that they are off: 0.2 s of CPU, with tldextract and
aiohttp."""
FETCH_HANDLER: Final = "crawler.download.handler.FetchHandler"
PAGE_FILTER: Final = "crawler.report.extensions.PageFilter"
# A link from the web must not open a file of this machine; `scrapy shell ./page.html` may.
DISABLED_SCHEMES: Final = ("file", "data", "ftp", "s3")


class Addon:
    """Registers the settings and components of the crawler with Scrapy."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Choose the event loop: no reactor, unless the project says True, and uvloop."""
        settings.set("TWISTED_REACTOR_ENABLED", False, "addon")
        # uvloop does not exist for Windows. With Twisted's readers it never reports a reset that
        # comes together with data: a connection of Twisted's would hang until its time-out.
        if find_spec("uvloop") and not settings.getbool("TWISTED_REACTOR_ENABLED"):
            settings.set("ASYNCIO_EVENT_LOOP", "uvloop.Loop", "addon")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.spider.name if crawler.spider else crawler.spidercls.name)

    def __init__(self, spider: str = "") -> None:
        self._spider = spider

    def update_settings(self, settings: BaseSettings) -> None:
        """Check all settings, and set components and other settings. Raises ConfigError."""
        if is_interactive(settings):
            settings.setdict(interactive.SETTINGS, "cmdline")
        if self._spider:
            _name_data_dir(settings, self._spider)
        config = read_config(settings)
        refuse_replaced(settings)
        refuse_wrong_reactor(settings)
        redis_address(settings, config)  # refused here, before anything is opened
        if is_interactive(settings):
            # Without leases, Scrapy's slots have to make the pauses.
            settings.set("DOWNLOAD_DELAY", config.politeness.min_delay_s, "cmdline")
        else:
            settings.set("SCHEDULER", SCHEDULER, "addon")
        for name, value in {**SETTINGS, **_derived_settings(config)}.items():
            settings.set(name, value, "addon")
        for switch, (components, path) in SWITCHED_OFF.items():
            if not settings.getbool(switch):
                # In the setting without _BASE, Scrapy would import it to compare it.
                settings[components].set(path, None, "addon")
        if SCRAPYS_FEEDS in _names_and_paths(settings["EXTENSIONS"]):
            # The project has its own exporter, or none.
            settings["EXTENSIONS"].set(OUR_FEEDS, None, SETTINGS_PRIORITIES["project"])
        for name, ours in COMPONENTS.items():
            _add_defaults(settings[name], ours)
        _filter_feeds(settings)
        disabled = [
            scheme
            for scheme in DISABLED_SCHEMES
            if scheme != "file" or not is_interactive(settings)
        ]
        handlers = dict.fromkeys(("http", "https"), FETCH_HANDLER)
        _add_defaults(settings["DOWNLOAD_HANDLERS"], {**handlers, **dict.fromkeys(disabled)})
        if config.fetch.replay:
            # Replaces a project's own handlers too, which would use the network.
            settings["DOWNLOAD_HANDLERS"].update(handlers, SETTINGS_PRIORITIES["cmdline"])


def _name_data_dir(settings: BaseSettings, spider: str) -> None:
    """Put the name of *spider* into the path of the data directory, for all that read it."""
    for name in ("CRAWLER_DATA_DIR", "JOBDIR"):
        if isinstance(given := settings[name], str):
            settings.set(name, path_of_spider(given, spider), settings.getpriority(name) or 0)


def _filter_feeds(settings: BaseSettings) -> None:
    feeds = settings.getdict("FEEDS")
    if feeds:
        filtered = {
            place: {"item_filter": PAGE_FILTER, **chosen} for place, chosen in feeds.items()
        }
        settings.set("FEEDS", filtered, settings.getpriority("FEEDS") or 0)


def _derived_settings(config: Config) -> dict[str, object]:
    """Return settings of Scrapy's that follow from ours, for components that read them."""
    return {
        "USER_AGENT": config.identity.user_agent,
        "DOWNLOAD_TIMEOUT": config.fetch.total_timeout_s,
        "DOWNLOAD_VERIFY_CERTIFICATES": config.fetch.tls is Tls.STRICT,
        "REDIRECT_MAX_TIMES": config.limits.max_redirects,
        # Bodies in the pipelines; with more, nothing is fetched. 5 MB, the default, is one PDF that
        # takes seconds in a child process. The other half is for downloads, so that these seldom
        # pause.
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": config.fetch.bodies_max_bytes // 2,
    }


def _add_defaults(given: BaseSettings, ours: Mapping[str, int | str | None]) -> None:
    """Add *ours* where the project has set nothing, under either form of a name."""
    names = _names_and_paths(given)
    for name, value in ours.items():
        if name not in names:
            # Scrapy writes its reactorless defaults with a project's priority: a lower one has no
            # effect.
            given.set(name, value, SETTINGS_PRIORITIES["project"])


def _names_and_paths(given: BaseSettings) -> set[str]:
    return {name if isinstance(name, str) else global_object_name(name) for name in given}
