"""Sets of names in 8 bytes each, and numbers by name in ten."""

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

    def find(self, name: str) -> int | None:
        """Return the place of *name* among the names by their hashes; None: it is not there."""
        number = hash(name)
        at = bisect_left(self._hashes, number)
        return at if at < len(self._hashes) and self._hashes[at] == number else None

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __len__(self) -> int:
        return len(self._hashes)


class NameNumbers:
    """Numbers by name, of names as a `NameSet` has them."""

    def __init__(self, hashes: array[int] | None = None, numbers: array[int] | None = None) -> None:
        """*hashes*: of the names, by `hash`; of a name that occurs again the first of the *numbers*
        counts, which are from 0 to 65,535 and stand in the same order. None: all are 0."""
        self._hashes = NameSet(hashes)
        self._numbers = array("H")
        self.conflict: tuple[int, int, int] | None = None
        """Two numbers of one name, and its hash, if a name has two."""
        if hashes and numbers and any(numbers):
            names, of_name = np.frombuffer(hashes, np.int64), np.frombuffer(numbers, np.uint16)
            _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
            self._numbers.frombytes(of_name[first].tobytes())
            differ = np.flatnonzero(of_name[first][inverse] != of_name)
            if len(differ):
                at = differ[0]
                self.conflict = int(of_name[first][inverse][at]), int(of_name[at]), int(names[at])

    def get(self, name: str) -> int | None:
        """Return the number of *name*, or None if it has none."""
        at = self._hashes.find(name)
        if at is None:
            return None
        return self._numbers[at] if self._numbers else 0
