"""A crawl whose finished files go elsewhere: a folder, as any store."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.model.types import ConfigError
from tests.crawling import crawl
from tests.servers.pages import page, site
from tests.warc_judges import read_folder

ROUTES = {"/": page("/a", "/b", text="start"), "/a": page(text="a"), "/b": page(text="b")}


def test_all_files_of_a_crawl_are_there_and_no_longer_here(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with site("127.0.62.1", ROUTES) as web:
        settings = {"CRAWLER_ARCHIVE_URL": store.as_uri()}
        crawled = crawl(tmp_path / "data", settings=settings, seeds=web.url("/"))
    assert crawled.reason == "finished"
    assert {path.suffix for path in (store / "warc").iterdir()} == {".gz", ".cdxj", ".parquet"}
    assert not [path for path in (tmp_path / "data" / "warc").iterdir() if path.is_file()]
    archived = {one.url for one in read_folder(store / "warc").values() if one.kind == "response"}
    assert archived == {web.url("/"), web.url("/a"), web.url("/b")}


def test_what_an_earlier_run_left_is_brought_too(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with site("127.0.62.1", ROUTES) as web:
        crawl(tmp_path / "data", seeds=web.url("/"))
        kept = {path.name for path in (tmp_path / "data" / "warc").iterdir() if path.is_file()}
        settings = {"CRAWLER_ARCHIVE_URL": store.as_uri()}
        crawl(tmp_path / "data", settings=settings, seeds=web.url("/"))
    assert kept and kept <= {path.name for path in (store / "warc").iterdir()}


def test_a_store_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    settings = {"CRAWLER_ARCHIVE_URL": "s3x://nowhere/at/all"}
    with pytest.raises(ConfigError, match="CRAWLER_ARCHIVE_URL"):
        crawl(tmp_path / "data", settings=settings, seeds="http://127.0.62.1/")
