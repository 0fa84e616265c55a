"""What a person sees when it has ended: the summary, on paper and as JSON.

Rule: nothing is asked of a store; they are closed by now.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawler.errand import is_errand
from crawler.ops.feeds import holds_stdout
from crawler.ops.progress import Progress
from crawler.ops.summary import Summary, encoded, summary_of
from crawler.ops.summary_text import text
from crawler.parts import Parts
from crawler.wiring import parts_of

logger = logging.getLogger(__name__)


class Report:
    """The extension. A crawl that never opened has nothing to report."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_errand(crawler.settings):
            raise NotConfigured
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._parts: Parts | None = None
        self.summary: Summary | None = None  # None: it has not ended
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)

    def _opened(self) -> None:
        self._parts = parts_of(self._crawler)
        self._started_at = self._parts.clock.now()

    def _closed(self, spider: Spider, reason: str) -> None:
        parts = self._parts
        if parts is None:
            return
        self.summary = summary = summary_of(
            parts, spider.name, reason, self._started_at, parts.clock.now()
        )
        progress = self._crawler.get_extension(Progress)
        if progress is not None:
            progress.end()
        try:
            replace_file(parts.data.summary, encoded(summary))
        except OSError as refused:
            logger.error("The summary cannot be written: %s", refused)
        if parts.config.report.summary:
            with suppress(OSError, ValueError):  # nobody listens any more
                to = sys.stderr if holds_stdout(self._crawler.settings["FEEDS"]) else sys.stdout
                print(text(summary), file=to, flush=True)


def replace_file(file: Path, content: bytes) -> None:
    """Whoever reads *file* sees all of the old content or all of the new."""
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
