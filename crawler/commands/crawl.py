"""`scrapy crawl`: Scrapy's options. What it does, and its exit statuses: `crawler/cli/crawl.py`."""

from __future__ import annotations

import argparse
import gc
from typing import TYPE_CHECKING

from scrapy import Spider
from scrapy.commands.crawl import Command as ScrapyCrawl

from crawler.model.program import PROGRAM

if TYPE_CHECKING:
    from crawler.cli.crawl import CrawlRun


class CrawlCommand(ScrapyCrawl):
    _run: CrawlRun

    def syntax(self) -> str:
        return "[options] [spider]"

    def short_desc(self) -> str:
        return "Run a spider: web, if none is named"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        # Imports leave little to collect, and collections among them took 0.18 s of CPU.
        # `collect_less_often` enables it when the crawl starts.
        gc.disable()
        from crawler.cli.crawl import CrawlRun

        given = list(opts.spargs)
        super().process_options(args, opts)
        assert self.settings is not None
        self._run = CrawlRun(self.settings, given)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        process = self.crawler_process
        assert process is not None
        self.exitcode = self._run.run(
            process, lambda: self._create_crawler(self._spider_of(args)), opts
        )

    def _spider_of(self, args: list[str]) -> str | type[Spider]:
        from crawler.cli.crawl import known_spider, one_spider

        assert self.crawler_process is not None
        known = self.crawler_process.spider_loader.list()
        return known_spider(one_spider(args, known, f"{PROGRAM} crawl"), known)
