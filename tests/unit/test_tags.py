"""Whatever a page holds, reading its tags takes time and memory in proportion."""

from __future__ import annotations

from itertools import product
from time import process_time

from crawler.policy.tags import attributes, start_tags

PIECES = (
    *("<div>", "</div>", "<p>", "<b>", "<a href=x>", "<table>", "<li>", "<object>", "</p>"),
    *("<title>", "<script>", "</script", "<!--", "-->", "--", "<!", "<", ">", "'", '"'),
    *("a=", "=", "/", " ", "&#9", "&amp;", "x"),
)


def seconds(unit: str, times: int) -> float:
    text = unit * times
    begun = process_time()
    for _, written, _ in start_tags(text):
        attributes(written)
    return process_time() - begun


def test_time_is_linear_in_the_page_whatever_it_holds() -> None:
    """Four times the page takes about four times as long: with a tree sixteen times."""
    units = [one + other for one, other in product(PIECES, PIECES)]
    few = sum(seconds(unit, 500) for unit in units)
    many = sum(seconds(unit, 2_000) for unit in units)
    assert many < 8 * few


def test_of_two_attributes_with_one_name_the_first_counts() -> None:
    assert attributes(" a=1 A='2' b c=\"\"") == {"a": "1", "b": "", "c": ""}


def test_a_tag_that_never_ends_is_none() -> None:
    assert list(start_tags("<a href=x><a href='y><a href=z>")) == [("a", " href=x", "")]
