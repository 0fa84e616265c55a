"""How a host has answered: what counts against it, and what does not."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from scrapy import Request
from scrapy.exceptions import DownloadTimeoutError
from scrapy.http import Response

from crawler.config.settings import PolitenessSettings
from crawler.download.handler import wire_request
from crawler.loop.life import Life, Plan
from crawler.loop.loop import Loop, LoopLimits
from crawler.loop.outcome import says_unmodified
from crawler.loop.slots import SlotLimits
from crawler.middlewares.outcome import answer_of, failed_answer
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
    PageHistory,
)

BEGUN = 1000.0
FOUND = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example")
PLAN = Plan(lease=Lease(1, FOUND, Pace(), BEGUN), url=FOUND.url)


def loop(now: float) -> Loop:
    """Return a loop that can make answers, and no more."""
    parts: dict[str, Any] = dict.fromkeys([each.name for each in fields(Loop) if each.init])
    slots = SimpleNamespace(limits=SlotLimits())
    limits = LoopLimits(politeness=PolitenessSettings())
    return Loop(**parts | {"slots": slots, "limits": limits, "now": lambda: now})


def test_our_own_pauses_do_not_count_as_answer_time() -> None:
    life = Life(PLAN, began_at=BEGUN, paused_s=500.0)
    took = answer_of(Response("http://a.example/"), life, loop(BEGUN + 500.4))
    assert took.duration_s == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("took_s", "counts_s"),
    [
        pytest.param(0.4, 0.4, id="as long as it took"),
        pytest.param(30.0, 30.0, id="to the total time-out"),
        pytest.param(900.0, 30.0, id="and no longer: this process was stopped, not the host slow"),
    ],
)
def test_how_long_a_host_took(took_s: float, counts_s: float) -> None:
    life, there = Life(PLAN, began_at=BEGUN), loop(BEGUN + took_s)
    took = answer_of(Response("http://a.example/"), life, there)
    assert took.duration_s == pytest.approx(counts_s)
    failed = failed_answer(DownloadTimeoutError(), Request(FOUND.url), life, there)
    assert failed is not None and failed.duration_s == pytest.approx(counts_s)


@pytest.mark.parametrize(
    ("is_asked", "status", "body", "said"),
    [
        pytest.param(True, 304, b"", True, id="asked and answered"),
        pytest.param(True, 200, b"", False, id="another answer"),
        pytest.param(True, 304, b"a page", False, id="a body, as only a user's handler gives it"),
        pytest.param(False, 304, b"", False, id="not asked"),
    ],
)
def test_which_answers_say_that_a_page_is_as_it_was(
    is_asked: bool, status: int, body: bytes, said: bool
) -> None:
    life = Life(PLAN, is_conditional=is_asked)
    assert says_unmodified(life, status, len(body)) is said


@pytest.mark.parametrize(
    ("given", "is_asked"),
    [
        pytest.param({}, True, id="a plain GET"),
        pytest.param({"headers": {"Accept": "text/html"}}, True, id="with headers of its own"),
        pytest.param({"headers": {"if-none-match": "*"}}, False, id="with an own condition"),
        pytest.param({"headers": {"Range": "bytes=0-9"}}, False, id="for a part"),
        pytest.param({"method": "POST", "body": b"q=1"}, False, id="a form"),
        pytest.param({"method": "HEAD"}, False, id="a HEAD"),
    ],
)
def test_a_plain_get_asks_whether_its_page_has_changed(
    given: dict[str, Any], is_asked: bool
) -> None:
    request = Request(FOUND.url, **given)
    found = replace(FOUND, history=PageHistory(9, 9, stored_at=7))
    lease = replace(PLAN.lease, candidate=found)
    validators = '"e"\nThu, 01 Jan 2026 00:00:00 GMT'
    life = Life(replace(PLAN, lease=lease, validators=validators))
    gone = wire_request(request, life, lambda at: at == 7)
    assert gone.fields == wire_request(request, None).fields, "a 304 would lead to nothing"
    sent = wire_request(request, life)
    conditions = (
        (b"If-None-Match", b'"e"'),
        (b"If-Modified-Since", b"Thu, 01 Jan 2026 00:00:00 GMT"),
    )
    assert (sent.fields[-2:] == conditions, life.is_conditional) == (is_asked, is_asked)
    assert wire_request(request, Life(PLAN)).fields == wire_request(request, None).fields
    assert not is_asked or b"If-None-Match" not in request.headers, "copies go elsewhere"
