"""What is pushed from outside, as candidates; and what scrapy-redis' settings say of it.

Rule: a setting of scrapy-redis means here what it means there, or it is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from scrapy import FormRequest, Request, Spider
from scrapy.settings import BaseSettings

from crawler.core.arguments import Arguments
from crawler.core.errors import ConfigError
from crawler.core.kinds import number
from crawler.core.types import Candidate
from crawler.doors import Doors
from crawler.policy.priority import Hints, Prioritizer
from crawler.policy.pushed import Pushed
from crawler.policy.refusal import Refusal
from crawler.scheduler.flights import LEASE
from crawler.storage.redis import keys

KEY: Final = "REDIS_START_URLS_KEY"
IDLE: Final = "MAX_IDLE_TIME_BEFORE_CLOSE"
# Whoever pushes may say how a page is fetched, but not past whose turn.
_OURS: Final = frozenset({LEASE, "download_slot"})
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class PushRules:
    """What a crawl does with what is pushed."""

    key: str  # where seeds are pushed to
    max_idle_s: float = 0.0  # without anything to do; 0: it never ends for that
    only_pushed: bool = False  # no other seeds: the end is a pause until something is pushed


def push_rules(
    settings: BaseSettings, spider: Spider | None, arguments: Arguments | None
) -> PushRules:
    """*spider*, and the *arguments* of one that has ours. Raises ConfigError."""
    if spider is not None:
        _refuse_theirs(spider)
    return PushRules(
        key=_key(settings, spider),
        max_idle_s=_idle_s(settings, spider),
        only_pushed=_has_no_seeds(spider) if arguments is None else arguments.are_pushed,
    )


def _idle_s(settings: BaseSettings, spider: Spider | None) -> float:
    said = getattr(spider, "max_idle_time", None)
    given = settings.get(IDLE, 0) if said is None else said
    seconds = number("seconds")
    try:
        return seconds.read(given)
    except (ValueError, OverflowError) as wrong:
        raise ConfigError(f"{IDLE} is {given!r}; want {seconds.want}") from wrong


def _refuse_theirs(spider: Spider) -> None:
    """A spider of scrapy-redis takes from the same key, and what it has taken dies with it."""
    theirs = [base for base in type(spider).__mro__ if base.__module__.startswith("scrapy_redis.")]
    if theirs:
        raise ConfigError(
            f"{type(spider).__name__} is a {theirs[0].__name__} of scrapy-redis, which would take"
            " the URLs that are pushed. Make it a scrapy.Spider or a CrawlSpider: see"
            " docs/from-scrapy-redis.md"
        )


def _key(settings: BaseSettings, spider: Spider | None) -> str:
    name = spider.name if spider is not None else ""
    template = (
        getattr(spider, "redis_key", None) or settings.get(KEY) or keys.start_urls("%(name)s")
    )
    try:
        key = str(template) % {"name": name}
    except (KeyError, TypeError, ValueError) as wrong:
        raise ConfigError(f"{KEY} is {template!r}; only %(name)s can stand in it") from wrong
    if not key.strip():
        raise ConfigError(f"{KEY} is {template!r}, which names no key")
    if not keys.can_have_beside(key):
        raise ConfigError(f"{KEY} is {template!r}: braces are for the part that a cluster goes by")
    return key


def _has_no_seeds(spider: Spider | None) -> bool:
    """Of a spider of another's: neither URLs nor a method that says where to start."""
    if spider is None:
        return False
    return not spider.start_urls and type(spider).start is Spider.start


class Judge:
    """From a request that was pushed to a candidate, or the reason why it is none."""

    def __init__(
        self, doors: Doors, prioritizer: Prioritizer, fingerprint: Callable[[Request], bytes]
    ) -> None:
        """*fingerprint*: of a request that is more than its URL."""
        self.doors = doors
        self._prioritizer = prioritizer
        self._fingerprint = fingerprint

    def candidate(self, pushed: Pushed) -> Candidate | Refusal:
        """ValueError: it cannot be a request."""
        level = self._prioritizer.level(Hints(is_seed=True))
        admission = self.doors.admission
        if pushed.is_plain:
            return admission.candidate(pushed.url, level=level)
        request = _request(pushed)
        in_url = request.method == "GET" and not request.body
        return admission.candidate(
            request.url,
            level=level,
            request=_packed(request),
            key=None if in_url else int.from_bytes(self._fingerprint(request)[:8]),
        )


def _request(pushed: Pushed) -> Request:
    """As scrapy-redis makes it: without POST, form data are the URL's query."""
    meta = {name: value for name, value in pushed.meta.items() if name not in _OURS}
    form = pushed.form or None
    return FormRequest(pushed.url, method=pushed.method, meta=meta, formdata=form)


def _packed(request: Request) -> bytes:
    """As scheduler.requests reads it."""
    try:
        return _encode(request.to_dict())
    except (OverflowError, RecursionError, UnicodeError) as refused:
        raise ValueError(f"it cannot be stored: {refused}") from None
