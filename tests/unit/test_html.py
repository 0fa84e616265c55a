"""What a page declares about itself and where its links lead."""

from __future__ import annotations

import lxml.etree
import pytest
from selectolax.lexbor import LexborHTMLParser

from crawler.content.parsers.html import (
    MAX_LINKS,
    HtmlParser,
    srcset,
)
from crawler.model.page import (
    EMBEDDED,
    LinkKind,
    Parsed,
    Source,
)
from crawler.page.links import refresh


def read(body: str | bytes, content_type: str = "text/html; charset=utf-8") -> Parsed:
    data = body.encode() if isinstance(body, str) else body
    return HtmlParser().parse(Source("http://example.com/", content_type, data))


def links(body: str) -> tuple[str, ...]:
    return tuple(link.url for link in read(body).links)


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
        pytest.param("<script id=/s/><a href=x></script>", (), id="id=/s/ closes nothing"),
        pytest.param("<script id='s'/><a href=x>", (), id="a script closes not as in XML"),
        pytest.param("<plaintext><a href=x>", (), id="after plaintext all is text"),
        pytest.param("<noscript><a href=x></noscript>", ("x",), id="for those without scripts"),
        pytest.param("<p title=\"<a href='x'>\">", (), id="in another tag's attribute"),
        pytest.param("<select><option><a href=x></select>", ("x",), id="where none may stand"),
        pytest.param("<a href='?a=1&amp;b=2'>", ("?a=1&b=2",), id="a reference"),
        pytest.param("<a href='?a=1&copy=2&lt=3'>", ("?a=1&copy=2&lt=3",), id="no references"),
        pytest.param("<a href='?&copy;=&copy'>", ("?©=©",), id="references, old and new"),
        pytest.param("<a href='&#47;&#x2F;&#99;'>", ("//c",), id="references by number"),
        pytest.param("<a href='&#35;x'><a href='&#32;&#9;'><a href='&#32;x&#32;'>", ("x",),
                     id="what references stand for is stripped, too"),
        pytest.param("<a href='&notanything;'>", ("&notanything;",), id="an unknown reference"),
        pytest.param(f"<a href='&#{'9' * 9000};'>", ("\ufffd",), id="a number without end"),
        pytest.param("<a href='x\0y'>", ("x\ufffdy",), id="a NUL in a value"),
        pytest.param("<a\0 href=x>", (), id="a NUL in the name"),
    ],
)  # fmt: skip
def test_links_are_what_a_browser_would_see(body: str, found: tuple[str, ...]) -> None:
    assert links(body) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param("<svg><title/></svg><a href=x>", ("x",), id="a title that closes itself"),
        pytest.param("<svg><style/><script href='s'/><a href=x></svg>", ("x",),
                     id="a style and a script that close themselves"),
        pytest.param("<svg><g><style type='t' /></g></svg><a href=x>", ("x",), id="deeper within"),
        pytest.param("<math><mtext/><title/></math><a href=x>", ("x",), id="in a formula"),
        pytest.param("<svg><script><a href=x></svg>", ("x",), id="a script there holds tags"),
        pytest.param("<svg/><title/><a href=x>", (), id="a drawing that closes itself is over"),
        pytest.param("<svg></svg><script id='s'/><a href=x>", (), id="behind a drawing"),
        pytest.param("<svg><script href=s/><a href=x></svg>", ("x",),
                     id="a slash of a bare value, where nothing is raw anyway"),
        pytest.param("<svg><foreignObject><script/><a href=x></svg>", (), id="HTML in a drawing"),
        pytest.param("<svg><foreignObject></foreignObject><title/><a href=x></svg>", ("x",),
                     id="behind HTML in a drawing"),
        pytest.param("<svg><foreignObject/><title/><a href=x></svg>", ("x",),
                     id="no HTML in a drawing"),
        pytest.param("<svg><title><script/><a href=x></title></svg>", (),
                     id="HTML in the title of a drawing"),
        pytest.param("<svg><desc><svg><title/><a href=x></svg></desc></svg>", ("x",),
                     id="a drawing in the HTML of a drawing"),
        pytest.param("<math><annotation-xml encoding='Text/HTML'><title/><a href=x></math>", (),
                     id="HTML in a formula"),
        pytest.param("<math><annotation-xml><title/><a href=x></math>", ("x",),
                     id="XML in a formula"),
        pytest.param("<svg><p><title/><a href=x>", (), id="a paragraph ends an open drawing"),
        pytest.param("<svg><font><title/></font></svg><a href=x>", ("x",), id="a font of SVG"),
        pytest.param("<svg><font color=red><title/><a href=x>", (), id="a font of HTML"),
        pytest.param("<svg></math><title/></svg><a href=x>", ("x",), id="an end of nothing"),
        pytest.param("<svg><!--<p>--><title/></svg><a href=x>", ("x",), id="a comment in between"),
        pytest.param("<svg><![CDATA[<p><a href=x>]]><title/></svg><a href=y>", ("y",),
                     id="a CDATA section"),
        pytest.param("<![CDATA[<a href=x>]]><a href=y>", ("y",),
                     id="no CDATA section outside: a comment up to the next >"),
    ],
)  # fmt: skip
def test_in_drawings_and_formulas_xml_s_rules_hold(body: str, found: tuple[str, ...]) -> None:
    assert links(body) == found
    tree = LexborHTMLParser(body)
    assert found == tuple(node.attributes["href"] or "" for node in tree.css("a"))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("<script src='a.js'/><a href='x'/><p>words</p>", id="a script"),
        pytest.param('<title/><style media="x" /><a href="x"></a><p>words</p>', id="a style"),
        pytest.param("<iframe/><textarea/><a href='x'></a><p>words</p>", id="other elements"),
        pytest.param("<nav/><select /><div hidden='hidden'/><a href='x'/><p>words</p>",
                     id="what hides, and holds nothing"),
        pytest.param("<div hidden='hidden'><div/>no</div><a href='x'/><p>words</p>",
                     id="what hides, and holds something"),
        pytest.param("<script><![CDATA[ if (a && b < c) '</p>' ]]></script><p>words</p>",
                     id="a script in a CDATA section"),
        pytest.param("<a href='x'/><p><![CDATA[words]]></p>", id="words in a CDATA section"),
        pytest.param("<a href='x'/><![CDATA[<a href='y'>]]><p>words</p>", id="a tag in one"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("content_type", "declaration"),
    [
        pytest.param("application/xhtml+xml", "", id="served as XHTML"),
        pytest.param("application/xml; charset=utf-8", "", id="served as XML"),
        pytest.param("text/html", '<?xml version="1.0" encoding="utf-8"?>\n', id="declared XML"),
    ],
)
def test_in_xhtml_every_tag_may_close_itself(
    page: str, content_type: str, declaration: str
) -> None:
    root = '<html xmlns="http://www.w3.org/1999/xhtml"><body>'
    body = f"{declaration}{root}{page}</body></html>".encode()
    found = read(body, content_type)
    tree = lxml.etree.fromstring(body)
    assert [link.url for link in found.links if link.kind is LinkKind.A] == tree.xpath(
        "//*[local-name()='a']/@href"
    )
    assert found.text.split()[-1] == "words"
    assert "no" not in found.text.split()


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        ("<a href=x>", LinkKind.A),
        ("<area href=x>", LinkKind.AREA),
        ("<frame src=x>", LinkKind.FRAME),
        ("<iframe src=x></iframe>", LinkKind.IFRAME),
        ("<link rel=canonical href=x>", LinkKind.CANONICAL),
        ("<link rel='Alternate' hreflang=de href=x>", LinkKind.ALTERNATE),
        ("<meta http-equiv=Refresh content='0; url=x'>", LinkKind.REFRESH),
        ("<link rel=stylesheet href=x>", LinkKind.STYLE),
        ("<link rel='alternate stylesheet' href=x>", LinkKind.STYLE),
        ("<link rel=preload as=style href=x>", LinkKind.STYLE),
        ("<link rel=preload as=font crossorigin href=x>", LinkKind.FONT),
        ("<link rel=preload as=image imagesrcset='x 2x'>", LinkKind.IMAGE),
        ("<link rel='shortcut icon' href=x>", LinkKind.IMAGE),
        ("<link rel=modulepreload href=x>", LinkKind.SCRIPT),
        ("<script src=x></script>", LinkKind.SCRIPT),
        ("<style>@import 'x'; a {}</style>", LinkKind.STYLE),
        ("<style>@font-face { src: url(x) }</style>", LinkKind.FONT),
        ("<p style='background: url(&quot;x&quot;)'>", LinkKind.IMAGE),
        ("<body background=x>", LinkKind.IMAGE),
        ("<svg><image xlink:href=x /></svg>", LinkKind.IMAGE),
        ("<svg><use href=x /></svg>", LinkKind.IMAGE),
        ("<img src=x>", LinkKind.IMAGE),
        ("<img srcset=x>", LinkKind.IMAGE),
        ("<source srcset=x>", LinkKind.IMAGE),
        ("<source src=x>", LinkKind.MEDIA),
        ("<video poster=x></video>", LinkKind.IMAGE),
        ("<track src=x>", LinkKind.MEDIA),
        ("<audio src=x></audio>", LinkKind.MEDIA),
        ("<embed src=x>", LinkKind.MEDIA),
        ("<object data=x></object>", LinkKind.MEDIA),
        ("<input type=image src=x>", LinkKind.IMAGE),
    ],
)
def test_a_link_has_a_kind(tag: str, kind: LinkKind) -> None:
    assert [(link.url, link.kind) for link in read(tag).links] == [("x", kind)]


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("<img src=data:, data-src=/a>", ["/a"]),
        ("<img src=/a data-src=/b data-srcset='c.png 1x, /d 2x'>", ["/a", "/b", "c.png", "/d"]),
        ("<img data-original=a.JPG?x>", ["a.JPG?x"]),
        ("<img data-lazy-src=/a data-lazy-srcset=/b>", ["/a", "/b"]),
        ("<img data-lazy=/a data-echo=/b data-cfsrc=/c data-hi-res-src=/d>",
         ["/a", "/d", "/b", "/c"]),
        ("<img data-lazyload=/a><img data-orig-src=/b data-orig-srcset='/c 2x'>",
         ["/a", "/b", "/c"]),
        ("<img nitro-lazy-src=/a nitro-lazy-srcset='/b 9w'><img data-src=a.php?n=1 data-breeze=/c>",
         ["/a", "/b", "a.php?n=1", "/c"]),
        ("<iframe data-litespeed-src=/a></iframe><img data-ezsrc=/b data-ezsrcset=/c>",
         ["/a", "/b", "/c"]),
        ("<picture><source data-srcset=/a.webp><img data-src=/b></picture>", ["/a.webp", "/b"]),
        ("<noscript><img src=/a></noscript>", ["/a"]),
        ("<video data-src=/a data-poster=/b></video>", ["/a", "/b"]),
        ("<iframe data-src=/a></iframe>", ["/a"]),
        ("<div data-src='x/a.jpg?w=5'><i data-original=b.png></i><p data-image-src=c.WebP>",
         ["x/a.jpg?w=5", "b.png", "c.WebP"]),
        ("<amp-img src=/a srcset='/b 2x'></amp-img>", ["/a", "/b"]),
        ("<p data-bg=/a><p data-bg='url(\"b\")'><p DATA-BG-HiDPI=c.png>", ["/a", "b", "c.png"]),
        ("<p data-bgset='/a 1x, /b 2x'><p data-background-image=/c>", ["/a", "/b", "/c"]),
        ("<li data-background=/a><p data-lazy-bg=/b><p data-lazy-background=/c>",
         ["/a", "/b", "/c"]),
        ("<meta property=og:image content=/a><meta name=twitter:image content=/b>", ["/a", "/b"]),
        ("<meta itemprop=image content=/a><meta property=og:url content=/b>", ["/a"]),
        ("<link rel=manifest href=/a><link rel=apple-touch-icon-precomposed href=/b>",
         ["/a", "/b"]),
    ],
)  # fmt: skip
def test_what_scripts_and_other_sites_show_of_a_page(tag: str, found: list[str]) -> None:
    links = read(tag).links
    assert [link.url for link in links] == found
    assert {link.kind for link in links} <= EMBEDDED


