"""`scrapy identity` and its options. What it does: `crawler/cli/identity.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class IdentityCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "new ORIGIN [FOLDER] | check URL | headers [ORIGIN] [FOLDER] | page  [options]"

    def short_desc(self) -> str:
        return "Make a key that requests are signed with, check what is published of it, and a page"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--purpose",
            default="",
            metavar="TEXT",
            help="what the pages are for, in the card and on the page",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import identity
        from crawler.report.messages import ending_with_its_reader

        assert self.settings is not None
        with ending_with_its_reader():
            self.exitcode = identity.run(args, opts, self.settings)
