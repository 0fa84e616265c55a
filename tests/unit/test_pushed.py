"""What is pushed, as candidates; what scrapy-redis' settings say of it; and what is logged of URLs
that are not fetched."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider
from scrapy.http import FormRequest
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler
from scrapy_redis.spiders import RedisCrawlSpider, RedisMixin, RedisSpider

from crawler.config.arguments import Arguments
from crawler.config.settings import read_config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.engine.stats import CrawlStats
from crawler.frontier.memory_store import MemoryStore
from crawler.model.choices import ScopeChoice
from crawler.model.counts import OverBudget
from crawler.model.types import Added, Candidate, ConfigError
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.seeds import PushedRequest, read_pushed
from crawler.scheduler.requests import unpack_request
from crawler.shared.pushed import (
    PushedRequestReader,
    PushSettings,
    UnfetchedPushes,
    push_settings,
)

CONFIG = read_config({"CRAWLER_CONTACT": "ops@w3.org"})


class OfAnother(Spider):
    """As RedisSpider's users write theirs."""

    name = "shop"


class Named(OfAnother):
    redis_key = "queue:of:%(name)s"
    max_idle_time = 60


class WithSeeds(OfAnother):
    start_urls = ["https://example.com/"]  # noqa: RUF012 - Scrapy's own form


def judge(scope: ScopeChoice = ScopeChoice.ANY) -> PushedRequestReader:
    origins = AllowedOrigins(CONFIG, Arguments(seeds="redis", scope=scope), MemoryStore(), 7, 1e9)
    return PushedRequestReader(origins, RequestFingerprinter().fingerprint)


@pytest.mark.parametrize(
    ("spider", "settings", "want"),
    [
        pytest.param(OfAnother, {}, PushSettings("shop:start_urls", 0, True), id="nothing is set"),
        pytest.param(
            OfAnother,
            {"REDIS_START_URLS_KEY": "%(name)s:seeds", "MAX_IDLE_TIME_BEFORE_CLOSE": "30"},
            PushSettings("shop:seeds", 30, True),
            id="by settings",
        ),
        pytest.param(
            Named,
            {"REDIS_START_URLS_KEY": "other", "MAX_IDLE_TIME_BEFORE_CLOSE": "30"},
            PushSettings("queue:of:shop", 60, True),
            id="by the spider, which counts first",
        ),
        pytest.param(WithSeeds, {}, PushSettings("shop:start_urls", 0, False), id="with own seeds"),
    ],
)
def test_scrapy_redis_settings(
    spider: type[Spider], settings: dict[str, Any], want: PushSettings
) -> None:
    assert push_settings(Settings(settings), spider(), None) == want


@pytest.mark.parametrize("template", ["%(name)s:start_urls", "all:%(name)s", "one"])
def test_the_key_is_the_one_that_scrapy_redis_reads(template: str) -> None:
    class Theirs(RedisMixin):
        name = "shop"
        logger = Spider("shop").logger

    theirs = Theirs()
    settings = Settings({"REDIS_START_URLS_KEY": template, "REDIS_URL": "redis://127.0.0.1:1"})
    theirs.setup_redis(_Crawler(settings))
    assert push_settings(settings, OfAnother(), None).key == theirs.redis_key