@pytest.mark.parametrize(
    "tag",
    [
        pytest.param(
            "<link rel=preload href=x><link rel=preload as=fetch href=x>", id="for scripts"
        ),
        pytest.param("<svg><use href='#a' /></svg>", id="a part of this page"),
        pytest.param("<p style='color: red' title='url(x)'>", id="no style"),
        pytest.param("<link href=x><link rel=next href=x>", id="no form of this page"),
        pytest.param("<input src=x><input type=text src=x>", id="no image"),
        pytest.param(
            "<p data-src=/x><i data-original='x.png/y'></i><script>'url(x)'</script>",
            id="read by scripts",
        ),
        pytest.param("<img data-src=x data-original='a word'>", id="no URLs"),
        pytest.param(
            "<img data-src='/{width}x/a.png'><img data-lazy-src='{{ b.png }}'>",
            id="templates of URLs",
        ),
        pytest.param(
            "<p data-bg=#fff data-bg-size=cover data-background-opacity=0.5"
            " data-bgset=none data-lazy-bg='' data-big=/x data-lazy-x=/x>",
            id="about a background",
        ),
        pytest.param("<img src='data:image/gif;base64,R0lG'>", id="the image itself"),
        pytest.param("<meta http-equiv=refresh content=30>", id="the same page again"),
        pytest.param("<meta http-equiv=x content='0; url=x'>", id="no refresh"),
    ],
)
def test_attributes_that_are_no_links(tag: str) -> None:
    assert links(tag) == ()


