"""`scrapy fetch URL`: print the body (`--headers`: the headers) as the crawler gets it."""

from __future__ import annotations

from scrapy.commands.fetch import Command as Scrapys

from crawler.cli.interactive import InteractiveCommand


class FetchCommand(InteractiveCommand, Scrapys):
    pass
