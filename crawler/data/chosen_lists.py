"""The lists of `-a only=LIST` that are not over: all of such a list was added, and perhaps not all
of it fetched. A crawl that workers share has them in Redis (lua/chosen.lua).

Rule: a list gets a higher number than any before it, before one of its URLs is added, and these
have it: of a URL of the list of this run, what waits with a lower one is not fetched.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.model.choices import ListState


class ListRecords(msgspec.Struct, array_like=True, frozen=True):
    """The lists that are not over."""

    last: int = 1  # number that was given; none is 1, as that equals True
    added: dict[str, int] = {}  # digest to number


_NONE: Final = ListRecords()
_decode = msgspec.msgpack.Decoder(ListRecords).decode


class LocalLists:
    """Keeps them in the records of a frontier: they are committed with the URLs."""

    def __init__(self, records: OrderedStore) -> None:
        self._records = records

    def begin(self, digest: str) -> tuple[ListState, int]:
        """Return whether the list with *digest* is to be added, or is not over, and its number."""
        lists = self._read()
        if digest in lists.added:
            return ListState.ADDED, lists.added[digest]
        self._write(replace(lists, last=lists.last + 1))
        return ListState.ADDING, lists.last + 1

    def note_added(self, digest: str, number: int) -> None:
        """Note that all URLs of a list were added."""
        lists = self._read()
        self._write(replace(lists, added={**lists.added, digest: number}))

    def end(self) -> None:
        """End all lists: nothing is left to fetch."""
        lists = self._read()
        if lists.added:
            self._write(replace(lists, added={}))

    def _read(self) -> ListRecords:
        packed = self._records.get(keys.CHOSEN_LISTS)
        return _NONE if packed is None else _decode(packed)

    def _write(self, lists: ListRecords) -> None:
        self._records.write({keys.CHOSEN_LISTS: keys.encode(lists)})
