"""The Markdown of a page: what a CommonMark parser reads in it is what the page has."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from crawler.content.parsers import html_markdown, html_scan
from crawler.content.parsers.html import HtmlParser
from crawler.model.choices import ColumnGroup
from crawler.model.page import Source
from tests.harness.budget import examples
from tests.harness.html_pages import PIECES
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.content.parsers.html_markdown")
PARSER = MarkdownIt("commonmark").enable("table")


def markdown(html: str) -> str:
    asked = frozenset((ColumnGroup.MARKDOWN,))
    source = Source("http://a.example/", "text/html", html.encode(errors="replace"), asked=asked)
    return HtmlParser().parse(source).markdown


def words_of(token: Token) -> str:
    return "".join(each.content for each in token.children or ())


def read_back(text: str) -> dict[str, list[Any]]:
    """Headings, links, code, items and cells that a parser finds."""
    tokens = PARSER.parse(text)
    found: dict[str, list[Any]] = {name: [] for name in ("h", "a", "code", "li", "td", "p")}
    for before, token in pairwise(tokens):
        if token.type != "inline":
            continue
        kind = {"heading_open": "h", "paragraph_open": "p"}.get(before.type, "td")
        said = words_of(token)
        found[kind].append((int(before.tag[1]), said) if kind == "h" else said)
        children = token.children or []
        for at, child in enumerate(children):
            if child.type == "link_open":
                found["a"].append((child.attrs["href"], children[at + 1].content))
            elif child.type == "code_inline":
                found["code"].append(child.content)
    found["code"] += [token.content for token in tokens if token.type == "fence"]
    found["li"] = [token.info or "-" for token in tokens if token.type == "list_item_open"]
    return found


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        pytest.param(
            "<h1>A &amp; b</h1><h3>c</h3>", {"h": [(1, "A & b"), (3, "c")]}, id="headings"
        ),
        pytest.param("<p># a</p><p>1. b</p><p>- c</p>", {"p": ["# a", "1. b", "- c"]}, id="none"),
        pytest.param(
            "<p>a *b* _c_ `d` [e](f) &lt;g> \\h</p>",
            {"p": ["a *b* _c_ `d` [e](f) <g> \\h"]},
            id="signs",
        ),
        pytest.param(
            "<p>&amp;amp; &amp;#65; a&amp;b</p>", {"p": ["&amp; &#65; a&b"]}, id="references"
        ),
        pytest.param(
            "<p>a <a href='/x y?a=1&amp;b=(2)'>b <b>c</b></a>.",
            {"a": [("/x%20y?a=1&b=%282%29", "b c")]},
            id="a link",
        ),
        pytest.param("<p>a!<a href=x>b</a>", {"a": [("x", "b")], "p": ["a!b"]}, id="no picture"),
        pytest.param(
            "<h2><a href=x>b</a></h2>",
            {"h": [(2, "b")], "a": [("x", "b")]},
            id="a link at the begin",
        ),
        pytest.param("<p>a <a href=#x>b</a><a href=y></a>", {"a": []}, id="no link"),
        pytest.param("<p>a <code>b*`c</code> d", {"code": ["b*`c"]}, id="code in a line"),
        pytest.param(
            "<pre>a\n  b\n\n```c</pre><p>d",
            {"code": ["a\n  b\n\n```c\n"], "p": ["d"]},
            id="a block of code",
        ),
        pytest.param(
            "<ul><li>a<li>b<ul><li>c</ul><li>d</ul>",
            {"li": ["-"] * 4, "p": ["a", "b", "c", "d"]},
            id="a list",
        ),
        pytest.param("<ol><li>a<li>b</ol>", {"li": ["1", "2"]}, id="numbers"),
        pytest.param(
            "<ul><li><p>a</p><p>b</p><pre>c</pre></ul>",
            {"li": ["-"], "p": ["a", "b"], "code": ["c\n"]},
            id="blocks in an item",
        ),
        pytest.param(
            "<blockquote><p>a<p>b</blockquote>c", {"p": ["a", "b", "c"]}, id="a quotation"
        ),
        pytest.param(
            "<table><tr><th>a<th>b<tr><td>1|2<td><a href=x>y</a></table>",
            {"td": ["a", "b", "1|2", "y"], "a": [("x", "y")]},
            id="a table",
        ),
        pytest.param("<nav><a href=x>m</a></nav><p>a", {"a": [], "p": ["a"]}, id="only content"),
    ],
)
def test_what_a_page_has_is_read_back(html: str, expected: dict[str, list[Any]]) -> None:
    written = markdown(f"<main>{html}</main>")
    found = read_back(written)
    assert {name: found[name] for name in expected} == expected, written


TAGS = st.sampled_from(
    (
        *("<blockquote>", "</blockquote>", "<ol>", "</ol>", "</ul>", "<code>", "</code>", "</li>"),
        *("</h1>", "<h3>", "`", "``", "*", "_", "|", "1. ", "# ", "<a href='(x) &amp;'>", "<th>"),
    )
)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(PIECES) | TAGS, max_size=40).map("".join))
def test_any_page_is_written_within_its_memory_and_as_the_interpreter_does(html: str) -> None:
    page = html.replace("\0", "").encode(errors="replace")
    out, end, _, tags = html_scan.scanned_with_tags(page, False, 100)
    _, _, lines, sees_all = html_scan.chosen_lines(out, end)
    read = html_scan.readable(page)
    given = (read, out, end, tags, lines)
    found = html_markdown.markdown(*given, sees_all=sees_all)
    assert INTERPRETED.markdown(*given, sees_all=sees_all) == found
    PARSER.parse(found)


@settings(max_examples=examples(200))
@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=60))
def test_any_words_are_read_back(words: str) -> None:
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    text = " ".join(words.split())
    if text:
        found = read_back(markdown(f"<main><p>{escaped}</p></main>"))
        assert [" ".join(each.split()) for each in found["p"]] == [text]


@pytest.mark.parametrize(
    "html",
    [
        "<ul><li>a" * 50_000,
        "<code>`" * 100_000,
        "<a href=((((((((>b" * 50_000,
        "<td>a" * 100_000,
        "<blockquote><p>a" * 50_000,
        "<pre>" + "`\n" * 200_000,
    ],
)
def test_hostile_pages_take_linear_time(html: str) -> None:
    begun = time.process_time()
    assert len(markdown(html)) < 40 * len(html)
    assert time.process_time() - begun < 3
