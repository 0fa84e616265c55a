"""The crawler as a Scrapy add-on: everything a project needs is `ADDONS` with this class in it.

Rule: components are named, not imported. What a project has said itself always counts: its own
components keep their places beside ours, and a setting of Scrapy's that has no effect here is
refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.python import global_object_name

from crawler import errand
from crawler.components import COMPONENTS, OUR_FEEDS, SCRAPYS_FEEDS
from crawler.core.choices import HttpHandler, Tls
from crawler.core.config import Config
from crawler.core.config_reader import read_config
from crawler.core.errors import ConfigError
from crawler.errand import is_errand
from crawler.replaced import DOWNLOADER, SCHEDULER, refuse_replaced
from crawler.sharing import redis_address

SETTINGS: Final[Mapping[str, object]] = {
    "DOWNLOADER": DOWNLOADER,
    # A page is one item: 100, the default, starts 100 tasks a response, 1 ms of CPU.
    "CONCURRENT_ITEMS": 1,
    "CONCURRENT_REQUESTS": 64,
    # The frontier leases a host once. This is for what goes around it, as media pipelines do.
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    # A crawl of many hosts would keep a jar for each of them in memory.
    "COOKIES_ENABLED": False,
    # 54 us a page, to count what is counted already.
    "DOWNLOADER_STATS": False,
    "LOG_FORMATTER": "crawler.ops.unheard.PageLines",
    # Both let whoever reaches them run code in the crawl.
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "FEED_URI_PARAMS": "crawler.ops.feeds.uri_params",
}

HANDLERS: Final[Mapping[HttpHandler, str]] = {
    HttpHandler.AIOHTTP: "crawler.download.aiohttp_handler.AiohttpHandler",
    HttpHandler.TWISTED: "crawler.download.twisted_handler.TwistedHandler",
}
REPLAY: Final = "crawler.download.replay_handler.ReplayHandler"
PAGES: Final = "crawler.ops.feeds.PageFilter"
# A link from the web must not open a file of ours; `scrapy shell ./page.html` may.
NO_HANDLER: Final = ("file", "data", "ftp", "s3")


class Addon:
    """Puts the crawler's parts in their places."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Choose the event loop: no reactor for aiohttp, the asyncio reactor for Twisted."""
        # A value that is neither is refused later, where the error can be told in one line.
        twisted = settings.get("CRAWLER_HTTP_HANDLER") == HttpHandler.TWISTED
        settings.set("TWISTED_REACTOR_ENABLED", twisted, "addon")
        # Not made for Windows. With Twisted's readers it never tells of a reset that comes together
        # with data, and the fetch would hang until its time-out.
        if find_spec("uvloop") and not twisted:
            settings.set("ASYNCIO_EVENT_LOOP", "uvloop.Loop", "addon")

    def update_settings(self, settings: BaseSettings) -> None:
        """Everything else. Raises ConfigError."""
        if is_errand(settings):
            settings.setdict(errand.SETTINGS, "cmdline")
        config = read_config(settings)
        refuse_replaced(settings)
        redis_address(settings, config)  # refused here, before anything is opened
        if is_errand(settings):
            # There are no leases, so pauses are left to Scrapy's slots.
            settings.set("DOWNLOAD_DELAY", config.politeness.min_delay_s, "cmdline")
        else:
            settings.set("SCHEDULER", SCHEDULER, "addon")
        for name, value in {**SETTINGS, **_told_by(config)}.items():
            settings.set(name, value, "addon")
        if SCRAPYS_FEEDS in _named(settings["EXTENSIONS"]):
            # The project exports by a class of its own, or not at all.
            settings["EXTENSIONS"].set(OUR_FEEDS, None, SETTINGS_PRIORITIES["project"])
        for name, ours in COMPONENTS.items():
            _fill(settings[name], ours)
        _filter_feeds(settings)
        _fill(settings["DOWNLOAD_HANDLERS"], _handlers(config.fetch.http_handler, settings))
        if config.fetch.replay:
            # Over a project's own too, which would ask the network.
            replayed = {"http": REPLAY, "https": REPLAY}
            settings["DOWNLOAD_HANDLERS"].update(replayed, SETTINGS_PRIORITIES["cmdline"])


def _filter_feeds(settings: BaseSettings) -> None:
    feeds = settings.getdict("FEEDS")
    if feeds:
        filtered = {place: {"item_filter": PAGES, **chosen} for place, chosen in feeds.items()}
        settings.set("FEEDS", filtered, settings.getpriority("FEEDS") or 0)


def _told_by(config: Config) -> dict[str, object]:
    """Scrapy's settings that ours decide, for components that read them."""
    return {
        "USER_AGENT": config.identity.user_agent,
        "DOWNLOAD_TIMEOUT": config.fetch.total_timeout_s,
        "DOWNLOAD_VERIFY_CERTIFICATES": config.fetch.tls is Tls.STRICT,
        "REDIRECT_MAX_TIMES": config.limits.max_redirects,
        # Bodies in the pipelines; with more, nothing is fetched. 5 MB, the default, is one PDF that
        # is read apart for seconds. The other half is for downloads, so that these seldom pause.
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": config.fetch.bodies_max_bytes // 2,
    }


def _handlers(chosen: HttpHandler, settings: BaseSettings) -> dict[str, str | None]:
    if chosen is HttpHandler.TWISTED and not settings.getbool("TWISTED_REACTOR_ENABLED"):
        raise ConfigError(
            "CRAWLER_HTTP_HANDLER is 'twisted', but no reactor runs: the choice belongs into"
            " settings.py or behind -s, where it is read before the event loop is chosen"
        )
    handler = HANDLERS[chosen]
    without = [scheme for scheme in NO_HANDLER if scheme != "file" or not is_errand(settings)]
    return {"http": handler, "https": handler, **dict.fromkeys(without)}


def _fill(given: BaseSettings, ours: Mapping[str, int | str | None]) -> None:
    """Add *ours* where the project has said nothing, under whatever name."""
    said = _named(given)
    for name, value in ours.items():
        if name not in said:
            # Scrapy writes its reactorless defaults with a project's priority: less is not heard.
            given.set(name, value, SETTINGS_PRIORITIES["project"])


def _named(given: BaseSettings) -> set[str]:
    return {name if isinstance(name, str) else global_object_name(name) for name in given}
