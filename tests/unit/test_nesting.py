"""Hostile nesting costs linear time, and the links of such a page are still found."""

from __future__ import annotations

from itertools import product
from time import process_time

import pytest

from crawler.policy.html import read_html
from crawler.policy.nesting import FEW_TAGS, MAX_DEPTH, flat

DEEP = MAX_DEPTH + FEW_TAGS


def test_an_ordinary_page_is_left_alone():
    page = "<html><body>" + "<div><p>text</p><br><img src=x></div>" * FEW_TAGS
    assert flat(page) is page


@pytest.mark.parametrize(
    "nested",
    [
        pytest.param("<div>" * DEEP, id="never closed"),
        pytest.param("<div>" * DEEP + "</div>" * DEEP, id="closed in the end"),
        pytest.param("<b></p>" * DEEP, id="closed under another name"),
        pytest.param("<ul><li>" * DEEP, id="lists in lists"),
        pytest.param("<DIV >" * DEEP, id="in capitals"),
    ],
)
def test_the_links_of_a_page_nested_too_deep_are_found(nested: str):
    page = f"<title>t</title><base href=/b/>{nested}<a href=x>x</a><iframe src=y></iframe>"
    read = read_html(page.encode(), "text/html; charset=utf-8", skip_nofollow=True)
    assert (read.links, read.base, read.title) == (("x", "y"), "/b/", "t")


NAMES = ("div", "p", "b", "a", "table", "td", "li", "/p", "/b")


def seconds(unit: str, tags: int) -> float:
    page = ("<body>" + unit * tags).encode()
    begun = process_time()
    read_html(page, "text/html; charset=utf-8", skip_nofollow=True)
    return process_time() - begun


def test_time_is_linear_in_the_page_whatever_nests():
    """Four times the page takes about four times as long: with a tree sixteen times."""
    pairs = [f"<{one}><{other}>" for one, other in product(NAMES, NAMES)]
    few = sum(seconds(pair, 5_000) for pair in pairs)
    many = sum(seconds(pair, 20_000) for pair in pairs)
    assert many < 8 * few
