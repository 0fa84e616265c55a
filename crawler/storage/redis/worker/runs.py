"""Which run of its server each shard is in, and when it was last heard of.

Rule: a server that dies may forget its last moments. So what one run acknowledged is sure only when
that run was heard of long enough after it; and when another run is heard of, what was told last is
told again.
"""

from __future__ import annotations

from collections.abc import Callable


class Runs:
    def __init__(self) -> None:
        self._runs: dict[int, bytes] = {}
        self._asked_at: dict[int, float] = {}
        self.on_change: Callable[[int, float], None] = lambda _, __: None
        """Is told of a shard that is in another run, and when the last one was still alive."""
        self.on_gone: Callable[[int], None] = lambda _: None
        """Is told of a shard whose keys are not there any more."""

    def heard(self, shard: int, run: bytes, asked_at: float) -> None:
        """*shard* answered, of *run*, what it was asked at *asked_at* (monotonic)."""
        if not run:
            self.on_gone(shard)
            return
        last, last_at = self._runs.get(shard), self._asked_at.get(shard, asked_at)
        self._runs[shard] = run
        self._asked_at[shard] = asked_at if last != run else max(asked_at, last_at)
        if last is not None and last != run:
            self.on_change(shard, last_at)

    def asked_at(self, shard: int) -> float:
        """When it was asked what it answered last."""
        return self._asked_at.get(shard, float("-inf"))

    def lives(self, shard: int, run: bytes, at: float) -> bool | None:
        """Whether *run* was still alive *at* that time. None: nobody knows yet."""
        if self._runs.get(shard) != run:
            return False
        return True if self._asked_at[shard] >= at else None
