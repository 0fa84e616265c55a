"""Two pipelines: one between ours, one after them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from crawler.api import Page


class Editor:
    """Between parsing (200) and archiving (300): pages have their links, and no record yet."""

    def process_item(self, item: Any) -> Any:
        if not isinstance(item, Page):
            return item
        if item.title == "unwanted":
            raise DropItem("unwanted")
        if item.title == "private":
            return replace(item, archive=False)
        if item.title == "home":
            return replace(item, title="My " + item.title, links=(*item.links, "/found-by-me"))
        return item


class Diary:
    """After all of ours: one line an item."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(Path(crawler.settings["MINE_DIARY"]))

    def __init__(self, path: Path) -> None:
        self.path = path

    def open_spider(self) -> None:
        self.file = self.path.open("a")

    def close_spider(self) -> None:
        self.file.close()

    def process_item(self, item: Any) -> Any:
        if isinstance(item, Page):
            line: dict[str, object] = {
                "url": item.url,
                "title": item.title,
                "record": item.record,
                "flags": item.flags,
            }
        else:
            line = dict(item)
        self.file.write(json.dumps(line) + "\n")
        return item
