"""`scrapy report` and its options. What it does: `crawler/cli/report.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class ReportCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "site [FOLDER...]  [options]"

    def short_desc(self) -> str:
        return "Report on a crawled site: broken links, redirects, titles, sitemap and more"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from crawler.data.data_dir import SITE_REPORT

        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="answer in JSON")
        parser.add_argument(
            "-o",
            dest="out",
            metavar="FILE",
            help=f"where to write it, a new file ({SITE_REPORT} in the data directory)",
        )
        parser.add_argument(
            "--csv", metavar="FOLDER", help="also all rows, a new file for each finding"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import report
        from crawler.report.messages import ending_with_its_reader

        assert self.settings is not None
        with ending_with_its_reader():
            self.exitcode = report.run(args, opts, self.settings)
