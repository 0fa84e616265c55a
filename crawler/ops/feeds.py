"""Which pages are in a feed, and where it may lie.

Rule: a feed of pages has what the columns have; a feed that says otherwise itself counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from scrapy import Spider
from scrapy.extensions.feedexport import ItemFilter

from crawler.core.page import Page
from crawler.policy.rows import is_row
from crawler.wiring import parts_of

_STDOUT: Final = "stdout:"


class PageFilter(ItemFilter):
    """Pages that are archived, copies among them. No errors, flaws, or pages marked noindex: these
    are items too, for pipelines, but nobody asks for them among the pages of a site."""

    def accepts(self, item: object) -> bool:
        if isinstance(item, Page) and not (item.archive and is_row(item)):
            return False
        return super().accepts(item)


def uri_params(params: dict[str, Any], spider: Spider) -> dict[str, Any]:
    """`%(data_dir)s` in the place of a feed: each worker of a shared crawl has its own."""
    return {**params, "data_dir": str(parts_of(spider.crawler).data.path)}


def holds_stdout(feeds: Iterable[str | Path]) -> bool:
    """Whether one of *feeds* is written where the summary would be."""
    return any(str(feed).startswith(_STDOUT) for feed in feeds)