def test_a_link_has_the_words_of_its_rel() -> None:
    page = read('<a rel=\' NoFollow\nugc \' href=x><a href=y><a class="c" rel="me" href="z">')
    assert [(link.url, link.rel) for link in page.links] == [
        ("x", "nofollow ugc"),
        ("y", ""),
        ("z", "me"),
    ]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        pytest.param("<meta name=robots content='noindex, NoFollow'>", {"noindex", "nofollow"},
                     id="two words"),
        pytest.param("<META content=NONE name=Robots>", {"none", "noindex", "nofollow"},
                     id="none is both"),
        pytest.param("<meta name=robots content=noindex><meta name=robots content=nofollow>",
                     {"noindex", "nofollow"}, id="in two"),
        pytest.param("<meta name=robots content='index,follow,'>", {"index", "follow"},
                     id="neither"),
        pytest.param("<meta name=otherbot content=noindex>", set(), id="for another"),
        pytest.param("<meta property=robots content=noindex>", set(), id="no name"),
        pytest.param("<!--<meta name=robots content=noindex>-->", set(), id="in a comment"),
    ],
)  # fmt: skip
def test_robots_directives_of_a_page(head: str, words: set[str]) -> None:
    assert read(head).robots == words


def test_title_base_and_canonical_are_the_first() -> None:
    page = read(
        "<title> A\n &amp; B </title><base target=_top><base href=' /b/ '><base href=/c/>"
        "<link rel=canonical href=/d><link rel=canonical href=/e><svg><title>no</title></svg>"
    )
    assert (page.title, page.base, page.canonical) == ("A & B", "/b/", "/d")
    assert (read("").title, read("").base, read("").canonical) == ("", "", "")
    assert read("<svg><title>no</title></svg>").title == ""
    assert read("<svg><title/></svg><title>yes</title>").title == "yes"
    assert read("<svg><g><title>no</title><p><title>yes</title>").title == "yes"


