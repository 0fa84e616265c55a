"""Links that are sorted and judged together are what each is by itself; compiled or interpreted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.model import url_scan
from crawler.model.url import fetch_form, fetch_forms
from tests.harness.budget import examples
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.model.url_scan")
WEB_PLATFORM = json.loads(
    (Path(__file__).parents[1] / "data" / "urltestdata.json").read_text(encoding="utf-8")
)
INPUTS = [case["input"] for case in WEB_PLATFORM if isinstance(case, dict)]
BASES = (
    "https://www.example.com/news/today.html?x=/y",
    "http://127.0.0.1:8000/a/b/c/",
    "http://example.com/",
    "http://[::1]/q",
    "ftp://example.com/",
    "rubbish",
)
PIECES = (
    *("/", "//", "a", "b.html", ".", "..", "../", "../../", "%2e", "%2E", "%41", "%", "?", "#"),
    *("&", "=", ":", "@", ";", "~", "'", "|", "*", "[", "\\", " ", "\t", "\n", "\0", "\ud800", "é"),
    *("http:", "http://", "https://", "https:/", "HTTP://", "www.example.com", "xn--a.b"),
    *("1.2.3.4", "mailto:", ":80", ":8080", "host:80", "jpg", "JPG", ".gz", "2099", "1066"),
    *("05", "-", "x" * 290),
)  # fmt: skip
LINKS = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), max_size=10)
URLS = st.lists(
    st.lists(st.sampled_from(PIECES), max_size=8).map(lambda each: "http://a.b/" + "".join(each)),
    max_size=10,
)


@settings(max_examples=examples(400))
@given(LINKS, st.sampled_from(BASES))
def test_links_together_have_the_forms_of_each(links: list[str], base: str) -> None:
    assert fetch_forms(links, base) == [fetch_form(link, base) for link in links]


@pytest.mark.parametrize("base", BASES)
def test_every_input_of_the_web_platform_together(base: str) -> None:
    assert len(INPUTS) == 891
    assert fetch_forms(INPUTS, base) == [fetch_form(text, base) for text in INPUTS]


@settings(max_examples=examples(400))
@given(LINKS | URLS)
def test_the_interpreter_finds_the_same(links: list[str]) -> None:
    assert url_scan.kinds_of(links) == INTERPRETED.kinds_of(links)
    for limits in ((40, 3, ("jpg", "gz")), (2048, 10, ())):
        found = url_scan.PlainUrls(*limits).verdicts(links)
        assert found == INTERPRETED.PlainUrls(*limits).verdicts(links)


@settings(max_examples=examples(200))
@given(st.lists(st.text(max_size=40), max_size=10))
def test_any_texts_stay_within_bounds_in_the_interpreter(texts: list[str]) -> None:
    """An index out of bounds raises an error there."""
    assert url_scan.kinds_of(texts) == INTERPRETED.kinds_of(texts)


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        pytest.param("http://a.example/b?c=/d:e", url_scan.WHOLE, id="a whole URL"),
        pytest.param("/a/b:c.html", url_scan.ROOTED, id="a path"),
        pytest.param("a/%D1%8F", url_scan.BELOW, id="a name in another script"),
        pytest.param("../../a", url_scan.BELOW + 2, id="two levels up"),
        pytest.param("a#b c", url_scan.BELOW + url_scan.WITH_FRAGMENT, id="with a fragment"),
        pytest.param("a/../b", url_scan.OTHER, id="a dot segment"),
        pytest.param("//a.example/", url_scan.OTHER, id="another host"),
        pytest.param("mailto:a", url_scan.OTHER, id="another scheme"),
        pytest.param("é", url_scan.OTHER, id="what is to be escaped"),
        pytest.param("", url_scan.OTHER, id="nothing"),
    ],
)
def test_kinds(link: str, kind: int) -> None:
    assert url_scan.kinds_of([link]) == bytes([kind])
    assert url_scan.kinds_of(["x", link, "/"]) == bytes([url_scan.BELOW, kind, url_scan.ROOTED])


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        pytest.param("http://a.example/", True, id="a home page"),
        pytest.param("https://1.2.3.4:8000/a/b-2099.html", True, id="a page"),
        pytest.param("http://a.example/a/b/c", True, id="three segments"),
        pytest.param("http://a.example/a/b/c/", False, id="four"),
        pytest.param("http://a.example/2099/", False, id="a year"),
        pytest.param("http://a.example/2099-01", False, id="a month"),
        pytest.param("http://a.example/a.JPG", False, id="a type that is denied"),
        pytest.param("http://a.example/a.jpg/b", True, id="a directory called like it"),
        pytest.param("http://a.example/a?b", False, id="a query"),
        pytest.param("http://a.example/%7e", False, id="an escape"),
        pytest.param("http://a.example./", False, id="a dot behind the host"),
        pytest.param("http://a.example/" + "b" * 30, False, id="a long one"),
    ],
)
def test_verdicts(url: str, is_plain: bool) -> None:
    assert url_scan.PlainUrls(40, 3, {"jpg"}).verdicts([url, "x"]) == bytes([is_plain, 0])
