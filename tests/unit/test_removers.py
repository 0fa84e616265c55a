"""The pages on which removers are measured hold what they should, and ours finds their content."""

from __future__ import annotations

import random

import pytest

from bench.templates import TEMPLATES
from crawler.content.parsers.html import HtmlParser
from crawler.model.page import Source

PROSE = (
    "A heron stood in the shallow water and did not move for so long that the ducks forgot"
    " it was there, until one of them came too near and there was a splash that all could hear."
)
CONTENT = f"<p>{PROSE}</p><ul><li>A heron</li><li>A duck</li></ul><p>{PROSE}</p>"
TEASERS = [f"Read here what nobody has told you about the year {year} so far" for year in range(8)]


@pytest.mark.parametrize("template", TEMPLATES)
def test_content_is_found_in_each_template(template: str) -> None:
    page = TEMPLATES[template](CONTENT, "Of herons", random.Random(0), TEASERS)
    text = HtmlParser().parse(Source("", "text/html", page.encode())).text
    assert f"{PROSE}\nA heron\nA duck\n{PROSE}" in text
    if template != "blog":  # what all its pages say is prose there, and marked by nothing
        assert "Careers" not in text and "cookies" not in text