class _Crawler:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.signals = self

    def connect(self, *_: object, **__: object) -> None:
        pass


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        pytest.param({"REDIS_START_URLS_KEY": "%(spider)s"}, "only %.name.s", id="another name"),
        pytest.param({"REDIS_START_URLS_KEY": "a%"}, "only %.name.s", id="half a name"),
        pytest.param({"REDIS_START_URLS_KEY": " "}, "names no key", id="a blank"),
        pytest.param({"REDIS_START_URLS_KEY": "{}x"}, "braces are for", id="braces around nothing"),
        pytest.param({"MAX_IDLE_TIME_BEFORE_CLOSE": "long"}, "is 'long'; want", id="a word"),
        pytest.param({"MAX_IDLE_TIME_BEFORE_CLOSE": -1}, "is -1; want", id="before it began"),
    ],
)
def test_settings_that_cannot_be_right(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        push_settings(Settings(settings), OfAnother(), None)


@pytest.mark.parametrize("theirs", [RedisSpider, RedisCrawlSpider])
def test_a_spider_of_scrapy_redis_would_take_what_is_pushed(theirs: type[Spider]) -> None:
    class Old(theirs):  # type: ignore[misc,valid-type]  # a class that is a value
        name = "shop"

    with pytest.raises(ConfigError, match=r"Old is a Redis.*Spider of scrapy-redis"):
        push_settings(Settings(), Old(), None)


def test_for_our_own_spider_the_argument_decides_whether_there_are_other_seeds():
    for seeds, only in (("redis", True), ("seeds.txt", False)):
        rules = push_settings(Settings(), OfAnother(), Arguments(seeds=seeds))
        assert rules.only_pushed is only


def test_a_url_is_a_seed():
    found = judge().candidate(read_pushed(b"https://example.com/a"))
    assert isinstance(found, Candidate)
    assert (found.url, found.depth, found.level) == ("https://example.com/a", 0, 0)
    assert found.needs_seen_test and not found.request


def test_urls_outside_the_scope_are_refused():
    found = judge(ScopeChoice.HOST).candidate(read_pushed(b"https://example.com/a"))
    assert isinstance(found, Refusal) and found.reason is Reason.OUT_OF_SCOPE


FORMS = [
    pytest.param("GET", {}, {"job-id": "1"}, id="with meta"),
    pytest.param("GET", {"q": "a b", "n": ["1", "2"]}, {}, id="a search"),
    pytest.param("POST", {"q": "ä&=", "n": ["1", "2"]}, {"job": {"id": [1, None]}}, id="a form"),
    pytest.param("HEAD", {}, {}, id="another method"),
]


@pytest.mark.parametrize(("method", "form", "meta"), FORMS)
def test_a_request_is_the_one_that_scrapy_redis_would_make(
    method: str, form: dict[str, Any], meta: dict[str, Any]
) -> None:
    """It is stored as the scheduler reads it."""
    pushed = PushedRequest("https://example.com/s?x=1", method, meta, form)
    found = judge().candidate(pushed)
    assert isinstance(found, Candidate)
    made = unpack_request(found.request, OfAnother())
    theirs = FormRequest(pushed.url, method=method, formdata=dict(form), meta=dict(meta))
    assert made.to_dict() == theirs.to_dict()
    assert found.url == theirs.url


def test_forms_that_differ_are_different_urls():
    def key(**form: str) -> int:
        found = judge().candidate(PushedRequest("https://example.com/", "POST", form=form))
        assert isinstance(found, Candidate)
        return found.key

    assert key(q="a") == key(q="a") != key(q="b")


def test_meta_does_not_bypass_the_frontier():
    pushed = PushedRequest(
        "https://example.com/", meta={"lease": 1, "download_slot": "x", "kept": 1}
    )
    found = judge().candidate(pushed)
    assert isinstance(found, Candidate)
    assert unpack_request(found.request, OfAnother()).meta == {"kept": 1}


def test_requests_that_cannot_be_stored_are_refused():
    huge = PushedRequest("https://example.com/", meta={"n": 1 << 70})
    with pytest.raises(ValueError, match="cannot be stored"):
        judge().candidate(huge)


@pytest.fixture
def unfetched() -> UnfetchedPushes:
    stats = CrawlStats(MemoryStatsCollector(get_crawler()))
    return UnfetchedPushes(stats, "gossamer:urgent")


def test_what_is_pushed_again_and_not_fetched_is_logged_with_the_first_few(
    unfetched: UnfetchedPushes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its fetch may have failed: whoever pushes it again expects another."""
    unfetched.note([], Added(new=30))
    unfetched.write(0.0)
    assert not caplog.messages
    unfetched.note(["https://a.example/7", "https://a.example/8"], Added(new=1))
    unfetched.write(0.0)
    line = "Pushed and not fetched, as seen before:"
    (said,) = caplog.messages
    assert said.startswith(f"{line} 2: https://a.example/7, https://a.example/8. `scrapy frontier")
    assert "pushed to gossamer:urgent it is fetched again" in said
    for now in (1.0, 9.0):
        unfetched.note([f"https://a.example/{n}" for n in range(30)], Added())
        unfetched.write(now)
    assert len(caplog.messages) == 1, "others wait for their line"
    unfetched.write(10.0)
    assert caplog.messages[1].startswith(f"{line} 60: https://a.example/0, ")
    assert "/19, ...." in caplog.messages[1]


def test_what_is_pushed_beyond_a_budget_is_logged_by_host(
    unfetched: UnfetchedPushes, caplog: pytest.LogCaptureFixture
) -> None:
    kept_out = (
        OverBudget("CRAWLER_MAX_URLS_PER_HOST", 2, "a.example", 1),
        OverBudget("CRAWLER_MAX_URLS_PER_HOST", 2, "b.example", 1),
    )
    unfetched.note([], Added(new=4, over_budget=2, kept_out=kept_out))
    unfetched.write(0.0)
    (said,) = caplog.messages
    assert "CRAWLER_MAX_URLS_PER_HOST" in said and ": 2, of a.example, b.example." in said
