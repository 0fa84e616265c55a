"""What a style sheet fetches, and nothing else, in linear time."""

from __future__ import annotations

from time import process_time

import pytest

from crawler.content.parsers.css import CssParser, css_links
from crawler.model.page import LinkKind, Source


def links(sheet: str) -> list[tuple[str, LinkKind]]:
    return [(link.url, link.kind) for link in css_links(sheet)]


@pytest.mark.parametrize(
    ("sheet", "kind"),
    [
        ("@import 'x';", LinkKind.STYLE),
        ('@import "x" screen;', LinkKind.STYLE),
        ("@IMPORT url(x) layer(base);", LinkKind.STYLE),
        ("@import/* none */url( 'x' );", LinkKind.IMAGE),  # rare, and fetched all the same
        ("a { background: url(x) }", LinkKind.IMAGE),
        ("a { background: URL(\n  'x'\n) no-repeat }", LinkKind.IMAGE),
        ("a { background: red, url(data:image/png;base64,AA==), url(x) }", LinkKind.IMAGE),
        ("@media print { a { cursor: url(x), auto } }", LinkKind.IMAGE),
        ("@font-face { src: local('y'), url(x) format('woff2') }", LinkKind.FONT),
        ("@font-face { font-family: f } a { background: url(x) }", LinkKind.IMAGE),
        (r"a { background: url(\78) }", LinkKind.IMAGE),
        (r"a { background: url('\000078 ') }", LinkKind.IMAGE),
        ("a { background: url(x", LinkKind.IMAGE),  # the end of the sheet closes it
    ],
)
def test_what_is_fetched(sheet: str, kind: LinkKind) -> None:
    assert links(sheet) == [("x", kind)]


@pytest.mark.parametrize(
    "sheet",
    [
        "/* url(x) @import 'x' */",
        "/* url(x)",
        "a::before { content: 'url(x)' }",
        'a::before { content: "a \\" url(x)" }',
        "@namespace svg url(http://www.w3.org/2000/svg);",
        "@-moz-document url(http://a.example/) { }",
        "a { filter: url(#shadow); background: url() }",
        "@font-face { font-family: 'x' }",
        "a { color: curl(x) }",
    ],
)
def test_what_is_not(sheet: str) -> None:
    assert links(sheet) == []


def test_a_sheet_has_links_and_no_text() -> None:
    body = "@charset 'utf-8'; a { background: url(ä.png) } b { background: url(ä.png) }".encode()
    parsed = CssParser().parse(Source("http://a.example/s.css", "text/css; charset=utf-8", body))
    assert parsed.text == "" and [link.url for link in parsed.links] == ["ä.png"]


@pytest.mark.parametrize(
    "piece",
    [
        "url(a)",
        "url(",
        'url("',
        "url( ",
        '"\\',
        "/*",
        "@namespace '",
        "@font-face",
        "@import ",
        "}",
    ],
)
def test_a_hostile_sheet_takes_linear_time(piece: str) -> None:
    def taken_s(times: int) -> float:
        sheet = piece * times
        begun = process_time()
        for _ in css_links(sheet):
            pass
        return process_time() - begun

    small = min(taken_s(20_000) for _ in range(3))
    assert min(taken_s(80_000) for _ in range(3)) < 4 * 3 * max(small, 0.001)
