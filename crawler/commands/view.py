"""`scrapy view URL`: open the page as the crawler gets it in a browser."""

from __future__ import annotations

from scrapy.commands.view import Command as Scrapys

from crawler.cli.interactive import InteractiveCommand


class ViewCommand(InteractiveCommand, Scrapys):
    pass
