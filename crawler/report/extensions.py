"""The feeds of a crawl, and at its end its summary, printed and as JSON, and its report.

Rule: both are made after the stores are closed, so they read none of them.
"""

from __future__ import annotations

import csv
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.exporters import (
    CsvItemExporter,
    JsonItemExporter,
    JsonLinesItemExporter,
    XmlItemExporter,
)
from scrapy.extensions.feedexport import (
    FeedExporter,
    FeedSlot,
    FileFeedStorage,
    GCSFeedStorage,
    ItemFilter,
    S3FeedStorage,
    apply_uri_params,
)

from crawler.assembly.build import crawl_of, data_dir
from crawler.assembly.crawl import Crawl
from crawler.config.settings import read_config
from crawler.data.data_dir import OUTCOMES, REPORT
from crawler.engine.interactive import is_interactive
from crawler.model.page import Page
from crawler.model.types import ConfigError, DataDirError
from crawler.page.row import is_row
from crawler.report.html_report import READ_AT_END_BYTES, crawl_facts, write_report
from crawler.report.messages import ending_with_its_reader
from crawler.report.progress import Progress
from crawler.report.recorder import Recorder
from crawler.report.summary import (
    FrontierCounts,
    Summary,
    encoded,
    ended_run,
    nothing_fetched,
    over_budgets_in_all,
    summary_of,
    text,
)

# A feed of pages has the pages that the columns have, unless it has an item filter of its own. When
# a crawl is continued its feeds are appended to or refused, so that no exported item is lost.

logger = logging.getLogger(__name__)

_STDOUT: Final = "stdout:"
_BLOCK_BYTES: Final = 65_536
_TIMES: Final = (
    "%(time)",
    "%(batch_time)",
)  # with one of these in its name each start writes a new file


class PageFilter(ItemFilter):
    """Accepts archived pages, duplicates included, but no errors, flaws or pages marked noindex:
    these are items for the pipelines only, and no pages of a site."""

    def accepts(self, item: object) -> bool:
        if isinstance(item, Page) and not (item.archive and is_row(item)):
            return False
        return super().accepts(item)


