"""`scrapy parse URL --spider NAME`: what the callbacks of a spider make of a page."""

from __future__ import annotations

from scrapy.commands.parse import Command as Scrapys

from crawler.inspect.interactive import InteractiveCommand


class ParseCommand(InteractiveCommand, Scrapys):
    pass
