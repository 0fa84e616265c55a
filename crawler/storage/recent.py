"""What was used lately, and no more of it than fits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    def __init__(self, most: int, forgotten: Callable[[K, V], None] = lambda _key, _value: None):
        """*forgotten* hears what goes to make room."""
        self._most = most
        self._forgotten = forgotten
        self._known: OrderedDict[K, V] = OrderedDict()  # the least recently used first

    def get(self, key: K) -> V | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._forgotten(*self._known.popitem(last=False))
        return value

    @property
    def is_full(self) -> bool:
        return len(self._known) >= self._most
