"""What is kept of a body: up to its limits of bytes, time and memory; and the response of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadTimeoutError, StopDownload
from scrapy.http import Headers, HtmlResponse
from scrapy.utils.test import get_crawler

from crawler.content.body_memory import FREE_BYTES
from crawler.download.handler import response_of
from crawler.download.http_head import AnswerHead
from crawler.download.port import Fetched, KeptBody
from crawler.download.watch import RequestWatch, WatchParts, declared_length, headers_of
from crawler.model.page import (
    DownloadOptions,
    Exchange,
    Truncated,
)
from tests.harness.body_memory import Leases, Memory
from tests.harness.waiting import run_in_virtual_time

HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
CAP_BYTES = len(HEAD) + 10
OPTIONS = DownloadOptions(
    cap=lambda kind, url: CAP_BYTES,
    admits=lambda ip, host, port: True,
)


class Desk:
    """The watch of one request."""

    def __init__(self, memory: Memory | None = None, **meta: Any) -> None:
        self.crawler: Crawler = get_crawler()
        self.memory = memory or Memory()
        self.request, self.life = self.memory.leased(1, **meta)
        self.loop = Leases(self.memory.lives)
        parts = WatchParts(self.crawler, OPTIONS, self.loop, self.memory)
        self.watch = RequestWatch(parts, self.request)

    def keep(self, *parts: bytes | float, head: bytes = HEAD) -> KeptBody:
        """Of *parts* numbers are seconds that nothing comes."""
        return run_in_virtual_time(self.kept(*parts, head=head))

    async def kept(self, *parts: bytes | float, head: bytes = HEAD) -> KeptBody:
        room = self.watch.room(AnswerHead(head, head, 200, len(HEAD)))
        return await self.watch.in_time(self.watch.keep(chunks(*parts), room))


async def chunks(*parts: bytes | float) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, bytes):
            yield part
        else:
            await asyncio.sleep(part)


@pytest.mark.parametrize(
    ("parts", "expect"),
    [
        pytest.param([], KeptBody(b""), id="no body"),
        pytest.param([b"12345", b"67890"], KeptBody(b"1234567890"), id="a body that just fits"),
        pytest.param(
            [b"12345", b"678901"],
            KeptBody(b"1234567890", Truncated.LENGTH),
            id="one byte more, and the head had counted",
        ),
        pytest.param(
            [b"1" * 1000], KeptBody(b"1" * 10, Truncated.LENGTH), id="a chunk far over the cap"
        ),
        pytest.param([b"1", 31.0, b"2"], KeptBody(b"1", Truncated.TIME), id="out of time"),
        pytest.param([b"1", 29.0, b"2"], KeptBody(b"12"), id="slow, and just in time"),
    ],
)
def test_a_body_within_its_limit_is_kept(parts: list[bytes | float], expect: KeptBody) -> None:
    assert Desk().keep(*parts) == expect


def test_an_answer_without_a_head_in_time_is_an_error() -> None:
    with pytest.raises(DownloadTimeoutError):
        run_in_virtual_time(Desk().watch.in_time(asyncio.sleep(31.0)))


def test_a_cancelled_fetch_is_not_taken_for_a_time_out() -> None:
    desk = Desk()

    async def life() -> None:
        fetch = asyncio.ensure_future(desk.kept(b"1", 10.0))
        await asyncio.sleep(1.0)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch

    run_in_virtual_time(life())


LONG = b"x" * (FREE_BYTES + 1)
NO_CAP = {"download_maxsize": 0}


@pytest.mark.parametrize(
    ("paused_s", "are_ours", "cut"),
    [
        pytest.param(500.0, True, Truncated.NO, id="a pause takes nothing of its time"),
        pytest.param(29.0, False, Truncated.NO, id="it does if the lease may end"),
        pytest.param(31.0, False, Truncated.TIME, id="so a lease never ends before its fetch"),
    ],
)
def test_a_fetch_pauses_while_there_is_no_memory(
    paused_s: float, are_ours: bool, cut: Truncated
) -> None:
    memory = Memory(1)
    memory.are_ours = are_ours
    _, other = memory.leased(2)
    memory.add(memory.share_of(other), len(LONG))
    desk = Desk(memory, **NO_CAP)

    async def life() -> KeptBody:
        asyncio.get_running_loop().call_later(paused_s, memory.end, other)
        return await desk.kept(b"1", LONG)

    kept = run_in_virtual_time(life())
    assert kept.truncated == cut
    assert kept.body == (b"1" if cut else b"1" + LONG)
    assert memory.counted["memory/pauses"] == 1
    assert desk.life.paused_s == pytest.approx(30.0 if cut else paused_s)


def test_the_time_before_and_after_a_pause_counts() -> None:
    memory = Memory(1)
    _, other = memory.leased(2)
    memory.add(memory.share_of(other), len(LONG))
    desk = Desk(memory, **NO_CAP)

    async def life() -> KeptBody:
        asyncio.get_running_loop().call_later(200.0, memory.end, other)
        return await desk.kept(20.0, LONG, 9.0, b"2", 2.0, b"3")

    assert run_in_virtual_time(life()) == KeptBody(LONG + b"2", Truncated.TIME)


def test_a_body_counts_until_its_page_is_finished() -> None:
    desk = Desk()
    desk.keep(b"1", b"22")
    assert desk.memory.used_bytes == 3
    desk.memory.end(desk.life)
    assert desk.memory.used_bytes == 0


def test_a_request_may_ask_for_more_or_less() -> None:
    assert Desk(download_maxsize=len(HEAD) + 2).keep(b"123") == KeptBody(b"12", Truncated.LENGTH)
    assert Desk(download_maxsize=0).keep(b"1" * 99) == KeptBody(b"1" * 99)


@pytest.mark.parametrize(
    ("asked", "expect_s"),
    [
        pytest.param(None, OPTIONS.total_timeout_s, id="nothing asked"),
        pytest.param(7.0, 7.0, id="a request may have less time"),
        pytest.param(1, 1, id="in whole seconds too"),
        pytest.param(86_400, OPTIONS.total_timeout_s, id="never more: leases count on it"),
        pytest.param(float("inf"), OPTIONS.total_timeout_s, id="nor for ever"),
        pytest.param(float("nan"), OPTIONS.total_timeout_s, id="no number"),
        pytest.param(0, OPTIONS.total_timeout_s, id="0, which is no limit to aiohttp"),
        pytest.param(-1, OPTIONS.total_timeout_s, id="less than 0, which is none either"),
        pytest.param("7", OPTIONS.total_timeout_s, id="text, from JSON that was pushed"),
    ],
)
def test_a_fetch_is_never_longer_than_the_total(asked: object, expect_s: float) -> None:
    desk = Desk(download_timeout=asked)
    assert desk.watch.timeout_s() == expect_s
    assert Desk().watch.timeout_s() == OPTIONS.total_timeout_s


def test_a_users_component_receives_all_signals_and_may_end_the_fetch() -> None:
    desk, received = Desk(), []

    def on_headers(body_length: int | None) -> None:
        received.append(body_length)

    def on_bytes(data: bytes) -> None:
        received.append(len(data))
        if data == b"22":
            raise StopDownload(fail=False)

    desk.crawler.signals.connect(on_headers, signals.headers_received)
    desk.crawler.signals.connect(on_bytes, signals.bytes_received)
    head = HEAD[:-2] + b"Content-Length: 6\r\n\r\n"
    kept = desk.keep(b"1", b"22", b"333", head=head)
    assert kept == KeptBody(b"122", Truncated.UNSPECIFIED)
    assert desk.watch.stop is not None
    assert received == [6, 1, 2]


def test_a_component_of_the_user_may_refuse_the_body() -> None:
    desk = Desk()

    def on_headers() -> None:
        raise StopDownload(fail=False)

    desk.crawler.signals.connect(on_headers, signals.headers_received)
    assert desk.keep(b"1").body == b""


@pytest.mark.parametrize(
    ("status", "line", "heads"),
    [
        pytest.param(200, b"A: 1", [], id="a page"),
        pytest.param(429, b"A: 1", [(429, None)], id="too many"),
        pytest.param(503, b"retry-after: 7 ", [(503, b"7 ")], id="down, for so long"),
        pytest.param(302, b"Retry-After: 7", [(302, b"7")], id="to wait before the next"),
    ],
)
def test_a_head_that_says_to_wait_is_passed_on_at_once(
    status: int, line: bytes, heads: list[tuple[int, bytes | None]]
) -> None:
    desk = Desk()
    clean = b"HTTP/1.1 %d Word\r\n%b\r\n\r\n" % (status, line)
    desk.watch.note_head(AnswerHead(clean, clean, status, len(clean)))
    assert desk.loop.heads == heads


def test_the_response_is_scrapys() -> None:
    desk = Desk()
    exchange = Exchange(
        url=desk.request.url,
        at=0.0,
        duration_s=0.0,
        request_head=b"",
        head=HEAD,
        body=b"<p>",
        ip="192.0.2.1",
        truncated=Truncated.TIME,
    )
    clean = HEAD[:-2] + b"Content-Type: text/html\r\n\r\n"
    head = AnswerHead(HEAD, clean, 200, len(HEAD))
    desk.watch.room(head)
    response = response_of(desk.request, Fetched(exchanges=(exchange,), head=head), desk.watch)
    assert isinstance(response, HtmlResponse)
    assert (response.body, response.protocol, str(response.ip_address)) == (
        *(b"<p>", "HTTP/1.0", "192.0.2.1"),
    )
    assert response.flags == ["truncated_time"]
    assert response.headers == Headers({"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("value", "length"),
    [("12", 12), ("", None), ("-1", None), ("1e3", None), ("9" * 19, None)],
    ids=["digits", "nothing", "negative", "scientific", "over 64 bits"],
)
def test_a_length_is_digits(value: str, length: int | None) -> None:
    assert declared_length(Headers({"Content-Length": value})) == length


NAMES = st.sampled_from([b"Content-Type", b"content-type", b"x-a_b", b"ETag", b"X\xff"])


@given(fields=st.lists(st.tuples(NAMES, st.binary(max_size=4))))
def test_headers_are_those_scrapy_would_have_made(fields: list[tuple[bytes, bytes]]) -> None:
    assert headers_of(fields) == Headers(fields)
    assert list(headers_of(fields)) == list(Headers(fields))
