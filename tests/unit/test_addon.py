"""The add-on puts our components beside the project's own, and never over them."""

from __future__ import annotations

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

from crawler.addon import (
    DISABLED_SCHEMES,
    DOWNLOADER,
    FETCH_HANDLER,
    PAGE_FILTER,
    REPLACED,
    SCHEDULER,
    SETTINGS,
    Addon,
)
from crawler.assembly.components import (
    COMPONENTS,
    OUR_FEEDS,
    SCRAPYS_FEEDS,
)
from crawler.engine import interactive
from crawler.middlewares.decode import DecodeMiddleware
from crawler.model.types import ConfigError
from crawler.spiders.web import WebSpider

OWN = "tests.unit.test_addon.Own"


DEPTH = "scrapy.spidermiddlewares.depth.DepthMiddleware"


class MoreThanWeb(WebSpider):
    """A spider of the project's, with our pages."""


class Own:
    """A project's own component."""


def settled(project: dict[str, object] | None = None, **command_line: object) -> Settings:
    """Settings as a crawl has them after both of the add-on's acts."""
    settings = Settings(project)
    settings.setdict(command_line, priority="cmdline")
    Addon.update_pre_crawler_settings(settings)
    Addon().update_settings(settings)
    return settings


def active(settings: Settings, name: str) -> dict[str, int]:
    return dict(settings.get_component_priority_dict_with_base(name))


@pytest.mark.parametrize("name", COMPONENTS)
def test_our_components_are_active_and_those_they_replace_are_not(name):
    components = active(settled(), name)
    for path, order in COMPONENTS[name].items():
        load_object(path)
        assert components.get(path) == order, path


@pytest.mark.parametrize("given", [{SCRAPYS_FEEDS: None, OWN: 0}, {SCRAPYS_FEEDS: 5}])
def test_a_project_may_export_feeds_by_a_class_of_its_own(given):
    extensions = active(settled({"EXTENSIONS": given}), "EXTENSIONS")
    assert extensions.get(OUR_FEEDS) is None
    assert {name: extensions.get(name) for name in given} == given


@pytest.mark.parametrize(
    "path",
    [
        *(SCHEDULER, DOWNLOADER, interactive.SCHEDULER, SETTINGS["LOG_FORMATTER"], FETCH_HANDLER),
    ],
)
def test_named_components_exist(path):
    load_object(path)


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_projects_own_components_keep_their_places(name):
    ours = {path: order for path, order in COMPONENTS[name].items() if order is not None}
    components = active(settled({name: {OWN: 543}}), name)
    assert components[OWN] == 543
    assert ours.items() <= components.items()


@pytest.mark.parametrize(
    ("spider", "project", "is_on"),
    [
        pytest.param(WebSpider, {}, False, id="not where it would do nothing"),
        pytest.param(MoreThanWeb, {}, True, id="a spider made of ours may want it"),
        pytest.param(WebSpider, {OWN: 543}, True, id="so may what a project puts beside it"),
    ],
)
def test_middlewares_that_do_nothing_for_pages(spider, project, is_on):
    given = Settings({"SPIDER_MIDDLEWARES": project})
    crawler = Crawler(spider, given)
    crawler.settings.update(given)  # as a process does
    Addon().update_settings(crawler.settings)
    assert (DEPTH in active(crawler.settings, "SPIDER_MIDDLEWARES")) is is_on


class Adding:
    """Somebody's add-on that brings a spider middleware."""

    def update_settings(self, settings: Settings) -> None:
        settings["SPIDER_MIDDLEWARES"].set(OWN, 543, "addon")


@pytest.mark.parametrize("place", [pytest.param(1, id="before ours"), pytest.param(9, id="after")])
def test_a_middleware_of_an_add_on_is_not_left_alone(place):
    """It is asked when the spider has had its say."""
    crawler = Crawler(WebSpider, {"ADDONS": {Addon: 5, Adding: place}})
    crawler.addons.load_settings(crawler.settings)
    spared = {OWN, DEPTH, "crawler.middlewares.lease.LeaseMiddleware"}
    assert spared <= active(crawler.settings, "SPIDER_MIDDLEWARES").keys()


