"""Reading what was pushed: a URL, or scrapy-redis' JSON form of a request."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.policy.seeds import Pushed, read_pushed

URL = "https://example.com/a"


@pytest.mark.parametrize(
    ("item", "want"),
    [
        pytest.param(b"https://example.com/a", Pushed(URL), id="a URL alone"),
        pytest.param(b" example.com/a\n", Pushed(URL), id="as people type it"),
        pytest.param(b'{"url": "https://example.com/a"}', Pushed(URL), id="a JSON object"),
        pytest.param(b'\xef\xbb\xbf{"url": "example.com/a"}', Pushed(URL), id="behind a BOM"),
        pytest.param(b'{"url": "example.com/a", "meta": null}', Pushed(URL), id="without meta"),
        pytest.param(
            b'{"url": "https://example.com/a", "meta": {"job-id": "123xsd", "n": [1, {}]}}',
            Pushed(URL, meta={"job-id": "123xsd", "n": [1, {}]}),
            id="with meta",
        ),
        pytest.param(
            b'{"url": "https://example.com/a", "method": "post", "key": "x", "list": ["y", "z"]}',
            Pushed(URL, "POST", form={"key": "x", "list": ["y", "z"]}),
            id="every other field is form data",
        ),
        pytest.param(
            "https://bücher.example/".encode(), Pushed("https://xn--bcher-kva.example/"), id="UTF-8"
        ),
    ],
)
def test_what_can_be_read(item: bytes, want: Pushed) -> None:
    assert read_pushed(item) == want


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(b"https://example.com/\xff", "not UTF-8", id="Latin-1"),
        pytest.param(b"{", "not JSON", id="half an object"),
        pytest.param(b'{"url": "https://a.b/"} {}', "not JSON", id="two objects"),
        pytest.param(b'{"link": "https://a.b/"}', "no URL in it", id="no URL"),
        pytest.param(b'{"url": ["https://a.b/"]}', "no URL in it", id="a list of URLs"),
        pytest.param(b'["https://a.b/"]', "not|host", id="a list"),
        pytest.param(b'{"url": "ftp://a.b/"}', "the scheme is ftp", id="another scheme"),
        pytest.param(b'{"url": "https://u:p@a.b/"}', "user name", id="a password"),
        pytest.param(b'{"url": "a.b", "meta": "x"}', "meta is no object", id="meta as text"),
        pytest.param(b'{"url": "a.b", "method": 1}', "method", id="a method that is none"),
        pytest.param(b'{"url": "a.b", "method": "A B"}', "method", id="a method with a blank"),
        pytest.param(
            b'{"url": "a.b", "priority": 5}', "'priority' is not form data", id="a number"
        ),
        pytest.param(b'{"url": "a.b", "x": {"y": "z"}}', "'x' is not form data", id="an object"),
        pytest.param(b'{"url": ' + b"[" * 30_000, "not JSON", id="nested without end"),
        pytest.param(pickle.dumps({"url": URL}), "not UTF-8", id="a pickle"),
    ],
)
def test_what_is_refused_says_why(item: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_pushed(item)


@given(st.binary() | st.text().map(str.encode))
def test_whatever_comes_is_read_or_refused(item: bytes) -> None:
    try:
        pushed = read_pushed(item)
    except ValueError:
        return
    assert pushed.url.startswith(("http://", "https://"))