@pytest.mark.parametrize(
    ("page", "base"),
    [
        pytest.param("<base href=''><base href=/b/>", "", id="an empty one is the first"),
        pytest.param("<base href><base href=/b/>", "", id="one without a value, too"),
        pytest.param("<base href=#a><base href=/b/>", "#a", id="and one that changes nothing"),
        pytest.param("<base target=a><base href=/b/>", "/b/", id="one without href is none"),
        pytest.param("<template><base href=/a/></template><base href=/b/>", "/b/",
                     id="in a template"),
        pytest.param("<template><template></template><base href=/a/></template><base href=/b/>",
                     "/b/", id="in a template after another"),
        pytest.param("<TEMPLATE><div><base href=/a/></div>", "", id="in one that does not end"),
        pytest.param("</template><base href=/b/>", "/b/", id="behind an end tag too many"),
        pytest.param("<template/><base href=/b/></template>", "", id="HTML closes no tag itself"),
        pytest.param("<svg><base href=/a/></svg><base href=/b/>", "/b/", id="in a drawing"),
        pytest.param("<svg><template><base href=/a/></svg><base href=/b/>", "/b/",
                     id="a template of a drawing is none"),
        pytest.param("<svg><foreignObject><base href=/b/>", "/b/", id="in HTML of a drawing"),
        pytest.param("<body><p><base href=/b/>", "/b/", id="in the text"),
        pytest.param("<!-- <base href=/a/> --><script>'<base href=/a/>'</script><base href=/b/>",
                     "/b/", id="in a comment, in a script"),
    ],
)  # fmt: skip
def test_the_base_is_that_of_a_browser(page: str, base: str) -> None:
    assert read(page).base == base


