"""What a page says about itself and where it points."""

from __future__ import annotations

import pytest

from crawler.policy.html import MAX_LINKS, is_html, read_html

ENOUGH_TO_TELL = 40_000  # tags: at a quadratic price they would take a minute


def links(body: str, *, skip_nofollow: bool = True) -> tuple[str, ...]:
    return read_html(body.encode(), "text/html; charset=utf-8", skip_nofollow=skip_nofollow).links


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param("<a href=x>", ("x",), id="a bare value"),
        pytest.param("<a href='x y'>", ("x y",), id="single quotes"),
        pytest.param('<A\nHREF = "x"\n>', ("x",), id="capitals, line breaks, spaces around ="),
        pytest.param("<a href=x/>", ("x/",), id="a slash is part of a bare value"),
        pytest.param("<a/href='x'/>", ("x",), id="a slash parts like a space"),
        pytest.param("<a href=x href=y>", ("x",), id="of two attributes the first counts"),
        pytest.param("<a title='>' href=x>", ("x",), id="a > in quotes ends no tag"),
        pytest.param("<a title=it's href=x>", ("x",), id="a quote within a bare value"),
        pytest.param("<a \"href='x'>", (), id='"href is another name'),
        pytest.param("<a href='x'title='y'>", ("x",), id="no space after a value"),
        pytest.param("<a href=' x\n'>", ("x",), id="white space around a URL"),
        pytest.param("<a href=#top><a href=''><a>", (), id="the same page"),
        pytest.param("<area href=x><iframe src=y></iframe>", ("x", "y"), id="area, iframe"),
        pytest.param("<frameset><frame src=z></frameset>", ("z",), id="frame"),
        pytest.param("<abbr href=x><a-b href=y><link href=z>", (), id="other elements"),
        pytest.param("</a href=x>", (), id="an end tag"),
        pytest.param("<a href='x", (), id="a tag that does not end"),
        pytest.param("<a href='x><b>y</b>", (), id="a quote that does not end"),
        pytest.param("a < b <<a href=x>", ("x",), id="loose <"),
        pytest.param("<!-- <a href=x> --><a href=y>", ("y",), id="in a comment"),
        pytest.param("<!--><a href=x><!---><a href=y><!-- --!><a href=z>", ("x", "y", "z"),
                     id="comments that end early"),
        pytest.param("<!-- <a href=x>", (), id="a comment that does not end"),
        pytest.param("<?php echo '<a href=x>' ?><a href=y>", ("y",), id="a bogus comment"),
        pytest.param("</ <a href=x><a href=y>", ("y",), id="an end tag without a name"),
        pytest.param("<script>'<a href=x>'</script><a href=y>", ("y",), id="in a script"),
        pytest.param("<style><a href=x></STYLE ><a href=y>", ("y",), id="in a style"),
        pytest.param("<textarea><a href=x></textareas><a href=y>", (), id="in a text field"),
        pytest.param("<title><a href=x></title><a href=y>", ("y",), id="in a title"),
        pytest.param("<script src=/s/><a href=x></script>", (), id="src=/s/ closes nothing"),
        pytest.param("<script src='s'/><a href=x>", (), id="a script closes not as in XML"),
        pytest.param("<plaintext><a href=x>", (), id="after plaintext all is text"),
        pytest.param("<noscript><a href=x></noscript>", ("x",), id="for those without scripts"),
        pytest.param("<p title=\"<a href='x'>\">", (), id="in another tag's attribute"),
        pytest.param("<select><option><a href=x></select>", ("x",), id="where none may stand"),
        pytest.param("<a href='?a=1&amp;b=2'>", ("?a=1&b=2",), id="a reference"),
        pytest.param("<a href='?a=1&copy=2&lt=3'>", ("?a=1&copy=2&lt=3",), id="no references"),
        pytest.param("<a href='?&copy;=&copy'>", ("?©=©",), id="references, old and new"),
        pytest.param("<a href='&#47;&#x2F;&#99;'>", ("//c",), id="references by number"),
        pytest.param("<a href='&notanything;'>", ("&notanything;",), id="an unknown reference"),
        pytest.param(f"<a href='&#{'9' * 9000};'>", ("\ufffd",), id="a number without end"),
        pytest.param("<a href='x\0y'>", ("x\ufffdy",), id="a NUL in a value"),
        pytest.param("<a\0 href=x>", (), id="a NUL in the name"),
    ],
)  # fmt: skip
def test_links_are_what_a_browser_would_see(body: str, found: tuple[str, ...]) -> None:
    assert links(body) == found


def test_links_marked_nofollow_are_left_out_if_so_asked() -> None:
    body = "<a rel='nofollow noopener' href=x><a rel=UGC href=y><a rel=next href=z>"
    assert links(body) == ("z",)
    assert links(body, skip_nofollow=False) == ("x", "y", "z")


