"""What the pipelines share: which items are theirs, and what a full disk means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self, TypeVar

from scrapy.crawler import Crawler

from crawler.core.errors import StoreUnavailable
from crawler.core.page import Flaw, Page
from crawler.core.types import PutBack
from crawler.parts import Parts
from crawler.scheduler.flights import Flight
from crawler.wiring import parts_of

Item = TypeVar("Item")


class Stage(ABC):
    """One stage of the content line. Items that are no pages of a lease pass untouched."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(parts_of(crawler))

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def process_item(self, item: Item) -> Item | Page:
        if not isinstance(item, Page):
            return item
        flight = self.parts.flights.by_id(item.lease_id)
        if flight is None:
            return item
        try:
            return await self.work(item, flight)
        except StoreUnavailable as error:
            # Not this page's fault: it is fetched again when there is room.
            flight.verdict = PutBack()
            self.parts.fail(error)
            raise

    def flawed(self, page: Page, flight: Flight, flaw: Flaw) -> Page:
        """*page*, known to be none; counted, and said in the outcome log."""
        self.parts.tally.count(f"flaw/{flaw}")
        flight.reason = flaw
        flight.is_new = False if flaw is Flaw.SOFT_404 else None
        return replace(page, flaw=flaw)

    @abstractmethod
    async def work(self, page: Page, flight: Flight) -> Page:
        """The page with what this stage found out."""