@pytest.mark.parametrize("ours", [pytest.param(Addon, id="class"), "crawler.addon.Addon"])
def test_our_add_on_brings_none_that_would_do_nothing(ours):
    crawler = Crawler(WebSpider, {"ADDONS": {ours: 5, Adding: None}})
    crawler.addons.load_settings(crawler.settings)
    assert not active(crawler.settings, "SPIDER_MIDDLEWARES")


def test_a_project_may_move_our_components_or_take_them_out():
    decode = "crawler.middlewares.decode.DecodeMiddleware"
    assert (
        active(settled({"DOWNLOADER_MIDDLEWARES": {decode: 1}}), "DOWNLOADER_MIDDLEWARES")[decode]
        == 1
    )
    out = active(
        settled({"ITEM_PIPELINES": {"crawler.pipelines.ArchivePipeline": None}}),
        "ITEM_PIPELINES",
    )
    assert "crawler.pipelines.ArchivePipeline" not in out
    by_class = active(
        settled({"DOWNLOADER_MIDDLEWARES": {DecodeMiddleware: 2}}), "DOWNLOADER_MIDDLEWARES"
    )
    assert [order for name, order in by_class.items() if "Decode" in str(name)] == [2]


def test_a_project_may_put_back_what_we_replace():
    named = {"DOWNLOADER_MIDDLEWARES": {RetryMiddleware: 550}}
    assert RetryMiddleware in active(settled(named), "DOWNLOADER_MIDDLEWARES")


def test_a_projects_settings_count_before_ours():
    settings = settled({"CONCURRENT_REQUESTS": 7, "COOKIES_ENABLED": True})
    assert settings.getint("CONCURRENT_REQUESTS") == 7
    assert settings.getbool("COOKIES_ENABLED")


@pytest.mark.parametrize(
    ("project", "is_loaded"),
    [
        pytest.param({}, False, id="off, so it is not imported"),
        pytest.param({"COOKIES_ENABLED": True}, True, id="on"),
        pytest.param({"DOWNLOADER_MIDDLEWARES": {CookiesMiddleware: 700}}, True, id="named"),
    ],
)
def test_the_cookies_are_a_component_only_where_they_are_wanted(
    project: dict[str, object], is_loaded: bool
) -> None:
    components = active(settled(project), "DOWNLOADER_MIDDLEWARES")
    names = {one if isinstance(one, str) else one.__name__ for one in components}
    assert any("CookiesMiddleware" in name for name in names) is is_loaded


@pytest.mark.parametrize(
    ("project", "command_line", "reactor"),
    [
        pytest.param({}, {}, False, id="by default there is none"),
        pytest.param({"TWISTED_REACTOR_ENABLED": True}, {}, True, id="in settings.py"),
        pytest.param({}, {"TWISTED_REACTOR_ENABLED": "True"}, True, id="on a command line"),
    ],
)
def test_the_handler_is_the_same_with_and_without_a_reactor(project, command_line, reactor):
    settings = settled(project, **command_line)
    assert settings.getbool("TWISTED_REACTOR_ENABLED") is reactor
    # With Twisted's readers uvloop reports no reset that comes together with data.
    assert (settings["ASYNCIO_EVENT_LOOP"] == "uvloop.Loop") is not reactor
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    assert handlers["http"] == handlers["https"] == FETCH_HANDLER
    assert [handlers[scheme] for scheme in DISABLED_SCHEMES] == [None] * len(DISABLED_SCHEMES)


def test_the_handlers_hold_after_scrapys_own_reactorless_defaults():
    crawler = Crawler(Spider, settled())
    crawler._apply_reactorless_default_settings()  # what Scrapy does next
    assert crawler.settings.getwithbase("DOWNLOAD_HANDLERS")["http"] == FETCH_HANDLER