def test_a_template_declares_nothing_about_its_page() -> None:
    page = read(
        "<template><title>no</title><meta name=robots content=noindex><link rel=canonical href=/n>"
        "<a href=/linked></template><title>yes</title><link rel=canonical href=/y>"
    )
    assert (page.title, page.canonical, page.robots) == ("yes", "/y", frozenset())
    assert [link.url for link in page.links] == ["/n", "/linked", "/y"]


@pytest.mark.parametrize(
    ("page", "language"),
    [
        pytest.param("<html lang=de>", "de", id="of its root"),
        pytest.param("<html xml:lang='en_GB'>", "en-GB", id="as in XHTML, and with a line"),
        pytest.param("<meta http-equiv=content-language content='fr, en'>", "fr", id="of a meta"),
        pytest.param("<html lang=de><meta http-equiv=Content-Language content=fr>", "de",
                     id="the root counts first"),
        pytest.param("<html lang=''><p lang=de>", "", id="of a part"),
        pytest.param("<html lang='{{lang}}'>", "", id="a template that was not filled in"),
    ],
)  # fmt: skip
def test_the_language_is_as_declared(page: str, language: str) -> None:
    assert read(page).language == language


MARCH_3: int = 1709424000  # 2024-03-03


@pytest.mark.parametrize(
    ("page", "published", "modified"),
    [
        pytest.param("<meta property=article:published_time content=2024-03-03T00:00:00Z>",
                     MARCH_3, None, id="Open Graph"),
        pytest.param("<meta property=og:updated_time content='2024-03-03T02:00:00+02:00'>",
                     None, MARCH_3, id="in another zone"),
        pytest.param("<meta name=DC.Date content=2024-03-03>", MARCH_3, None, id="Dublin Core"),
        pytest.param("<meta itemprop=dateModified content='Sun, 03 Mar 2024 00:00:00 GMT'>",
                     None, MARCH_3, id="microdata, as in an e-mail"),
        pytest.param("<meta name=date content=2000-01-01>"
                     "<meta property=article:published_time content=2024-03-03>",
                     MARCH_3, None, id="the most telling counts"),
        pytest.param("<meta property=article:published_time content='last week'>"
                     "<meta name=date content=2024-03-03>", MARCH_3, None, id="no date"),
        pytest.param('<script type="application/ld+json">{"@graph": [{"datePublished" :'
                     ' "2024-03-03", "dateModified":"2024-03-03"}]}</script>',
                     MARCH_3, MARCH_3, id="for search engines"),
        pytest.param('<script>var x = {"datePublished": "2024-03-03"}</script>', None, None,
                     id="in a program"),
        pytest.param("<meta name=date content=9999-99-99><meta name=date content=1e999>",
                     None, None, id="no day of any year"),
        pytest.param("<meta name=date content='Thu, 01 Jan 99999999999 00:00:00 +9999'>",
                     None, None, id="beyond all calendars"),
        pytest.param(f"<meta name=date content='{'9' * 9000}'>", None, None, id="without end"),
        pytest.param("<time datetime=2024-03-03>", None, None, id="of something on the page"),
    ],
)  # fmt: skip
def test_dates_are_those_that_the_page_states(
    page: str, published: float | None, modified: float | None
) -> None:
    assert (read(page).published, read(page).modified) == (published, modified)


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("0; url=/x", "/x"),
        ("5;URL='/x y' more", "/x y"),
        ('0, "/x"', "/x"),
        ("0 /x", "/x"),
        (".5; url = /x", "/x"),
        ("0;url", "url"),
        ("0;urls", "urls"),
        ("0; url='/x", "/x"),
        ("1.5.2;/x", "/x"),
        ("url=/x", ""),
        ("0url=/x", ""),
        ("-1; url=/x", ""),
        ("", ""),
        ("0;", ""),
    ],
)
def test_a_refresh_leads_where_a_browser_goes(content: str, url: str) -> None:
    assert refresh(content) == url


