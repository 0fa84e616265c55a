"""A set of names in 8 bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np


class NameSet:
    """A set of names in 8 bytes each: their hashes, sorted. A name outside of it is taken for one
    of a million inside with a probability of 5e-14; Python's key of the hash is secret."""

    def __init__(self, hashes: array[int] | None = None) -> None:
        """*hashes*: of the names, by `hash`; a name may occur again."""
        self._hashes = array("q")
        if hashes:
            self._hashes.frombytes(np.unique(np.frombuffer(hashes, np.int64)).tobytes())

    def __contains__(self, name: str) -> bool:
        number = hash(name)
        at = bisect_left(self._hashes, number)
        return at < len(self._hashes) and self._hashes[at] == number

    def __len__(self) -> int:
        return len(self._hashes)
