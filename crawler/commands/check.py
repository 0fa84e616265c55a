"""`scrapy check`: the contracts of spiders, in the docstrings of their callbacks."""

from __future__ import annotations

from scrapy.commands.check import Command as Scrapys

from crawler.inspect.interactive import InteractiveCommand


class CheckCommand(InteractiveCommand, Scrapys):
    pass
