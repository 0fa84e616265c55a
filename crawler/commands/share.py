"""`scrapy share` and its options. What it does: `crawler/cli/share.py`."""

from __future__ import annotations

import argparse
import os

from scrapy.commands import ScrapyCommand


class ShareCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "[options] [spider]"

    def short_desc(self) -> str:
        return (
            "Run a spider (web, if none is named) in workers of this machine, which share the crawl"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--workers",
            default=str(os.cpu_count() or 1),
            metavar="N",
            help="how many (default: one a core)",
        )
        parser.add_argument(
            "-a",
            dest="spargs",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="set spider argument (may be repeated)",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import share

        assert self.settings is not None
        self.exitcode = share.run(args, opts, self.settings)
