"""What a simulated crawl leaves behind, as seen from outside: the log of the web servers, the
outcome log, the starts and crashes of its processes, the rules of its operator.

Rule: judges read only this and the store; it holds no counter of the crawler's own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from crawler.model.types import Outcome
from crawler.policy.operator_rules import OperatorRules
from crawler.simulate.web import Content


@dataclass(slots=True, eq=False)
class Hit:
    """One line of a web server's log."""

    host: str
    url: str
    start: float  # epoch seconds, when the request came
    end: float  # when the last byte was sent, or the connection was lost
    status: int | None  # None: no answer
    error: str  # as of model.types.Answer
    content: Content
    retry_after_s: float  # of its Retry-After, from *head_at*
    head_at: float
    process: int  # number of the client's process
    round: int = 0  # in which the URL was leased; 0: none, as of a robots.txt
    is_challenge: bool = False
    is_head_read: bool = False  # the client has read its head and noted what that asks for
    is_cut: bool = False  # the client died meanwhile
    is_doubtful: bool = False  # the client stood still meanwhile: perhaps it could not use it


@dataclass(frozen=True, slots=True)
class RulesChange:
    """The rules of the operator from *at* on."""

    at: float
    rules: OperatorRules
    text: str


PRECISION_S: Final = 1e-3
"""Precision of times on disk, and of those of one event."""


class PowerCut(NamedTuple):
    """What was noted on disk after *since* may be lost by the power cut *at*."""

    since: float
    at: float


class Loss(NamedTuple):
    """What a worker of a shared crawl noted after *since* may be lost *at* a time: it was killed or
    has lost a shard, or a server has lost its last writes, or never got some."""

    since: float
    at: float
    process: int  # 0: all
    even_sent: bool = False  # also what was sent at once, and not waited for

    def concerns(self, hit: Hit, at: float) -> bool:
        """Return whether what was noted of *hit* at a time may be lost."""
        is_then = self.since - PRECISION_S <= at <= self.at + PRECISION_S
        return is_then and self.process in (0, hit.process)


@dataclass(slots=True, eq=False)
class RunLog:
    """All of one run. The same seed gives the same *digest*."""

    hits: list[Hit] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)  # those by power cuts, too
    power_cuts: list[PowerCut] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)  # of a shared crawl
    synced: defaultdict[int, list[float]] = field(default_factory=partial(defaultdict, list))
    """When Redis had all that a process knew, by its number."""
    lost_records: set[str] = field(default_factory=set)  # of the archive, by power cuts
    starts: list[float] = field(default_factory=list)
    rules_changes: list[RulesChange] = field(default_factory=list)
    callback_errors: list[tuple[float, str]] = field(default_factory=list)  # time, URL
    events: int = 0  # and leases that were refused
    most_events: int = 1 << 60
    ended_at: float = 0.0
    is_over: bool = False  # the frontier says that nothing is left
    failure: str = ""  # why the run was ended before
    trace: Callable[[str], None] | None = None
    _hash: blake2b = field(default_factory=lambda: blake2b(digest_size=16))

    @property
    def digest(self) -> str:
        """The digest of all events so far, in their order."""
        return self._hash.hexdigest()

    @property
    def is_endless(self) -> bool:
        """Whether there were so many events that it seems to go on for ever."""
        return self.events > self.most_events

    def may_be_lost(self, hit: Hit) -> bool:
        """Return whether what was noted at the end of *hit* may be lost: a process died then, a
        power cut came before the next sync, or a loss before all was acknowledged."""
        at = hit.end
        place = bisect_left(self.crashes, at - PRECISION_S)
        is_moment = place < len(self.crashes) and self.crashes[place] <= at + PRECISION_S
        return (
            hit.is_doubtful
            or is_moment
            or self.is_unsynced(at)
            or any(each.concerns(hit, at) for each in self.losses)
        )

    def is_head_kept(self, hit: Hit) -> bool:
        """Return whether what the head of *hit* asked for was surely noted at once."""
        is_lost = any(each.even_sent and each.concerns(hit, hit.head_at) for each in self.losses)
        return hit.is_head_read and not hit.is_doubtful and not is_lost

    def is_unsynced(self, at: float) -> bool:
        """Return whether a power cut came before the next sync after *at*."""
        return any(cut.since - PRECISION_S <= at <= cut.at + PRECISION_S for cut in self.power_cuts)

    def note(self, now: float, what: str) -> None:
        """Note one event."""
        line = f"{now:.6f} {what}\n"
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace(line)

    def log(self, outcomes: Iterable[Outcome]) -> None:
        for each in outcomes:
            self.outcomes.append(each)
            self.note(each.at, f"outcome {each.fate} {each.url} {each.reason}")

    def note_crash(self, now: float, process: int) -> None:
        """Note that a process is killed; what it was reading is cut off."""
        self.crashes.append(now)
        self.note(now, "crash")
        for hit in self.under_way(now, process):
            hit.end, hit.is_cut = now, True

    def note_lost_writes(self, since: float, now: float) -> None:
        """Note that a server has lost what was written since then. Some of it was noted before, and
        on its way."""
        self.losses.append(Loss(since, now, 0, even_sent=True))
        for process, times in self.synced.items():
            while len(times) > 1 and times[-1] > since:
                times.pop()
            self.losses.append(Loss(min(times[-1], since), now, process))

    def under_way(self, now: float, process: int) -> list[Hit]:
        """Return what a process is reading."""
        return [hit for hit in self.hits if hit.process == process and hit.end > now]
