"""`scrapy console` and its options. What it does: `crawler/cli/console.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class ConsoleCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "[options] [FOLDER ...]"

    def short_desc(self) -> str:
        return "Show crawls to a browser, running or not: those in folders, or two levels below"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from crawler.cli.console import ADDRESS

        super().add_options(parser)
        parser.add_argument(
            "--http", metavar="HOST:PORT", default=ADDRESS, help=f"where ({ADDRESS})"
        )
        parser.add_argument(
            "--start",
            action="store_true",
            help="allow its users to start the crawls that crawl.toml files there describe",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import console

        assert self.settings is not None
        self.exitcode = console.run(args, opts, self.settings)