@pytest.mark.parametrize(
    ("written", "urls"),
    [
        pytest.param("a.jpg, b.jpg 2x", ["a.jpg", "b.jpg"], id="with and without a width"),
        pytest.param("a,b.jpg 1x, c.jpg", ["a,b.jpg", "c.jpg"], id="a comma within a URL"),
        pytest.param("a.jpg,, b.jpg", ["a.jpg", "b.jpg"], id="a comma at its end is none of it"),
        pytest.param("a.jpg,b.jpg", ["a.jpg,b.jpg"], id="without space it is one URL"),
        pytest.param("a 1x,b 2x", ["a", "b"], id="a comma behind a width parts"),
        pytest.param("a (x, y), b", ["a", "b"], id="a comma in brackets"),
        pytest.param("a (x, b", ["a"], id="a bracket that does not close"),
        pytest.param(" , ,a\n100w\t,\tb", ["a", "b"], id="all kinds of space"),
        pytest.param(" ,, ", [], id="nothing"),
    ],
)
def test_a_srcset_has_several_urls(written: str, urls: list[str]) -> None:
    assert list(srcset(written)) == urls


def test_links_have_an_end() -> None:
    page = read("<a href=x>" * (MAX_LINKS + 1))
    assert len(page.links) == MAX_LINKS and page.notes == ("links_cut",)
    many = read(f"<img srcset='{'x 1x,' * MAX_LINKS}y'>")
    assert len(many.links) == MAX_LINKS and many.notes == ("links_cut",)
    assert read("<a href=x>" * MAX_LINKS).notes == ()


def test_queries_of_links_are_in_the_encoding_of_the_page() -> None:
    body = (
        "<link rel=canonical href='/\u041f?q=\u041f'>"
        "<a href='/s?q=\u041f&amp;r=&#1056;\u20ac#\u041f'>"
        "<img src='/i?\u041f' srcset='/j?\u041f 2x'><a href='/plain?q=a'>"
        "<meta http-equiv=refresh content='0;url=/r?\u041f'><style>p{background:url(/b?\u041f)}"
    )
    found = read(body.encode("koi8-r", "xmlcharrefreplace"), "text/html; charset=koi8-r")
    assert found.canonical == "/\u041f?q=%F0"
    assert [link.url for link in found.links] == [
        *("/\u041f?q=%F0", "/s?q=%F0&r=%F2%26%238364%3B#\u041f", "/i?%F0", "/j?%F0"),
        *("/plain?q=a", "/r?%F0", "/b?%F0"),
    ]
    assert [link.url for link in read(body).links][1] == "/s?q=\u041f&r=\u0420\u20ac#\u041f"