@pytest.mark.parametrize(
    ("head", "nofollow", "noindex"),
    [
        pytest.param("<meta name=robots content='noindex, nofollow'>", True, True, id="both"),
        pytest.param("<META content=NONE name=Robots>", True, True, id="none is both"),
        pytest.param(
            "<meta name=robots content=noindex><meta name=robots content=nofollow>",
            *(True, True),
            id="in two",
        ),
        pytest.param("<meta name=robots content='index,follow'>", False, False, id="neither"),
        pytest.param("<meta name=otherbot content=noindex>", False, False, id="for another"),
        pytest.param("<!--<meta name=robots content=noindex>-->", False, False, id="in a comment"),
    ],
)
def test_what_the_whole_page_asks(head: str, nofollow: bool, noindex: bool) -> None:
    page = read_html(head.encode(), "text/html", skip_nofollow=True)
    assert (page.nofollow, page.noindex) == (nofollow, noindex)


def test_title_and_base_are_the_first() -> None:
    body = b"<title> A\n &amp; B </title><base target=_top><base href=' /b/ '><base href=/c/>"
    page = read_html(body + b"<svg><title>no</title></svg>", "text/html", skip_nofollow=True)
    assert (page.title, page.base) == ("A & B", "/b/")
    assert read_html(b"", "text/html", skip_nofollow=True).title == ""


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        pytest.param("text/html; charset=utf-8", "<title>\xe9".encode(), id="UTF-8"),
        pytest.param("text/html; charset=latin1", b"<title>\xe9", id="as declared"),
        pytest.param("text/html; charset=latin1", b"\xef\xbb\xbf<title>\xc3\xa9", id="a BOM first"),
        pytest.param("text/html; charset=utf-8", "\ufeff<title>\xe9".encode("utf-16-be"),
                     id="a BOM of UTF-16"),
        pytest.param("text/html; charset=utf-16", "<title>\xe9".encode("utf-16-le"),
                     id="UTF-16 without one is little-endian"),
        pytest.param("text/html", b"<meta charset=macintosh><title>\x8e", id="in a meta tag"),
        pytest.param("text/html", b"<meta charset=utf-16><title>\xc3\xa9",
                     id="UTF-16 in a meta tag is UTF-8, or it could not be read"),
        pytest.param("text/html; charset=no-such", b"<meta charset=latin1><title>\xe9",
                     id="an unknown one does not count"),
        pytest.param("text/html; charset=zip", "<title>\xe9".encode(), id="nor one of no text"),
        pytest.param("text/html; charset=idna", "<title>\xe9".encode(), id="nor that of hosts"),
        pytest.param("text/html; charset=utf-7", "<title>\xe9".encode(), id="nor one left behind"),
        pytest.param("", "<title>\xe9".encode(), id="none told"),
    ],
)  # fmt: skip
def test_text_is_read_by_its_charset(content_type: str, body: bytes) -> None:
    assert read_html(body, content_type, skip_nofollow=True).title == "\xe9"


def test_what_cannot_be_read_is_marked() -> None:
    assert read_html(b"<title>a\xffb", "", skip_nofollow=True).title == "a\ufffdb"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/html", True),
        ("Text/HTML ; charset=utf-8", True),
        ("application/xhtml+xml", True),
        ("text/html, text/html", True),  # two headers, joined on their way
        ("", True),
        (';;;/\xff="', True),
        ("text/plain", False),
        ("application/pdf", False),
    ],
)
def test_html_is_known_by_its_declared_type(content_type: str, expected: bool) -> None:
    assert is_html(content_type) is expected


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param("<div>", id="nesting"),
        pytest.param("<b><p>", id="formatting to be carried on"),
        pytest.param("<div><object></div></object>", id="ends out of scope"),
        pytest.param("<div><!--</div>-->", id="ends in comments"),
        pytest.param("<div><i title='</div>'></i>", id="ends in attributes"),
        pytest.param("</p>", id="ends of nothing"),
        pytest.param("<a href=x>", id="links"),
        pytest.param("<!-- x ", id="comments in a comment"),
        pytest.param('<p a="', id="quotes"),
        pytest.param("<", id="loose <"),
        pytest.param("<title>", id="titles in a title"),
        pytest.param("</script", id="ends that are none"),
        pytest.param("&amp", id="references"),
    ],
)
@pytest.mark.parametrize("start", ["", "<a ", "<a href='", "<title>", "<!--", "<script>"])
def test_a_page_has_a_bounded_price(start: str, piece: str) -> None:
    page = read_html((start + piece * ENOUGH_TO_TELL).encode(), "", skip_nofollow=True)
    assert len(page.links) <= MAX_LINKS


@pytest.mark.parametrize(
    "piece",
    [
        # 2.9 GB as a tree, at a tenth of this: each <p> takes all <b> before it along.
        pytest.param("<p><b a={}>", id="formatting, each another"),
        pytest.param("<p a{0}=1 b{0} c{0}=''>", id="tags"),
        pytest.param("<title {}>", id="titles in a title"),
    ],
)
def test_what_differs_each_time_has_a_bounded_price(piece: str) -> None:
    body = "".join(piece.format(number) for number in range(ENOUGH_TO_TELL))
    assert links(body + "</title><a href=x>") == ("x",)


def test_attributes_without_end_have_a_bounded_price() -> None:
    names = " ".join(f"a{n}=1" for n in range(ENOUGH_TO_TELL))
    assert links(f"<a {names} href=x>") == ("x",)


def test_a_charset_that_is_a_trap_has_a_bounded_price() -> None:
    page = read_html(
        b"<a href=x>" * ENOUGH_TO_TELL, "text/html; charset=punycode", skip_nofollow=True
    )
    assert page.links[0] == "x"
