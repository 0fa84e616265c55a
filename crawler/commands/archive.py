"""`scrapy archive` and its options. What it does: `crawler/cli/archive.py`."""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class ArchiveCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return (
            "list | get URL | check | index | parse | pack OUT.wacz | graph FOLDER |"
            " wet FOLDER | wat FOLDER | compare OLD NEW | missing | purge TARGET |"
            " expire --older 30d  [options]"
        )

    def short_desc(self) -> str:
        return (
            "Look into a crawl's archive; check, index, parse it again, pack it, write the graph of"
            " its hosts and domains, compare it with an earlier one, list what its pages lack,"
            " delete from it, or remove what is old"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="answer in JSON")
        parser.add_argument(
            "--all", action="store_true", default=None, help="get: list all captures of the URL"
        )
        parser.add_argument("--at", metavar="TIME", help="get: the capture of then, 20260102...")
        parser.add_argument(
            "--raw", action="store_true", default=None, help="get: still gzip and the like"
        )
        parser.add_argument(
            "--rendered",
            action="store_true",
            default=None,
            help="get: what a browser has made of it",
        )
        parser.add_argument(
            "-o", dest="out", metavar="FILE", help="get, compare, missing: into this file"
        )
        parser.add_argument("--title", metavar="TEXT", help="pack: of the package")
        parser.add_argument("--description", metavar="TEXT", help="pack: of the package")
        parser.add_argument(
            "--list",
            action="store_true",
            default=None,
            help="purge, expire: list what would be deleted, and change nothing",
        )
        parser.add_argument(
            "--older", metavar="TIME", help="expire: files whose answers are all older, 30d..."
        )
        parser.add_argument(
            "--whole",
            action="store_true",
            default=None,
            help="expire: of a crawl that workers share, this machine has all files",
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.cli import archive
        from crawler.report.messages import ending_with_its_reader

        assert self.settings is not None
        with ending_with_its_reader():
            self.exitcode = archive.run(args, opts, self.settings)
