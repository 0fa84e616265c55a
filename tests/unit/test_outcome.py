"""How a host has answered: what counts against it, and what does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadTimeoutError
from scrapy.http import Response

from crawler.config.settings import Config
from crawler.crawl.in_flight import Fetch
from crawler.crawl.slots import SlotRules
from crawler.middlewares.outcome import answer_of, failed_answer
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
)

BEGUN = 1000.0
FOUND = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example")


def crawl(now: float) -> Any:
    return SimpleNamespace(
        settings=SimpleNamespace(config=Config()),
        leases=SimpleNamespace(clock=SimpleNamespace(now=lambda: now)),
        fetching=SimpleNamespace(slots=SimpleNamespace(rules=SlotRules())),
    )


def test_our_own_pauses_do_not_count_as_answer_time() -> None:
    fetch = Fetch(Lease(1, FOUND, Pace(), BEGUN), began_at=BEGUN, paused_s=500.0)
    took = answer_of(Response("http://a.example/"), fetch, crawl(BEGUN + 500.4))
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
    fetch = Fetch(Lease(1, FOUND, Pace(), BEGUN), began_at=BEGUN)
    there = crawl(BEGUN + took_s)
    assert answer_of(Response("http://a.example/"), fetch, there).duration_s == pytest.approx(
        counts_s
    )
    failed = failed_answer(DownloadTimeoutError(), Request(FOUND.url), fetch, there)
    assert failed is not None and failed.duration_s == pytest.approx(counts_s)
