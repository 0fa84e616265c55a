"""A project as Scrapy users write it: our two lines in its settings, their spiders."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SETTINGS: Final = """
BOT_NAME = "theirs"
SPIDER_MODULES = ["theirs.spiders"]
NEWSPIDER_MODULE = "theirs.spiders"
ADDONS = {"crawler.addon.Addon": 500}
COMMANDS_MODULE = "crawler.commands"
CRAWLER_MIN_DELAY_S = 0.01
CRAWLER_DELAY_FACTOR = 1
"""

SPIDERS: Final = '''
from scrapy import Request, Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

ROOT = "{root}"


class Shop(Spider):
    name = "shop"
    start_urls = [ROOT + "/"]

    def parse(self, response):
        """Contracts are checked by `scrapy check`.

        @url {root}/
        @returns items 1 1
        @returns requests 3
        @scrapes url title
        """
        yield {{"url": response.url, "title": response.css("title::text").get()}}
        yield from response.follow_all(css="a", callback=self.item)

    def item(self, response, word="none"):
        yield {{"item": response.url, "word": word, "depth": response.meta.get("depth")}}


class Rules(CrawlSpider):
    name = "rules"
    allowed_domains = ["{host}"]
    start_urls = [ROOT + "/"]
    rules = [
        Rule(LinkExtractor(allow="/lamp"), callback="lamp", cb_kwargs={{"kind": "lamp"}}),
        Rule(LinkExtractor(allow="/more"), follow=True),
    ]

    def lamp(self, response, kind):
        yield {{"url": response.url, "kind": kind, "linked_as": response.meta["link_text"]}}


class Map(SitemapSpider):
    name = "map"
    sitemap_urls = [ROOT + "/robots.txt"]
    sitemap_rules = [("/lamp", "lamp")]

    def lamp(self, response):
        yield {{"url": response.url}}
'''


def write_project(folder: Path, root: str) -> Path:
    """A project for the site at *root*."""
    spiders = folder / "theirs" / "spiders"
    spiders.mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = theirs.settings\n")
    (folder / "theirs" / "__init__.py").touch()
    (folder / "theirs" / "settings.py").write_text(SETTINGS)
    (spiders / "__init__.py").touch()
    host = root.removeprefix("http://").partition(":")[0]
    (spiders / "all.py").write_text(SPIDERS.format(root=root, host=host))
    return folder
