"""`scrapy parse URL --spider NAME`: print what a spider's callbacks yield for a page."""

from __future__ import annotations

from scrapy.commands.parse import Command as Scrapys

from crawler.cli.interactive import InteractiveCommand


class ParseCommand(InteractiveCommand, Scrapys):
    pass
