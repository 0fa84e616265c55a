"""A callback of a user's spider on recorded answers: scrapy-mock, as in docs/testing.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import vcr
from scrapy import Request, Spider
from scrapy.http import Response

from tests.harness.sources import PROJECT

CASSETTES = PROJECT / "tests" / "fixtures" / "cassettes"
ROOT = "http://127.0.77.1:8080/"


class Board(Spider):
    """Reads the notices of a board, page by page."""

    name = "board"

    def parse(self, response: Response) -> Iterator[Any]:
        for notice in response.css("li"):
            yield {"what": notice.css("b::text").get(), "when": notice.css("time::text").get()}
        yield from response.follow_all(css="a[rel=next]")


@pytest.fixture(scope="session")
def vcr_settings() -> vcr.VCR:
    """In place of scrapy-mock's own: from any folder, and never from the network."""
    return vcr.VCR(cassette_library_dir=str(CASSETTES), record_mode="none")


@pytest.mark.parametrize(
    ("url", "items", "followed"),
    [
        pytest.param(
            ROOT + "notices.html",
            [
                {"what": "Café closed", "when": "2 January"},
                {"what": "Lost: one glove", "when": None},
            ],
            [ROOT + "notices-2.html"],
            id="a_page_with_another",
        ),
        pytest.param(ROOT + "notices-2.html", [], [], id="a_page_with_nothing"),
    ],
)
def test_notices_and_the_next_page_are_read(
    response: Response, items: list[dict[str, str]], followed: list[str]
) -> None:
    read = list(Board().parse(response))
    assert [one for one in read if isinstance(one, dict)] == items
    assert [one.url for one in read if isinstance(one, Request)] == followed
