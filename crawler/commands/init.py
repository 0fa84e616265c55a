"""`scrapy init`: print an example of the file of a crawl, crawl.toml."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class InitCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "> crawl.toml"

    def short_desc(self) -> str:
        return "Print an example of a file that describes a crawl"

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.model.program import PROGRAM
        from crawler.policy.crawl_file import EXAMPLE

        command = "gossamer crawl" if PROGRAM == "gossamer" else "scrapy crawl web"
        print(EXAMPLE.replace("COMMAND", command), end="")
