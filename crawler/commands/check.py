"""`scrapy check`: test the contracts in the docstrings of spiders' callbacks."""

from __future__ import annotations

from scrapy.commands.check import Command as Scrapys

from crawler.cli.interactive import InteractiveCommand


class CheckCommand(InteractiveCommand, Scrapys):
    pass
