"""Columns that are missing after a crash are built beside the crawl, however long that takes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.archive.capture import Capture
from crawler.archive.columns_companion import SUFFIX
from crawler.archive.delivery import bundles
from crawler.archive.reader import captures
from crawler.archive.recovery import recover
from crawler.archive.warc_file import (
    companion_path,
    missing_companions,
    open_name,
    rebuild_lock,
)
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import read_config
from crawler.content.crawl_archive import ColumnsRebuild, companions
from crawler.model.page import Parsed, Source
from tests.harness.archive_judges import read_rows
from tests.harness.captures import numbered_capture
from tests.harness.crawling import crawl
from tests.harness.waiting import wait_until
from tests.servers.loopback import Reply, site

LOOPS: Final = "application/x-loops"
LONG_S: Final = 60.0


class Loops:
    """A parser that never ends, apart."""

    name = "loops"
    types = frozenset({LOOPS})
    inline_max_bytes = 0

    def parse(self, source: Source) -> Parsed:
        time.sleep(LONG_S)
        return Parsed()


SETTINGS: Final = {"CRAWLER_PARSERS": f"{__name__}.{Loops.__name__}"}


def looping(metadata: tuple[tuple[str, str], ...] = ()) -> Capture:
    return Capture(
        url="http://example.com/loops",
        fetched_at=1767323045.0,
        status=200,
        headers=[(b"Content-Type", LOOPS.encode())],
        body=b"for ever",
        metadata=[("fetchTimeMs", "1"), *metadata],
    )


def left_behind(folder: Path, *captures: Capture) -> None:
    """By a process that was killed."""
    writer = WarcWriter(WarcSettings(folder=folder, origin="h-1"))
    for one in captures:
        writer.append(one)
    writer.close()
    for warc in folder.glob("*.warc.gz"):
        warc.rename(open_name(warc))


def later(folder: Path, **settings: Any) -> ColumnsRebuild:
    return ColumnsRebuild(folder, read_config({**SETTINGS, **settings}))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "warc").mkdir()
    return tmp_path


@pytest.fixture
def warc(data: Path) -> Path:
    """A recovered file without its columns, one of whose pages loops."""
    folder = data / "warc"
    left_behind(folder, numbered_capture(1, 1), looping(), numbered_capture(1, 2))
    recover(folder, companions(read_config(SETTINGS)))
    (found,) = missing_companions(folder, SUFFIX)
    return found


def urls(warc: Path) -> list[str]:
    return [row["url"] for row in read_rows(companion_path(warc, SUFFIX))]


def test_missing_columns_are_built_and_the_file_may_be_delivered(
    data: Path, warc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert bundles(data) == []
    making = later(warc.parent, CRAWLER_PARSE_TIMEOUT_S=0.2)
    making.begin()
    assert asyncio.run(making.close(LONG_S)) == []
    assert len(urls(warc)) == 3
    assert {warc, companion_path(warc, SUFFIX)} <= set(bundles(data)[0].files)
    assert "Made again" in caplog.text


def test_the_end_of_the_crawl_does_not_wait_for_ever(
    warc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    making = later(warc.parent, CRAWLER_PARSE_TIMEOUT_S=LONG_S)
    making.begin()
    assert asyncio.run(making.close(0.5)) == [warc]
    assert "1 WARC files have no columns yet" in caplog.text
    with rebuild_lock(warc) as is_ours:
        assert is_ours, "the lock is free again"
    again = later(warc.parent, CRAWLER_PARSE_TIMEOUT_S=0.2)
    again.begin()
    assert asyncio.run(again.close(LONG_S)) == []


def test_a_rebuild_that_never_began_ends_at_once(warc: Path) -> None:
    assert asyncio.run(later(warc.parent).close(0)) == [warc]


def test_columns_that_another_process_builds_are_skipped(
    warc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    making = later(warc.parent)
    with rebuild_lock(warc):
        making.begin()
        assert asyncio.run(making.close(LONG_S)) == [warc]
    assert "another process is at it" in caplog.text


def test_columns_that_cannot_be_built_are_logged_and_stay_missing(
    warc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warc.write_bytes(b"no WARC file")
    making = later(warc.parent)
    making.begin()
    assert asyncio.run(making.close(LONG_S)) == [warc]
    assert "No columns of" in caplog.text
    assert open_name(companion_path(warc, SUFFIX)).stat().st_size == 0


def test_a_process_that_dies_is_logged(warc: Path, caplog: pytest.LogCaptureFixture) -> None:
    making = later(warc.parent, CRAWLER_PARSE_TIMEOUT_S=LONG_S)
    making.begin()
    wait_until(lambda: making.pid, LONG_S)
    assert making.pid is not None
    os.kill(making.pid, signal.SIGSEGV)
    assert asyncio.run(making.close(LONG_S)) == [warc]
    assert "ended with status -11" in caplog.text


def test_a_page_that_a_parser_gave_up_is_not_parsed_again(data: Path) -> None:
    """But where a person asks for it."""
    folder = data / "warc"
    left_behind(folder, looping((("parser", "loops"), ("unreadable", "took longer than 20 s"))))
    kept = companions(read_config(SETTINGS))
    recover(folder, kept)
    (warc,) = missing_companions(folder, SUFFIX)
    kept[1].rebuild(warc, warc)  # or it would take a minute
    assert urls(warc) == [looping().url]
    config = read_config({**SETTINGS, "CRAWLER_PARSE_TIMEOUT_S": 0.2})
    asked = companions(config, tries_unreadable=True)[1]
    began_at = time.monotonic()
    asked.rebuild(warc, warc)
    assert time.monotonic() - began_at > 0.2


def test_without_columns_nothing_is_missing_and_files_are_removed(data: Path, warc: Path) -> None:
    with site("127.0.0.1", {"/": Reply("<p>hello")}) as served:
        crawl(data, settings={"CRAWLER_COLUMNS": False}, seeds=served.url("/"))
    assert not list((data / "warc").glob("*.open"))
    assert len(bundles(data)) == 2


def test_a_crawl_begins_before_they_are_made(data: Path, warc: Path) -> None:
    """And notes on what its parsers gave up."""
    loops = Reply("x", content_type=LOOPS)
    routes = {"/": Reply("<a href=/loops>l</a>"), "/loops": loops}
    with site("127.0.0.1", routes) as served:
        crawled = crawl(
            data,
            settings={**SETTINGS, "CRAWLER_PARSE_TIMEOUT_S": 0.3},
            seeds=served.url("/"),
        )
    assert crawled.reason == "finished"
    assert missing_companions(data / "warc", SUFFIX) == []
    assert len(urls(warc)) == 3
    ours = next(each for each in (data / "warc").glob("*.warc.gz") if each != warc)
    (noted,) = (one for one in captures(ours, ours, 0) if one.url == served.url("/loops"))
    assert noted.metadata_value("unreadable") == "took longer than 0.3 s"
