"""The compiled scan finds what its source finds in the interpreter, and stays within its memory."""

from __future__ import annotations

from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.content.parsers import html_scan
from tests.harness.budget import examples
from tests.harness.html_pages import PIECES
from tests.harness.interpreted import interpreted

INTERPRETED = interpreted("crawler.content.parsers.html_scan")


def found(module: ModuleType, page: bytes, *, is_xml: bool) -> tuple[list[int], str, str]:
    """Return the rows, the chosen lines and all lines."""
    scanned, content = module.scanned, module.content
    out, size, rows = scanned(page, is_xml, 100)
    chosen = content(out, size, is_all=False)
    out, size, _ = scanned(page, is_xml, 100)
    return rows, chosen, content(out, size, is_all=True)


@settings(max_examples=examples(400))
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.booleans())
def test_the_interpreter_finds_the_same(pieces: list[str], is_xml: bool) -> None:
    page = "".join(pieces).encode()
    assert found(html_scan, page, is_xml=is_xml) == found(INTERPRETED, page, is_xml=is_xml)


@settings(max_examples=examples(200))
@given(st.text(max_size=300), st.booleans())
def test_any_text_stays_within_bounds_in_the_interpreter(text: str, is_xml: bool) -> None:
    """An index out of bounds raises an error there."""
    page = text.replace("\0", "").encode(errors="replace")
    assert found(html_scan, page, is_xml=is_xml) == found(INTERPRETED, page, is_xml=is_xml)
