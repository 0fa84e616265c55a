"""What is measured of a shared frontier: one interface, ours and scrapy-redis' behind it.

Rule: `prepare` is what a page's links cost anyway and is not measured; all else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from bench.frontier.links import Client, Link


class Driver(Protocol):
    """One connection of one worker."""

    def prepare(self, found: Iterable[Link]) -> list[Any]:
        """Links in the form they are added in."""

    def add(self, prepared: Sequence[Any]) -> None:
        """Add those not seen."""

    def lease(self, limit: int) -> list[Any]:
        """Take up to *limit* URLs."""

    def release(self, leases: Sequence[Any]) -> None:
        """Their fetches are over, their hosts need no rest."""

    def finish(self, leases: Sequence[Any]) -> None:
        """Their pages are durable."""

    def claim(self, count: int) -> None:
        """So many pages own their content."""

    def settle(self) -> None:
        """Wait until the server has all, and it is decided what is new."""

    def known(self) -> int:
        """How many URLs were ever new."""


Opened = Callable[[str, Client], Driver]  # from the URL of a Redis
