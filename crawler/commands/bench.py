"""`scrapy bench`: refused. It requests one host at full speed, where we wait a second at least."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand

from crawler.model.program import PROGRAM


class BenchCommand(ScrapyCommand):
    requires_crawler_process = False

    def short_desc(self) -> str:
        return "Not here: make bench measures this crawler"

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.report.messages import print_error

        print_error(
            f"{PROGRAM} bench asks one host as fast as it can, which a polite crawl does not: for"
            " Scrapy's own speed run it outside this project, for this crawler's: make bench"
        )
        self.exitcode = 1
