"""What a worker has to tell that is no link, release or verdict: claims, fingerprints, rests,
robots.txt.

Rule: bounded, though a server be away for days, and not tried all the time. A claim that is never
told stores a page twice at worst, a fingerprint misses a near-duplicate, a robots.txt is fetched
once more; a rest is never dropped, and has no more than one place a host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from crawler.storage.redis.calls import Call

AGAIN_S: Final = 2.0  # until a shard that did not answer is tried again
MOST: Final = {"claim": 500, "near": 50, "learn": 100, "note": 500}
"""Of a shard: 0.6 MB of claims, as much of fingerprints and 0.4 MB of robots.txt, mostly."""
UNTOLD: Final = "untold/"

_Key = tuple[str, object]


class _Queue:
    """Of one shard, in its order."""

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self.calls: dict[_Key, Call] = {}
        self._counts: Counter[str] = Counter()
        self._dropped = dropped
        self._number = 0

    def put(self, call: Call) -> None:
        key = self._key(call)
        before = self.calls.pop(key, None)
        self.calls[key] = call if before is None else _latest(before, call)
        if before is None:
            self._counts[call.script] += 1
            if self._counts[call.script] > MOST.get(call.script, self._counts[call.script]):
                self._drop_oldest(call.script)

    def _drop_oldest(self, script: str) -> None:
        del self.calls[next(key for key in self.calls if key[0] == script)]
        self._counts[script] -= 1
        self._dropped(script)

    def _key(self, call: Call) -> _Key:
        if call.script == "learn":
            return call.script, call.args[0]
        if _is_of_one_host(call):
            return call.script, call.args[1]
        self._number += 1
        return call.script, self._number


class Tells:
    """Bound: MOST a shard, and a rest for each host that was leased."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._try_at: dict[int, float] = {}  # monotonic, of shards that did not answer
        self.count: Callable[[str], None] = lambda _: None  # hears what is never told

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def is_held(self) -> bool:
        """Whether something waits for a shard to answer again."""
        return any(shard in self._try_at for shard in self._queues)

    def put(self, call: Call) -> None:
        queue = self._queues.get(call.shard)
        if queue is None:
            queue = self._queues[call.shard] = _Queue(self._dropped)
        queue.put(call)

    def take(self, steady: float) -> list[Call]:
        """All that is to be tried now."""
        due = [shard for shard in self._queues if self._try_at.get(shard, 0.0) <= steady]
        for shard in due:
            self._try_at.pop(shard, None)
        return [call for shard in due for call in self._queues.pop(shard).calls.values()]

    def put_back(self, untold: Sequence[Call], steady: float) -> None:
        """They were not acknowledged: to be told again, before newer ones."""
        shards = {call.shard for call in untold}
        newer = [self._queues.pop(shard) for shard in shards if shard in self._queues]
        for call in [*untold, *(call for queue in newer for call in queue.calls.values())]:
            self.put(call)
        self._try_at.update(dict.fromkeys(shards, steady + AGAIN_S))

    def rests(self) -> list[Call]:
        queues = self._queues.values()
        return [call for queue in queues for call in queue.calls.values() if call.script == "rest"]

    def answers(self, shard: int) -> None:
        self._try_at.pop(shard, None)

    def _dropped(self, script: str) -> None:
        self.count(UNTOLD + script)


def _is_of_one_host(call: Call) -> bool:
    """A rest as a worker tells it: the longest possible, host, age, seconds, pace."""
    return call.script == "rest" and len(call.args) == 5


def _latest(before: Call, call: Call) -> Call:
    if call.script != "rest":
        return call
    most_s, host, age_s, _, pace = call.args
    left_s = max(float(one.args[3]) - float(one.args[2]) for one in (before, call))
    return Call(call.shard, "rest", (most_s, host, age_s, left_s + float(age_s), pace))
