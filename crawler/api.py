"""The public API: what parsers, spiders, pipelines, prioritizers and programs of users import.

Rule: these names are stable, all others may change. Modules that need Scrapy are imported on first
use, as a user's parser is also loaded in a child process of limited memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from crawler.archive.lookup import lookup, read_entry
from crawler.model.page import Flaw, Link, Page, Parsed, Source, Unreadable
from crawler.policy.priority import CashPrioritizer, DepthPrioritizer, Prioritizer

if TYPE_CHECKING:
    from crawler.spiders.pages import page_of
    from crawler.spiders.web import WebSpider

__all__ = [
    "CashPrioritizer",
    "DepthPrioritizer",
    "Flaw",
    "Link",
    "Page",
    "Parsed",
    "Prioritizer",
    "Source",
    "Unreadable",
    "WebSpider",
    "lookup",
    "page_of",
    "read_entry",
]

_OF_SCRAPY: Final = {"page_of": "crawler.spiders.pages", "WebSpider": "crawler.spiders.web"}


def __getattr__(name: str) -> Any:
    if name not in _OF_SCRAPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OF_SCRAPY[name]), name)