def test_a_projects_own_handler_counts():
    handlers = settled({"DOWNLOAD_HANDLERS": {"https": OWN}}).getwithbase("DOWNLOAD_HANDLERS")
    assert (handlers["https"], handlers["http"]) == (OWN, FETCH_HANDLER)


def test_a_reactor_that_a_spider_asks_for_is_refused():
    settings = Settings()
    Addon.update_pre_crawler_settings(settings)
    settings.set("TWISTED_REACTOR_ENABLED", True, priority="spider")
    with pytest.raises(ConfigError, match=r"too late: set it in settings\.py or behind -s"):
        Addon().update_settings(settings)


def test_a_reactor_without_asyncio_is_refused():
    reactor = "twisted.internet.selectreactor.SelectReactor"
    with pytest.raises(ConfigError, match=f"^TWISTED_REACTOR is '{reactor}', but .*: remove"):
        settled(TWISTED_REACTOR_ENABLED=True, TWISTED_REACTOR=reactor)
    assert settled(TWISTED_REACTOR=reactor)["TWISTED_REACTOR"] == reactor, "there is no reactor"


def test_a_misspelt_setting_stops_the_crawl_before_it_begins():
    with pytest.raises(ConfigError, match="did you mean CRAWLER_CONTACT"):
        settled(CRAWLER_CONTACTS="x")


def test_scrapys_settings_follow_ours():
    settings = settled(CRAWLER_TOTAL_TIMEOUT_S="12", CRAWLER_TLS="lenient")
    assert settings.getfloat("DOWNLOAD_TIMEOUT") == 12
    assert not settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES")
    assert settings["USER_AGENT"].startswith("Gossamer/")


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("priority", ["project", "spider", "cmdline"])
def test_a_setting_that_would_have_no_effect_is_refused(name, priority):
    settings = Settings()
    settings.set(name, "something else", priority)
    with pytest.raises(ConfigError, match=f"^{name} is 'something else', but has no effect here: "):
        Addon().update_settings(settings)


@pytest.mark.parametrize("name", REPLACED)
def test_a_setting_that_changes_nothing_is_accepted(name):
    settled({name: REPLACED[name][0]})


def test_all_of_them_are_named_at_once():
    with pytest.raises(ConfigError, match=r"^DOWNLOAD_DELAY is 3, but .*; RETRY_TIMES is 9, but"):
        settled({"DOWNLOAD_DELAY": 3, "RETRY_TIMES": 9})


def test_an_interactive_command_uses_the_scheduler_of_scrapy_and_stores_nothing():
    mine = {"SCHEDULER": SCHEDULER, "JOBDIR": "jobs", "CRAWLER_MIN_DELAY_S": 3}
    settings = settled(mine, SCHEDULER=interactive.SCHEDULER)
    assert settings["SCHEDULER"] == interactive.SCHEDULER
    assert settings.getfloat("DOWNLOAD_DELAY") == 3
    assert not settings.getbool("CRAWLER_WARC") and settings["JOBDIR"] is None
    assert "file" not in settings["DOWNLOAD_HANDLERS"], "a person may look at a file"


def test_feeds_have_our_filter_unless_they_name_their_own():
    feeds = {"a.jsonl": {"format": "jsonlines"}, "b.csv": {"format": "csv", "item_filter": OWN}}
    chosen = settled({"FEEDS": feeds}).getdict("FEEDS")
    assert {feed: options["item_filter"] for feed, options in chosen.items()} == {
        "a.jsonl": PAGE_FILTER,
        "b.csv": OWN,
    }
    load_object(PAGE_FILTER)
    assert feeds["a.jsonl"] == {"format": "jsonlines"}, "what is given is not changed"
    asked = settled(FEEDS='{"c.json": {"format": "json"}}')
    assert asked.getdict("FEEDS")["c.json"]["item_filter"] == PAGE_FILTER
