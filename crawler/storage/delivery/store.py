"""What a destination can do, and how a file comes to be in it, once and whole.

Rule: a name is never written over. What lies under it is the file, or an error; what the store
says of it counts, not what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from crawler.core.errors import CrawlerError, StoreUnavailable

Moved: TypeAlias = Callable[[], None]
"""Called whenever a piece of a file has got somewhere."""


class NameTaken(CrawlerError):
    """Something else lies under the name in the store. Caller: leave the file where it is, and
    tell; only a person can say which of the two counts."""


class DamagedOnTheWay(StoreUnavailable):
    """What came to lie there is not what was sent, and was removed. Caller: try again."""


class Store(Protocol):
    """A destination. Each method raises StoreUnavailable: it cannot be done now."""

    def check(self) -> None:
        """Raises ConfigError: it can never be done, there is no such bucket or folder."""

    def has(self, name: str) -> bool:
        """Whether something lies there. False also where we may not know."""

    def put(self, file: Path, name: str, moved: Moved) -> bool:
        """Make it appear there, whole. False: something was there before."""

    def holds(self, file: Path, name: str, moved: Moved) -> bool:
        """Whether what lies there are the bytes of *file*."""

    def discard(self, name: str) -> None:
        """Take away what was put there."""


def bring(store: Store, file: Path, name: str, moved: Moved) -> None:
    """When it returns, *file* lies under *name*, whole. Raises StoreUnavailable, NameTaken.

    It may die anywhere in between and is then done again: what lies there already is compared.
    """
    is_ours = not store.has(name) and store.put(file, name, moved)
    if store.holds(file, name, moved):
        return
    if not is_ours:
        raise NameTaken(f"{name} is there already with other content; {file} was left")
    store.discard(name)
    raise DamagedOnTheWay(f"{name} was not what was sent; it is sent again")
