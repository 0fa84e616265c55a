"""`scrapy rules`. What it does: `crawler/cli/rules.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class RulesCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "show | check FILE | why URL"

    def short_desc(self) -> str:
        return "Show the operator's rules, check a file of them, say what they say about a URL"

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import rules
        from crawler.report.messages import ending_with_its_reader

        assert self.settings is not None
        with ending_with_its_reader():
            self.exitcode = rules.run(args, opts, self.settings)
