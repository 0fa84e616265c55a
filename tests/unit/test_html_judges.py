"""Our reading of HTML against lexbor's, which builds the tree that a browser builds."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler.content.parsers.html import HtmlParser, ScannedPage
from crawler.model.page import (
    LinkKind,
    Parsed,
    Source,
)
from tests.harness.budget import examples

# What the tree moves or forgets (<select>, <template>, <frameset>, a script that comments
# itself out) is not here: a link in there is followed, which costs a visit at worst.
PIECES = (
    *("<a href=", "<A HREF=", "<a\thref='q'>", "<area href=y>", "<iframe src=z></iframe>"),
    *('<a href="u">', '<a class="c" href="v" rel=w>', '<a href="', 'class="', "<img src=m>"),
    *("<base href=/b>", "<meta name=robots content=nofollow>", "<title>t</title>", "<title>"),
    *("<script>'<a href=no>'</script>", "<style>", "</style>", "<textarea>", "</textarea>"),
    *("<!--", "-->", "--!>", "->", "-", "<!x", "<?", "</", "</>", "<![CDATA[", "]]>"),
    *("<p", "<p>", "<b>", "</b>", "</a>", "<table>", "<td>", "</table>", "<noscript>"),
    *('"', "'", ">", " ", "\n", "=", "x", "href=", "\0", "<", "!", "?", "\xe9"),
    *("&amp;", "&copy=", "&copy;", "&lt", "&#65", "&#x41;", "&notit;", "&"),
)
LINKS = (("a", "href"), ("area", "href"), ("iframe", "src"), ("img", "src"))
DOCS = Path("/usr/share/doc")


def read(text: str) -> Parsed:
    return HtmlParser().parse(Source("", "text/html; charset=utf-8", text.encode()))


def by_lexbor(text: str) -> tuple[set[str], str, str, bool]:
    tree = LexborHTMLParser(text)
    targets = [
        node.attributes.get(name) or "" for element, name in LINKS for node in tree.tags(element)
    ]
    links = {target.strip(" \t\n\f\r") for target in targets}
    bases = [node.attributes["href"] or "" for node in tree.tags("base")]
    titles = [" ".join(node.text().split()) for node in tree.tags("title")]
    return (
        {link for link in links if link and not link.startswith("#")},
        next(iter(bases), ""),
        next(iter(titles), ""),
        any(node.attributes.get("name") == "robots" for node in tree.tags("meta")),
    )


@settings(max_examples=examples(1000))
@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_broken_markup_means_the_same_to_both(pieces: list[str]) -> None:
    text = "<!doctype html>" + "".join(pieces)
    ours = read(text)
    links = {link.url for link in ours.links}
    assert (links, ours.base, ours.title, "nofollow" in ours.robots) == by_lexbor(text)


LINK = "<area href='{}'/>"
# What HTML leaves open within a drawing (<title><g/></title>) is known to a tree only.
FOREIGN = st.recursive(
    st.sampled_from(
        (
            *(LINK, "<svg/>", "<math />", "<title/>", "<script/>", "<script id=s/></script>"),
            *("<style />", "<textarea/></textarea>", "<p></p>", "<font size=2></font>", "x > y"),
            *("<![CDATA[<p>]]>", "<!-- <p> -->"),
        )
    ),
    lambda within: st.builds(
        lambda name, pieces: f"<{name}>{LINK}{LINK.join(pieces)}{LINK}</{name.split()[0]}>",
        st.sampled_from(
            (
                *("svg", "math", "g", "title", "style", "foreignObject", "desc", "mi", "font"),
                *("script", "annotation-xml", "annotation-xml encoding=text/html", "mtext", "b"),
            )
        ),
        st.lists(within, max_size=4),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(st.lists(FOREIGN, max_size=3))
def test_links_in_and_behind_drawings_are_those_of_a_tree(pieces: list[str]) -> None:
    numbers = itertools.count()
    text = re.sub(
        r"\{\}", lambda _: str(next(numbers)), "<!doctype html>" + LINK.join(pieces) + LINK
    )
    hrefs = [node.attributes["href"] or "" for node in LexborHTMLParser(text).tags("area")]
    assert [link.url for link in read(text).links] == hrefs


# Of a tree's text too: elements whose words stay where they are written.
TEXT_PIECES = (
    *("<p>", "</p>", "<div>", "</div>", "<b>", "</b>", "<i class='x>y'>", "</i>", "<br>"),
    *("<ul>", "<li>", "</ul>", "<!-- x -->", "<!x>", "</>", "<script>x</script>", "<h1>", "</h1>"),
    *('<span id="s">', "</span>", "<style>p{}</style>", "<em a='<'>", "</em >", "<a href=u>"),
    *("one", "two", " ", "\n", "&amp;", "&lt;b&gt;", "&eacute;", "\xe9", "<", "3"),
)


@settings(max_examples=examples(500))
@given(st.lists(st.sampled_from(TEXT_PIECES), max_size=14))
def test_words_are_those_of_a_tree(pieces: list[str]) -> None:
    text = "<!doctype html><p>start " + "".join(pieces)
    tree = LexborHTMLParser(text)
    tree.strip_tags(["script", "style", "title"])
    assert tree.body is not None
    ours = ScannedPage(text).whole_text()
    assert "".join(ours.split()) == "".join(tree.body.text().split())


REAL = [
    *sorted(DOCS.glob("sqlite3/*.html"))[::60],
    *sorted(DOCS.glob("python3*/html/library/*.html"))[::60],
    *sorted(DOCS.glob("debian-handbook/html/en-US/*.html"))[::60],
]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_pages_have_the_words_and_links_of_a_tree(path: Path) -> None:
    """But for what stands for images, and for signs that link headings to themselves."""
    text = re.sub('alt="[^"]*"', "", path.read_text(errors="replace")).replace("¶", "")
    tree = LexborHTMLParser(text)
    hrefs = [(node.attributes["href"] or "").strip() for node in tree.css("a[href]")]
    links = [link.url for link in read(text).links if link.kind is LinkKind.A]
    assert links == [href for href in hrefs if href and href[0] != "#"]
    assert tree.body is not None
    tree.strip_tags(["script", "style", "title", "textarea"])
    ours = ScannedPage(text).whole_text()
    assert "".join(ours.split()) == "".join(tree.body.text().split())
