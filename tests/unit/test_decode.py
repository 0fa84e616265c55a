"""The middleware that decodes: what the page becomes, and which flags it gets."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest
from scrapy.http import HtmlResponse, Response
from scrapy.utils.test import get_crawler

from crawler.content.body_memory import FREE_BYTES
from crawler.middlewares.decode import DecodeMiddleware
from crawler.model.page import DownloadOptions, Flag
from tests.harness.body_memory import Memory
from tests.harness.waiting import run_in_virtual_time

HTML = "<html><p>caf\xe9</p></html>".encode("latin-1")
GZIP = zlib.compress(HTML, 9, 31)
OPTIONS = DownloadOptions(
    cap=lambda kind, url: 1000,
    admits=lambda ip, host, port: True,
)


class Desk:
    """The middleware, and one answer for it."""

    def __init__(
        self, body: bytes, method: str = "GET", memory: Memory | None = None, **meta: Any
    ) -> None:
        crawler = get_crawler()
        assert crawler.stats
        self.stats = crawler.stats
        self.memory = memory or Memory()
        self.middleware = DecodeMiddleware(OPTIONS, crawler.stats, self.memory, self.memory.lives)
        leased, self.fetch = self.memory.leased(1, **meta)
        self.request = leased.replace(method=method, url="http://a.example/page")
        self.memory.lives.hand_out(self.fetch, self.request)
        self.body = body

    def decoded(self, coding: str | None, kind: str = "text/html; charset=latin-1") -> Response:
        headers = {"Content-Type": kind} | ({"Content-Encoding": coding} if coding else {})
        answer = Response(self.request.url, headers=headers, body=self.body, flags=["before"])
        return run_in_virtual_time(self.middleware.process_response(self.request, answer))


def test_compressed_answers_are_asked_for() -> None:
    desk = Desk(b"")
    desk.middleware.process_request(desk.request)
    assert desk.request.headers[b"Accept-Encoding"] == b"gzip, deflate, br, zstd"


def test_settings_of_a_request_are_kept() -> None:
    desk = Desk(b"")
    desk.request.headers[b"Accept-Encoding"] = b"identity"
    desk.middleware.process_request(desk.request)
    assert desk.request.headers[b"Accept-Encoding"] == b"identity"


def test_a_decoded_page_has_the_class_of_its_type() -> None:
    page = Desk(GZIP).decoded("gzip")
    assert isinstance(page, HtmlResponse)
    assert (page.body, page.encoding) == (HTML, "cp1252")
    assert b"Content-Encoding" not in page.headers
    assert page.flags == ["before"]


def test_an_answer_without_coding_is_left_alone() -> None:
    desk = Desk(HTML)
    answer = Response(desk.request.url, body=HTML)
    assert run_in_virtual_time(desk.middleware.process_response(desk.request, answer)) is answer


def test_an_answer_to_head_has_no_body_to_decode() -> None:
    page = Desk(b"", method="HEAD").decoded("gzip")
    assert page.headers[b"Content-Encoding"] == b"gzip"


def test_a_bomb_is_cut_at_the_cap() -> None:
    desk = Desk(zlib.compress(bytes(10_000_000), 9, 31))
    page = desk.decoded("gzip")
    assert len(page.body) == 1000
    assert page.flags == ["before", Flag.DECODED_LENGTH]
    assert desk.stats.get_value("decode/decoded_length") == 1


def test_a_request_may_ask_for_more() -> None:
    page = Desk(zlib.compress(bytes(5000), 9, 31), download_maxsize=2000).decoded("gzip")
    assert len(page.body) == 2000


@pytest.mark.parametrize(
    ("coding", "body", "cls", "header"),
    [
        pytest.param("dcb", b"\0\1", Response, b"dcb", id="an unknown coding is no text"),
        pytest.param("utf-8", HTML, HtmlResponse, None, id="a word that means nothing: a page"),
    ],
)
def test_a_coding_that_cannot_be_undone(
    coding: str, body: bytes, cls: type[Response], header: bytes | None
) -> None:
    page = Desk(body).decoded(coding)
    assert type(page) is cls
    assert (page.body, page.headers.get(b"Content-Encoding")) == (body, header)


def test_decoded_bytes_count_in_memory() -> None:
    desk = Desk(GZIP)
    desk.decoded("gzip")
    assert desk.memory.used_bytes == len(HTML)


def test_an_unchanged_body_counts_once() -> None:
    desk = Desk(HTML)
    desk.decoded("dcb")
    assert desk.memory.used_bytes == 0, "the download has counted it"


@pytest.mark.parametrize(
    ("made_bytes", "pauses"),
    [
        pytest.param(FREE_BYTES, 0, id="a small page passes where there is no memory"),
        pytest.param(FREE_BYTES + 1, 1, id="a large one waits for its turn"),
        pytest.param(10 * FREE_BYTES, 1, id="a bomb too"),
    ],
)
def test_decoding_waits_for_memory(made_bytes: int, pauses: int) -> None:
    memory = Memory(FREE_BYTES)
    _, other = memory.leased(2)
    memory.add(memory.share_of(other), FREE_BYTES + 1)
    packed = zlib.compress(bytes(made_bytes), 9, 31)
    desk = Desk(packed, memory=memory, download_maxsize=4 * FREE_BYTES)
    answer = Response(desk.request.url, headers={"Content-Encoding": "gzip"}, body=packed)

    async def life() -> Response:
        asyncio.get_running_loop().call_later(100.0, memory.end, other)
        return await desk.middleware.process_response(desk.request, answer)

    assert len(run_in_virtual_time(life()).body) == min(made_bytes, 4 * FREE_BYTES)
    assert memory.counted["memory/pauses"] == pauses
    assert desk.fetch.paused_s == pytest.approx(100.0 * pauses)
