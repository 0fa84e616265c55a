"""How much of an answer is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import FetchSettings
from crawler.policy.media_type import cap_bytes, media_type
from crawler.policy.robots import MIN_BODY_BYTES

CAPS = FetchSettings(html_max_bytes=2_000, pdf_max_bytes=64_000, other_max_bytes=15_000)
PAGE = "http://example.com/page"


@pytest.mark.parametrize(
    ("content_type", "url", "want"),
    [
        pytest.param(b"text/html", PAGE, 2_000, id="HTML"),
        pytest.param(b" TEXT/HTML ; charset=utf-8", PAGE, 2_000, id="however it is written"),
        pytest.param(b"text/html,text/html", PAGE, 2_000, id="said twice"),
        pytest.param(b"application/xhtml+xml", PAGE, 2_000, id="XHTML"),
        pytest.param(b"application/pdf", PAGE, 64_000, id="PDF"),
        pytest.param(b"image/png", PAGE, 15_000, id="anything else"),
        pytest.param(b"text/html", PAGE + ".pdf", 2_000, id="the header counts, not the name"),
        pytest.param(None, PAGE, 2_000, id="no header: a page"),
        pytest.param(b"", PAGE, 2_000, id="an empty header: a page"),
        pytest.param(b"nonsense", PAGE, 2_000, id="no type in it: a page"),
        pytest.param(b"\xff/\xfe", PAGE, 2_000, id="bytes: a page"),
        pytest.param(None, PAGE + ".PDF?x=1", 64_000, id="no header, but a name"),
        pytest.param(b"application/octet-stream", PAGE + ".pdf", 64_000, id="bytes with a name"),
        pytest.param(b"application/octet-stream", PAGE, 15_000, id="bytes without"),
    ],
)
def test_cap(content_type: bytes | None, url: str, want: int) -> None:
    assert cap_bytes(content_type, url, CAPS) == want


def test_the_defaults_are_those_that_were_asked_for() -> None:
    assert 2_000_000 <= cap_bytes(b"text/html", PAGE, FetchSettings()) <= 2 * 1024 * 1024
    assert 64_000_000 <= cap_bytes(b"application/pdf", PAGE, FetchSettings()) <= 64 * 1024 * 1024


@pytest.mark.parametrize("content_type", [None, b"text/plain", b"text/html"])
def test_a_robots_txt_is_never_cut_below_what_must_be_read(content_type: bytes | None) -> None:
    assert cap_bytes(content_type, "http://example.com/robots.txt", CAPS) > MIN_BODY_BYTES


@given(st.binary(max_size=50))
def test_no_header_breaks_it(content_type: bytes) -> None:
    assert media_type(content_type).isascii()
    assert cap_bytes(content_type, PAGE, CAPS) in (2_000, 15_000, 64_000)
