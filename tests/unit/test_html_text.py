"""What of a page is its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.content.parsers.html import HtmlParser
from crawler.content.parsers.html_scan import LEAST_PART, PROSE_CHARS
from crawler.model.page import Source

PROSE = (
    "Many words that stand in one line, as they do where somebody tells somebody else something."
)
LONG = f"{PROSE} {PROSE}"
Line = tuple[str, int]
"""A line, and how many of its first letters are a link."""
LINK = ("a menu", 6)
SHORT = ("12 May", 0)


def text(body: str) -> str:
    return HtmlParser().parse(Source("", "text/html; charset=utf-8", body.encode())).text


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        pytest.param("<p>a<p>b<br>c<div>d</div>e", "a\nb\nc\nd\ne", id="blocks are lines"),
        pytest.param("<td>a</td><td>b</td>", "a\tb", id="cells are parted by a tab"),
        pytest.param("<table><tr><th>a<td><p>b</p></td></tr><tr><td>c</td><td>d</tr></table>e",
                     "a\tb\nc\td\ne", id="rows are lines"),
        pytest.param("<tr><td><p>a</p><p>b</p></td><td>c</td></tr>", "a\nb\nc",
                     id="a cell of several blocks is no part of a row"),
        pytest.param("<tr><td>a</td><td><table><tr><td>b</td><td>c</table></td><td>d</td></tr>",
                     "a\nb\tc\nd", id="a table in a table"),
        pytest.param("<main><pre>\n def f():\r\n\n   return 1  \n</pre>a</main>",
                     " def f():\n\n   return 1\na", id="preformatted lines and their indentation"),
        pytest.param("<pre><b>a</b>  b<br>c&nbsp;d\t<i>e</i></pre>", "a  b\nc d\te",
                     id="tags in preformatted text"),
        pytest.param("<h1>a<a class=x href='#a'>\xb6</a></h1><h2>b<a href=#b>#</a></h2>", "a\nb",
                     id="signs that link headings to themselves"),
        pytest.param("a<a href=#x>\u4e0a</a><a href=#y>1</a><a href=/z>#</a>", "a\u4e0a1#",
                     id="letters, numbers and links elsewhere are no such signs"),
        pytest.param("a <img src=x alt='b &amp; c'> d<p><img src=y alt='no'>", "a b & c d",
                     id="an image among words, and one alone"),
        pytest.param("a <math><mi>no</mi></math> b <svg><text>no</text></svg> c", "a b c",
                     id="formulas and drawings end no line"),
        pytest.param("H<sub>2</sub>O <b>a</b>b<wbr>c", "H2O abc", id="within a word"),
        pytest.param("<my-thing>a</my-thing>b", "a\nb", id="an unknown element"),
        pytest.param(" a\n\t b \r\n  <i> c </i> d&nbsp; e\f\vf", "a b c d e f", id="white space"),
        pytest.param("&lt;b> &amp;amp; &eacute;&#8364;&copy &notit; &x;", "<b> &amp; é€© ¬it; &x;",
                     id="references"),
        pytest.param("a&am<b>p;</b>", "a&amp;", id="a tag ends a reference"),
        pytest.param("&#xD800;&#0;&#1;&#x110000;&#" + "9" * 9000 + ";", "\ufffd\ufffd\ufffd\ufffd",
                     id="characters that are none"),
        pytest.param("<title>no</title><style>no</style><script>no</script>a", "a", id="the head"),
        pytest.param("<noscript>no</noscript><template>no</template>a", "a", id="not shown"),
        pytest.param("<select><option>no</select><svg><text>no</svg>a", "a", id="no text"),
        pytest.param("<video src=x>no</video><audio>no</audio><object>no</object>a", "a",
                     id="instead of something else"),
        pytest.param("<textarea>no</textarea><iframe>no</iframe>a", "a", id="raw, and not shown"),
        pytest.param("<xmp><b>&amp;</xmp>a", "<b>&amp;\na", id="raw, and shown"),
        pytest.param("a<plaintext>&lt;</b>", "a\n&lt;</b>", id="to the end"),
        pytest.param("a<!-- no --><!no><?no ?></ no>b", "ab", id="comments"),
        pytest.param("a < b <3 <", "a < b <3 <", id="loose <"),
        pytest.param("<p hidden>no</p><div hidden='x'><div>no</div></div>a", "a", id="hidden"),
        pytest.param("<b title='>no'>a</b><b title=\"<i>\">c</b>", "ac", id="> and < in quotes"),
        pytest.param("<p class='a\nb' id=x>a</p\n>b</p class='>'>c", "a\nb\nc", id="odd end tags"),
        pytest.param("a<b title='", "a", id="a tag that does not end"),
        pytest.param("\1a\2<a>b\0</a>", "a b\ufffd", id="what the page has of our marks"),
    ],
)  # fmt: skip
def test_text_is_what_a_reader_sees(body: str, seen: str) -> None:
    assert text(body) == seen


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param("<nav>no</nav>", id="a menu"),
        pytest.param("<nav><ul><li>no<nav>no</nav></ul>no</nav>", id="a menu in a menu"),
        pytest.param("<header>no</header><footer>no</footer><aside>no</aside>", id="around it"),
        pytest.param("<div role=navigation>no<div>no</div>no</div>", id="by its role"),
        pytest.param('<div class="a" role="Banner"><div class="a">no</div>no</div>', id="quoted"),
        pytest.param("<ul role=menu><li>no</ul><p role=alert>no</p>", id="other roles"),
    ],
)
def test_marked_boilerplate_is_left_out(noise: str) -> None:
    assert text(f"<p>a</p><div>b</div>{noise}<div>c</div><ul><li>d</ul>") == "a\nb\nc\nd"


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        pytest.param("<article><header>a</header>b<footer>c</footer></article>", "a\nb\nc",
                     id="header and footer of an article"),
        pytest.param("<article>a</article><footer>no</footer>", "a", id="but of the page"),
        pytest.param("<p role=note>a</p><p role=doc-tip>b</p>", "a\nb", id="other roles"),
        pytest.param("<p>no</p><div role=main>a<div>b</div></div>no", "a\nb", id="the main role"),
        pytest.param("<main>a<p>b", "a\nb", id="content that is never closed"),
        pytest.param("<nav>a<p>b", "a\nb", id="a menu that is never closed"),
        pytest.param("<div role=navigation>a<p>b", "a\nb", id="nor this one"),
        pytest.param("</nav></div></article>a<p>b", "a\nb", id="ends of nothing"),
        pytest.param("<nav>a<p>b</nav>", "a\nb", id="a page that is all menu"),
        pytest.param("<div hidden>a</div>", "a", id="or all hidden"),
    ],
)  # fmt: skip
def test_text_is_kept_where_it_may_be_content(body: str, seen: str) -> None:
    assert text(body) == seen


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        pytest.param([(LONG, 0)], [LONG], id="prose"),
        pytest.param([LINK, SHORT, (LONG, 0), SHORT, LINK], [LONG], id="a menu, a date, a menu"),
        pytest.param([(LONG, 0), SHORT, SHORT, (LONG, 9)], [LONG, "12 May", "12 May", LONG],
                     id="short lines between prose"),
        pytest.param([(LONG, 0), SHORT, LINK, SHORT, (LONG, 0)], [LONG, LONG],
                     id="short lines among links"),
        pytest.param([(LONG, 0), LINK, (PROSE * 2, 0), LINK], [LONG], id="the text of a teaser"),
        pytest.param([LINK, (LONG, 0), (LONG, 0), LINK], [LONG, LONG], id="two are none"),
        pytest.param([LINK, (LONG, 0), SHORT, LINK], [LONG], id="nor one with more behind"),
        pytest.param([LINK, (LONG, 0)], [LONG], id="nor the last"),
        pytest.param([LINK, (LONG, len(LONG))], None, id="a long link is none"),
        pytest.param([("\u4e2d" * 40, 0)], ["\u4e2d" * 40], id="a letter that is a word"),
        pytest.param([("\u0436" * 40, 0), SHORT], None, id="letters that are none"),
        pytest.param([SHORT] * 99, None, id="a table"),
        pytest.param([*[SHORT] * 99, (LONG, 0)], None, id="a table, and what all pages say"),
        pytest.param([], [], id="nothing"),
    ],
)  # fmt: skip
def test_prose_is_distinguished_from_the_boilerplate_around_it(
    lines: list[Line], kept: list[str] | None
) -> None:
    whole = [line for line, _ in lines]
    assert text(page_of(lines)).splitlines() == (whole if kept is None else kept)


def page_of(lines: list[Line]) -> str:
    return "".join(f"<p><a href=x>{line[:linked]}</a>{line[linked:]}</p>" for line, linked in lines)


LINES = st.lists(
    st.tuples(st.integers(1, 3 * PROSE_CHARS), st.integers(0, 3 * PROSE_CHARS)).map(
        lambda drawn: ("x" * drawn[0], min(drawn))
    )
)


@given(LINES)
def test_prose_is_some_of_the_lines_in_their_order(lines: list[Line]) -> None:
    kept = text(page_of(lines)).splitlines()
    rest = iter(line for line, _ in lines)
    assert all(line in rest for line in kept)
    assert LEAST_PART * sum(map(len, kept)) >= sum(len(line) for line, _ in lines)


@given(st.text(alphabet="abc <>/&;'\"=!-\n\0\1\2", max_size=80))
def test_a_page_with_words_has_text(body: str) -> None:
    """In front of any content: nothing stands before them that could hide them."""
    assert text(f"zebra <p>{body}")


def test_links_count_though_tags_stand_between() -> None:
    menu = "<li><a href=x><b>A line of links that is as long as prose</b> <i>is, and longer</i></a>"
    card = "<a href=x><div>A card that is a link, though it holds blocks</div><p>of text</p></a>"
    assert text(f"{menu * 9}{card}<p>{LONG}</p><p>{LONG}</p><a name=x><p>{LONG}</p></a>") == (
        f"{LONG}\n{LONG}\n{LONG}"
    )


def test_release_notes_of_short_items_are_kept() -> None:
    menu = "<a href=/a>Home</a> <a href=/b>News</a> <a href=/c>Docs</a>"
    notes = "<h2>Release 1.2</h2><ul><li>Fixed a bug<li>And another</ul>"
    assert text(f"<div>{menu}</div>{notes}<p>{LONG}</p>").splitlines() == [
        *("Release 1.2", "Fixed a bug", "And another", LONG),
    ]


def test_a_heading_without_prose_behind_it_is_no_content() -> None:
    links = "<p><a href=/x>one</a></p>" * 3
    assert text(f"<p>{LONG}</p><h3>Elsewhere</h3>{links}") == LONG


def test_marked_content_of_a_fifth_of_the_page_is_its_text() -> None:
    assert text(f"<p>{LONG}</p><main>{PROSE}</main>") == PROSE
    assert text(f"<p>{LONG}</p><main>Hi</main>") == LONG
