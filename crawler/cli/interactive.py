"""The base of `scrapy shell`, `fetch`, `view`, `parse` and `check`, which run beside any crawl.

Rule: each is Scrapy's command with all its options. Only its scheduler differs, and an error in the
settings is one sentence. It imports the crawler when it runs: Scrapy imports every command.
"""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand

from crawler.engine.interactive import SCHEDULER
from crawler.model.program import PROGRAM


class InteractiveCommand(ScrapyCommand):
    """The first base of our command; Scrapy's is the second."""

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        self.settings.set("SCHEDULER", SCHEDULER, priority="cmdline")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawler.config.settings import read_config
        from crawler.engine.seeds import refuse_anonymous
        from crawler.model.types import CrawlerError
        from crawler.model.url import fetch_form
        from crawler.policy.scope import SeedHosts
        from crawler.policy.seed_terms import TermsOfSeeds
        from crawler.report.messages import print_error

        assert self.settings is not None
        try:
            urls = (url for url in map(fetch_form, args) if url is not None)
            refuse_anonymous(SeedHosts(TermsOfSeeds(), urls), read_config(self.settings))
            self._refuse_web(getattr(opts, "spider", None))
            super().run(args, opts)  # type: ignore[safe-super]  # the next base has it
        except CrawlerError as refused:
            print_error(refused)
            self.exitcode = 1

    def _refuse_web(self, name: str | None) -> None:
        """Raise ConfigError for `web`: it needs a frontier and pipelines, which are not here."""
        from crawler.model.types import ConfigError
        from crawler.spiders.web import WebSpider

        assert self.crawler_process is not None
        loader = self.crawler_process.spider_loader
        if name in loader.list() and issubclass(loader.load(name), WebSpider):
            raise ConfigError(
                f"the spider {name} has no callbacks to try. What it makes of one page:"
                f" {PROGRAM} crawl {name} -a seeds=URL -a max_pages=1 -s CRAWLER_DATA_DIR=one-page"
                " -o -:jsonlines"
            )
