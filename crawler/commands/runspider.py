"""`scrapy runspider FILE`: run the spider in a file, as `scrapy crawl` runs one by its name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from scrapy import Spider
from scrapy.exceptions import UsageError
from scrapy.spiderloader import DummySpiderLoader
from scrapy.utils.spider import iter_spider_classes

from crawler.commands.crawl import CrawlCommand as Crawl
from crawler.model.program import PROGRAM


class RunSpiderCommand(Crawl):
    requires_project = False
    default_settings: ClassVar[dict[str, Any]] = {"SPIDER_LOADER_CLASS": DummySpiderLoader}

    def syntax(self) -> str:
        return "[options] <spider_file>"

    def short_desc(self) -> str:
        return "Run a spider from a Python file"

    def _spider_of(self, args: list[str]) -> str | type[Spider]:
        if len(args) != 1:
            raise UsageError(f"name one file, for example: {PROGRAM} runspider shop.py")
        file = Path(args[0]).resolve()
        if not file.is_file() or file.suffix not in (".py", ".pyw"):
            raise UsageError(f"{args[0]} is no file of Python code")
        sys.path.insert(0, str(file.parent))
        try:
            spiders = list(iter_spider_classes(import_module(file.stem)))
        except ImportError as broken:
            raise UsageError(f"{args[0]} cannot be loaded: {broken}") from broken
        finally:
            sys.path.pop(0)
        if not spiders:
            raise UsageError(f"there is no spider in {args[0]}")
        return spiders[-1]
