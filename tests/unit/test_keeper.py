"""What is kept of a body: exactly its room, and what came before anything went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers, HtmlResponse
from scrapy.utils.test import get_crawler

from crawler.core.exchange import DownloadOptions, Exchange, Exchanges, Truncated
from crawler.download.keeper import Keeper, Kept, declared_length, headers_of

HEAD = b"HTTP/1.0 200 OK\r\n\r\n"
CAP_BYTES = len(HEAD) + 10
OPTIONS = DownloadOptions(cap=lambda kind, url: CAP_BYTES, admits=lambda ip, host: True)


class Desk:
    """A keeper, its crawler, and a request."""

    def __init__(self, **meta: Any) -> None:
        self.crawler: Crawler = get_crawler()
        self.exchanges = Exchanges()
        self.keeper = Keeper(self.crawler, OPTIONS, self.exchanges)
        self.request = Request("http://a.example/", meta=meta)

    def keep(self, *parts: bytes | Exception, **headers: str) -> Kept:
        told = Headers({name.replace("_", "-"): value for name, value in headers.items()})
        return asyncio.run(self.keeper.keep(self.request, told, HEAD, chunks(*parts)))


async def chunks(*parts: bytes | Exception) -> AsyncIterator[bytes]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
        yield part


@pytest.mark.parametrize(
    ("parts", "expect"),
    [
        pytest.param([], Kept(b""), id="no body"),
        pytest.param([b"12345", b"67890"], Kept(b"1234567890"), id="a body that just fits"),
        pytest.param(
            [b"12345", b"678901"],
            Kept(b"1234567890", Truncated.LENGTH),
            id="one byte more, and the head had counted",
        ),
        pytest.param(
            [b"1" * 1000], Kept(b"1" * 10, Truncated.LENGTH), id="a chunk far over the cap"
        ),
        pytest.param([b"1", TimeoutError()], Kept(b"1", Truncated.TIME), id="out of time"),
    ],
)
def test_a_body_has_its_room(parts: list[bytes | Exception], expect: Kept) -> None:
    assert Desk().keep(*parts) == expect


def test_a_request_may_ask_for_more_or_less() -> None:
    assert Desk(download_maxsize=len(HEAD) + 2).keep(b"123") == Kept(b"12", Truncated.LENGTH)
    assert Desk(download_maxsize=0).keep(b"1" * 99) == Kept(b"1" * 99)


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
    assert desk.keeper.timeout_s(desk.request) == expect_s
    assert Desk().keeper.timeout_s(Desk().request) == OPTIONS.total_timeout_s


def test_a_component_of_the_user_hears_of_all_and_may_end_it() -> None:
    desk, heard = Desk(), []

    def on_headers(body_length: int | None) -> None:
        heard.append(body_length)

    def on_bytes(data: bytes) -> None:
        heard.append(len(data))
        if data == b"22":
            raise StopDownload(fail=False)

    desk.crawler.signals.connect(on_headers, signals.headers_received)
    desk.crawler.signals.connect(on_bytes, signals.bytes_received)
    kept = desk.keep(b"1", b"22", b"333", content_length="6")
    assert (kept.body, kept.truncated) == (b"122", Truncated.UNSPECIFIED)
    assert kept.stop is not None
    assert heard == [6, 1, 2]


def test_a_component_of_the_user_may_refuse_the_body() -> None:
    desk = Desk()

    def on_headers() -> None:
        raise StopDownload(fail=False)

    desk.crawler.signals.connect(on_headers, signals.headers_received)
    assert desk.keep(b"1").body == b""


def test_the_response_is_scrapys_and_the_exchange_is_kept() -> None:
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
    headers = Headers({"Content-Type": "text/html"})
    response = desk.keeper.response(desk.request, exchange, status=200, headers=headers)
    assert isinstance(response, HtmlResponse)
    assert (response.body, response.protocol, str(response.ip_address)) == (
        *(b"<p>", "HTTP/1.0", "192.0.2.1"),
    )
    assert response.flags == ["truncated_time"]
    assert desk.exchanges.take(desk.request) is exchange


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
