"""A spider whose requests carry all that a request can carry, and some that nobody can store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest, Response
from twisted.python.failure import Failure

HOLD = "/hold"

SENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "post": {"method": "POST", "body": b"\x00\xffbody"},
    "put": {"method": "PUT", "body": "caf\xe9", "encoding": "latin-1"},
    "headers": {"headers": {"X-One": "1", "X-Many": ["a", "b"]}},
    "meta": {"meta": {"mine": {"list": [1, None, 2.5, True], "bytes": "\U0001f41b"}}},
    "cb_kwargs": {"cb_kwargs": {"n": 1, "names": ["a", "b"]}},
    "high": {"priority": 7},
    "low": {"priority": -7},
    "flagged": {"flags": ["urgent"]},
    "missing": {"cb_kwargs": {"n": 4}},
    "form": {"class": FormRequest, "formdata": {"who": "me"}},
    "json": {"class": JsonRequest, "data": {"a": [1]}},
    "twice": {"dont_filter": True},
}


class Thing:
    """A class of the user's own."""


class OwnRequest(Request):
    """A request of the user's own."""


class RestartSpider(Spider):
    name = "restart"
    root: str
    diary: str

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root + "/fork", callback=self.fork)

    def fork(self, response: Response) -> Iterator[Request]:
        yield Request(self.root + HOLD, callback=self.held, priority=1)
        for name, given in SENT.items():
            kind = given.get("class", Request)
            told = {key: value for key, value in given.items() if key != "class"}
            url = f"{self.root}/{name}"
            yield kind(url, callback=self.delivered, errback=self.failed, **told)
        yield Request(self.root + "/twice", callback=self.delivered, dont_filter=True)
        yield from self.unstorable()

    def held(self, response: Response) -> Iterator[Request]:
        yield from self.unstorable()
        yield Request(self.root + "/after", callback=self.delivered)

    def unstorable(self) -> Iterator[Request]:
        """Each refused, and none in the way of the next."""
        url = self.root + "/unstorable"
        yield Request(url, callback=lambda _: None)
        with Path(__file__).open() as file:
            yield Request(url, callback=self.delivered, meta={"file": file})
        yield Request(url, callback=self.delivered, cb_kwargs={"thing": Thing()})
        yield OwnRequest(url, callback=self.delivered)

    def delivered(self, response: Response, **given: Any) -> None:
        self.note("delivered", response.request, given, json.loads(response.body))

    def failed(self, failure: Failure) -> None:
        request: Request = failure.request  # type: ignore[attr-defined]  # Scrapy adds it
        self.note("failed", request, request.cb_kwargs, {})

    def note(
        self, where: str, request: Any, given: dict[str, Any], arrived: dict[str, Any]
    ) -> None:
        line = {
            "name": request.url.rpartition("/")[2],
            "where": where,
            "class": type(request).__name__,
            "cb_kwargs": given,
            "mine": request.meta.get("mine"),
            "priority": request.priority,
            "dont_filter": request.dont_filter,
            "flags": request.flags,
            "callback": request.callback.__name__,
            "errback": request.errback and request.errback.__name__,
            "arrived": arrived,
        }
        with Path(self.diary).open("a") as diary:
            diary.write(json.dumps(line) + "\n")