class FeedExport(FeedExporter):
    """Scrapy's exporter, except that a continued crawl appends: with -O or `overwrite` only the
    items of its last start would be left."""

    def __init__(self, crawler: Crawler) -> None:
        """Raises ConfigError if a feed cannot be continued."""
        super().__init__(crawler)
        self._goes_on = not is_interactive(crawler.settings) and _has_outcomes(_data(crawler))
        for template, options in self.feeds.items() if self._goes_on else ():
            assert crawler.spider is not None
            params = self._get_uri_params(crawler.spider, options["uri_params"])
            self._refuse(template, apply_uri_params(template, params), options)

    def _start_new_batch(
        self,
        batch_id: int,
        uri: str,
        feed_options: dict[str, Any],
        spider: Spider,
        uri_template: str,
    ) -> FeedSlot:
        if self._goes_on:
            feed_options = self._continued(uri, feed_options)
        return super()._start_new_batch(batch_id, uri, feed_options, spider, uri_template)

    def _refuse(self, template: str, uri: str, options: dict[str, Any]) -> None:
        storage, data = self._get_storage(uri, options), _data(self.crawler)
        if isinstance(storage, S3FeedStorage | GCSFeedStorage):
            if not any(time in template for time in _TIMES):
                raise ConfigError(
                    f"the feed {uri} would replace what the crawl in {data}, which goes on, has"
                    " exported before: put %(time)s into its name, and each start writes its own"
                )
        elif _filled_file(storage) and issubclass(
            self.exporters[options["format"]], JsonItemExporter | XmlItemExporter
        ):
            raise ConfigError(
                f"the feed {uri} holds what the crawl in {data}, which goes on, has exported"
                f" before, and a {options['format']} file cannot be appended to: give the feed"
                " another name, or a format that can be continued (.jsonl, .csv)"
            )

    def _continued(self, uri: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a feed so that it is appended to."""
        options = {**options, "overwrite": False}
        path = _filled_file(self._get_storage(uri, options))
        if path is None:
            return options
        logger.info("The crawl goes on: the feed %s is appended to", uri)
        exporter = self.exporters[options["format"]]
        if issubclass(exporter, JsonLinesItemExporter) and not options.get("postprocessing"):
            _cut_incomplete_line(path)
        if issubclass(exporter, CsvItemExporter):
            chosen = options["item_export_kwargs"]
            options["item_export_kwargs"] = {**chosen, "include_headers_line": False}
            if options["fields"] is None and not options.get("postprocessing"):
                # Else the columns would be those of the first item of this start.
                options["fields"] = _header(path, options)
        return options


def _data(crawler: Crawler) -> Path:
    return data_dir(crawler.settings, read_config(crawler.settings))


def _has_outcomes(data: Path) -> bool:
    try:
        with (data / OUTCOMES).open("rb") as log:
            return bool(log.read(4096).strip())
    except FileNotFoundError:
        return False


def _filled_file(storage: object) -> Path | None:
    """Return the local file of *storage* if it is not empty, else None."""
    if not isinstance(storage, FileFeedStorage):
        return None
    path = Path(storage.path)
    return path if path.is_file() and path.stat().st_size else None


def _cut_incomplete_line(path: Path) -> None:
    """Cut off the part of a line that a killed process left, as more is appended to the file."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK_BYTES)
            file.seek(begin)
            end = begin + file.read(end - begin).rfind(b"\n") + 1
            if end > begin:
                break
        file.truncate(end)


def _header(path: Path, options: dict[str, Any]) -> list[str]:
    delimiter = options["item_export_kwargs"].get("delimiter", ",")
    with path.open(encoding=options["encoding"] or "utf-8", newline="") as file:
        return next(csv.reader(file, delimiter=delimiter))


def uri_params(params: dict[str, Any], spider: Spider) -> dict[str, Any]:
    """Add `%(data_dir)s` for the paths of feeds: each worker of a shared crawl has its own."""
    crawler = spider.crawler
    is_command = is_interactive(crawler.settings)
    path = crawl_of(crawler).storage.data.path if is_command else _data(crawler)
    return {**params, "data_dir": str(path)}


def writes_stdout(feeds: Iterable[str | Path]) -> bool:
    """Return whether one of *feeds* goes to standard output, as the summary does."""
    return any(str(feed).startswith(_STDOUT) for feed in feeds)


class Report:
    """The extension that records the figures, and writes summary and report, unless the spider was
    never opened."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_interactive(crawler.settings):
            raise NotConfigured
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl: Crawl | None = None
        self.summary: Summary | None = None  # None until the crawl has ended
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)

    def _opened(self) -> None:
        self._crawl = crawl_of(self._crawler)
        self._started_at = self._crawl.leases.clock.now()
        self._recorder = Recorder(self._crawl, self._started_at)

    def _closed(self, spider: Spider, reason: str) -> None:
        crawl = self._crawl
        if crawl is None:
            return
        counted, now = self._recorder.end(reason), crawl.leases.clock.now()
        self.summary = summary = summary_of(
            ended_run(crawl, spider.name, reason, self._started_at, now, counted)
        )
        if not summary.frontier.seen and (why := nothing_fetched(summary)):
            logger.warning("%s", why[0].upper() + why[1:])
        if over := over_budgets_in_all(summary.frontier):
            logger.warning("Ended with %s", over)
        progress = self._crawler.get_extension(Progress)
        if progress is not None:
            progress.end()
        try:
            replace_file(crawl.storage.data.summary, encoded(summary))
        except OSError as refused:
            logger.error("The summary cannot be written: %s", refused)
        self._write_report(crawl.storage.data.path, summary.frontier)
        if crawl.settings.config.report.summary:
            # Standard output may be closed.
            with suppress(OSError, ValueError), ending_with_its_reader():
                to = sys.stderr if writes_stdout(self._crawler.settings["FEEDS"]) else sys.stdout
                print(text(summary), file=to, flush=True)

    @staticmethod
    def _write_report(folder: Path, counts: FrontierCounts) -> None:
        try:
            facts = crawl_facts(
                folder, [folder], counts, is_running=False, most_bytes=READ_AT_END_BYTES
            )
            write_report(folder / REPORT, facts)
        except (OSError, DataDirError) as refused:
            logger.warning("The report cannot be written: %s", refused)


def replace_file(file: Path, content: bytes) -> None:
    """Replace *file* in one step: a reader sees all of the old content or all of the new."""
    draft = file.with_suffix(f".draft-{os.getpid()}")
    try:
        with draft.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
