"""Exchanges: read as sent."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from crawler.model.page import (
    NO_LIMIT,
    DownloadOptions,
    Exchange,
    Page,
    Truncated,
    incomplete_error,
)

HEAD = b"HTTP/1.1 200 Fine\r\nA: 1\r\nb:  two \r\nA: 3\r\nodd\r\n\r\n"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        pytest.param((), "", id="whole"),
        pytest.param(("truncated_disconnect",), "disconnect", id="the server left"),
        pytest.param(("truncated_unspecified",), "protocol", id="bad chunks"),
        pytest.param(
            ("truncated_unspecified", "download_stopped"), "", id="ended by a user's component"
        ),
        pytest.param(("truncated_length",), "", id="our cap"),
        pytest.param(("truncated_time",), "", id="our time-out"),
        pytest.param(("decoded_cut",), "disconnect", id="its coding ends early"),
        pytest.param(("decoded_cut", "truncated_length"), "", id="because of our cap"),
        pytest.param(("decoded_cut", "truncated_time"), "", id="because of our time-out"),
        pytest.param(("decoded_cut", "decoded_broken"), "", id="because of damage around it"),
        pytest.param(("decoded_broken",), "", id="damaged, as it will be again"),
    ],
)
def test_reasons_of_broken_bodies(flags: tuple[str, ...], error: str) -> None:
    assert incomplete_error(flags) == error


def exchange() -> Exchange:
    return Exchange(
        url="http://a.example/",
        at=0.0,
        duration_s=0.1,
        request_head=b"GET / HTTP/1.1\nHost: a.example\n\n",
        head=HEAD,
        body=b"",
        ip="192.0.2.1",
    )


def test_lines_are_read_as_sent() -> None:
    one = exchange()
    assert one.status_line == b"HTTP/1.1 200 Fine"
    assert one.headers == [(b"A", b"1"), (b"b", b"two"), (b"A", b"3"), (b"odd", b"")]
    assert one.request_line == b"GET / HTTP/1.1"
    assert one.request_headers == [(b"Host", b"a.example")]


def test_a_whole_body_is_not_truncated() -> None:
    assert not Truncated.NO
    assert all(reason for reason in Truncated if reason is not Truncated.NO)


@pytest.mark.parametrize(
    ("asked", "room"),
    [
        pytest.param(None, 7, id="the crawl's cap"),
        pytest.param(3, 3, id="a request may ask for less"),
        pytest.param(9, 9, id="or for more"),
        pytest.param(0, NO_LIMIT, id="0 is Scrapy's word for no limit"),
    ],
)
def test_how_much_is_kept(asked: int | None, room: int) -> None:
    options = DownloadOptions(
        cap=lambda kind, url: 7,
        admits=lambda ip, host, port: True,
    )
    assert options.max_bytes(b"text/html", "http://a.example/", asked) == room


def test_a_page_is_replaced_like_a_dataclass() -> None:
    """Users' pipelines do so (docs/feeds.md)."""
    page = Page(
        url="http://a.example/", status=200, content_type="", body=b"x", depth=1, lease_id=2
    )
    changed = dataclasses.replace(page, title="A", links=("/b",))
    assert changed == structs.replace(page, title="A", links=("/b",)) != page
    assert [each.name for each in dataclasses.fields(page)] == list(Page.__struct_fields__)
    with pytest.raises(AttributeError):
        page.title = "B"
    assert repr(changed).startswith("Page(url='http://a.example/', status=200")
    assert "title='A'" in repr(changed) and "body" not in repr(changed)
