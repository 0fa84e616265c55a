"""A data directory without its frontier is damaged: fetching everything again is no answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crawler.model.types import DataDirError
from tests.crawling import crawl
from tests.servers.pages import page, site


def test_a_crawl_whose_frontier_is_gone_is_refused(tmp_path: Path):
    data = tmp_path / "data"
    with site("127.0.5.9", {"/": page()}) as web:
        crawl(data, seeds=web.url("/"))
        shutil.rmtree(data / "frontier")
        outcomes = (data / "outcomes.jsonl").read_bytes()
        with pytest.raises(DataDirError, match="frontier is gone"):
            crawl(data, seeds=web.url("/"))
    assert (data / "outcomes.jsonl").read_bytes() == outcomes
