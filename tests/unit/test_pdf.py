"""PDFs: text, links, what they say of themselves; broken ones cost no more than their text."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.parsers.pdf import PdfParser
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
    Unreadable,
)
from tests.harness.budget import examples
from tests.harness.pdf_files import pages_text, pdf, story, tree_in_itself

FACTS = "<< /Title (A \\(short\\)  story) /CreationDate (D:{}) /ModDate ({}) >>"
MAY_6 = 1714953600.0


def read(body: bytes) -> Parsed:
    return PdfParser().parse(Source("http://a.example/a.pdf", "application/pdf", body))


def test_a_story() -> None:
    facts = FACTS.format("20240506020000+02'00'", "20240506")
    body = story(
        "Once upon\na time, at https://t.example/x.",
        *("http://a.example/1", "b.html", "http://a.example/1"),
        trailer="/Info 6 0 R",
        extra=[facts],
    )
    assert read(body) == Parsed(
        parser="pdf",
        title="A (short) story",
        text="Once upon\na time, at https://t.example/x.",
        links=(
            Link("http://a.example/1", LinkKind.A),
            Link("b.html", LinkKind.A),
            Link("https://t.example/x", LinkKind.TEXT),
        ),
        language="de-AT",
        published=MAY_6,
        modified=MAY_6,
    )


@pytest.mark.parametrize(
    ("written", "epoch"),
    [
        pytest.param("D:20240506", MAY_6, id="a day"),
        pytest.param("D:20240506000000Z", MAY_6, id="UTC"),
        pytest.param("D:20240506000000Z00'00'", MAY_6, id="UTC, and no distance from it"),
        pytest.param("D:20240505190000-05'00", MAY_6, id="west of it"),
        pytest.param("20240506", MAY_6, id="without D:"),
        pytest.param("D:2024", 1704067200.0, id="a year"),
        pytest.param("D:20249999", None, id="no day"),
        pytest.param("May 6", None, id="in words"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_dates(written: str, epoch: float | None) -> None:
    body = story("x", trailer="/Info 6 0 R", extra=[f"<< /ModDate ({written}) >>"])
    assert read(body).modified == epoch


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"%PDF-1.7\n" + b"x" * 1000, id="a beginning"),
        pytest.param(story("x")[:300], id="cut"),
        pytest.param(pdf(["<< /Type /Catalog >>"]), id="no pages at all"),
        pytest.param(
            story(
                "x",
                trailer="/ID [(a) (b)] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 "
                f"/O <{'41' * 32}> /U <{'42' * 32}> >>",
            ),
            id="locked with a password",
        ),
    ],
)
def test_a_pdf_that_cannot_be_opened_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(body)


def test_a_page_tree_in_itself_ends() -> None:
    parsed = read(tree_in_itself())
    assert (parsed.text, parsed.notes) == ("", ("broken_pages",))


def test_a_million_pages_are_cut() -> None:
    parsed = read(pages_text(1_000_000))
    assert parsed.notes == ("pages_cut",)


def test_a_page_that_is_missing_costs_that_page() -> None:
    body = story("still here").replace(b"/Kids [3 0 R] /Count 1", b"/Kids [9 0 R 3 0 R]/Count 2")
    parsed = read(body)
    assert (parsed.text, parsed.notes) == ("still here", ("broken_pages",))


@settings(max_examples=examples(50))
@given(st.binary(min_size=1, max_size=8), st.integers(0, 900))
def test_a_few_wrong_bytes_are_unreadable_at_worst(junk: bytes, where: int) -> None:
    body = story("Once upon a time", "http://a.example/1")
    with suppress(Unreadable):
        read(body[:where] + junk + body[where + len(junk) :])
