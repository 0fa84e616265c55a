"""What a lean installation leaves out: it is said once, and no part of it ends in a traceback."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from crawler.config.settings import read_config
from crawler.content.missing_parts import LEFT_OUT, without_missing_parts
from crawler.content.parsers.feed import FeedParser
from crawler.content.parsers.pdf import PdfParser
from crawler.model.page import Source, Unreadable
from crawler.model.types import ConfigError
from tests.harness.pdf_files import story
from tests.harness.sources import PROJECT


@pytest.fixture
def lean() -> Iterator[None]:
    """As if none of the optional packages were installed."""
    reader = "crawler.content.parsers.pdfium_reader"
    with patch.dict(sys.modules, dict.fromkeys([*LEFT_OUT, "duckdb"])):
        for name in (reader, "crawler.archive.arrow", "crawler.archive.site_tables"):
            sys.modules.pop(name, None)
        yield


@pytest.mark.usefixtures("lean")
def test_a_crawl_goes_without_what_is_not_installed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    config = without_missing_parts(read_config({}))
    assert read_config({}).archive.columns and not config.archive.columns
    assert caplog.text.count("Not installed: pyarrow: no columns are written") == 1
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        importlib.import_module("crawler.archive.arrow")
    with pytest.raises(ConfigError, match="pip install duckdb"):
        importlib.import_module("crawler.archive.site_tables")
    feed = Source("", "application/rss+xml", b"<rss><channel/></rss>")
    with pytest.raises(Unreadable, match="feedparser is not installed"):
        FeedParser().parse(feed)
    with pytest.raises(Unreadable, match="pypdfium2 is not installed"):
        PdfParser().parse(Source("", "application/pdf", story("a")))


def test_where_all_is_installed_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert without_missing_parts(read_config({})) == read_config({})
    assert not caplog.text


def test_the_lean_list_is_the_whole_one_without_these() -> None:
    whole, lean = (
        {line for line in (PROJECT / name).read_text().splitlines() if not line.startswith("#")}
        for name in ("requirements.txt", "requirements-lean.txt")
    )
    assert lean <= whole
    assert {line.partition(">")[0] for line in whole - lean} == {*LEFT_OUT, "numba", "duckdb"}
