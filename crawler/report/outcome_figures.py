"""What the outcome log says about a crawl as a whole: one pass over its lines.

Rule: memory is bounded, and lines that cannot be read are passed over. What servers and pages chose
(hosts, reasons, URLs) is kept as it is: who shows it has to escape it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from crawler.model.types import DISALLOWED
from crawler.policy.politeness import is_retry_status

SECONDS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES: Final = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Upper bounds of the classes of fetch times (seconds) and bodies (bytes); the last has none."""
MAX_HOSTS: Final = 1_000_000
"""Hosts that are counted exactly: 220 MB. If there are more, the half with the most pages stays."""
_MAX_NAMES: Final = 10_000  # different reasons or patterns; beyond them all are one
_OTHERS: Final = "others"
_MAX_DEAD: Final = 1_000  # dead letters, the latest
_NAME_CHARS: Final = 200


_Name = TypeVar("_Name")


class LoggedOutcome(msgspec.Struct, frozen=True, gc=False):
    """What is read of a line; `model.types.Outcome` explains the fields."""

    url: str
    host: str
    fate: str
    status: int | None = None
    reason: str = ""
    seconds: float = 0.0
    size: int = 0
    external: str = ""


_decode = msgspec.json.Decoder(LoggedOutcome).decode


class AnswersOfHost(msgspec.Struct, frozen=True):
    """What one host has answered."""

    host: str
    pages: int
    bytes: int
    seconds: float  # of its fetches that were answered, on average
    errors: int  # tries that failed
    dead: int  # URLs given up


class OutcomeFigures:
    """The figures of one or more outcome logs."""

    def __init__(self) -> None:
        self.lines = 0
        self.statuses: Counter[int] = Counter()
        self.fates: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()  # exact, near, by their canonical URL
        self.noindex = 0
        self.disallowed = Counter[str]()  # by use
        self.external: Counter[str] = Counter()  # answers of links that were only checked, by them
        self.seconds = [0] * (len(SECONDS) + 1)  # answers by class
        self.sizes = [0] * (len(SIZES) + 1)
        self.refused: Counter[str] = Counter()  # waiting URLs, by rule
        self.traps: Counter[tuple[str, str]] = Counter()  # unfetched URLs, by host and pattern
        self.dead_reasons: Counter[str] = Counter()
        self.dead: OrderedDict[str, str] = OrderedDict()  # reasons by URL, the latest last
        self.skipped_bytes = 0  # of logs that were not read from their beginning
        self._hosts: dict[str, int] = {}  # places in the arrays
        self._of_hosts = _no_hosts()

    def read(self, log: Path, most_bytes: int | None = None) -> None:
        """Count the outcomes in *log*, if it exists; *most_bytes*: only so much, at its end. 1e6
        lines take 2 to 3 s. Raises OSError."""
        if not log.exists():
            return
        with log.open("rb") as lines:
            size = log.stat().st_size
            if most_bytes is not None and size > most_bytes:
                lines.seek(size - most_bytes)
                self.skipped_bytes += size - most_bytes + len(lines.readline())
            for line in lines:
                try:
                    outcome = _decode(line)
                except msgspec.MsgspecError:
                    continue
                self._count(outcome)

    @property
    def hosts(self) -> int:
        return len(self._hosts)

    def top_hosts(self, limit: int) -> list[AnswersOfHost]:
        """Return the hosts with the most pages."""
        pages, sizes, ms, answers, errors, dead = self._of_hosts
        top = nlargest(limit, self._hosts.items(), key=lambda each: (pages[each[1]], -each[1]))
        return [
            AnswersOfHost(
                host=host,
                pages=pages[at],
                bytes=sizes[at],
                seconds=ms[at] / 1000 / max(1, answers[at]),
                errors=errors[at],
                dead=dead[at],
            )
            for host, at in top
        ]

    def _count(self, one: LoggedOutcome) -> None:
        self.lines += 1
        fate, status, reason = one.fate, one.status, one.reason
        if one.external:
            if fate != "retry":
                self.external[one.external] += 1
            return
        self.fates[fate] += 1
        if fate == "refused":
            _count_name(self.refused, reason.partition(":")[0], _OTHERS)
            return
        at = self._hosts.get(one.host)
        if at is None:
            at = self._add_host(one.host)
        pages, sizes, ms, answers, errors, dead = self._of_hosts
        if status is not None:
            self.statuses[status] += 1
            self.seconds[bisect_left(SECONDS, one.seconds)] += 1
            self.sizes[bisect_left(SIZES, one.size)] += 1
            sizes[at] += one.size
            ms[at] += int(one.seconds * 1000)
            answers[at] += 1
            pages[at] += fate in ("done", "dead")
        if fate == "dead":
            dead[at] += 1
            errors[at] += status is None or is_retry_status(status)
            _count_name(self.dead_reasons, reason[:_NAME_CHARS], _OTHERS)
            self.dead[one.url] = reason
            self.dead.move_to_end(one.url)
            if len(self.dead) > _MAX_DEAD:
                self.dead.popitem(last=False)
            return
        errors[at] += fate == "retry"
        if self.dead and fate in ("done", "moved"):
            self.dead.pop(one.url, None)  # it was put back, and fetched
        if reason in ("duplicate", "near-duplicate", "alias"):
            self.duplicates[reason] += 1
        elif reason == "noindex":
            self.noindex += 1
        elif reason.startswith(DISALLOWED):
            self.disallowed[reason.removeprefix(DISALLOWED)[:_NAME_CHARS]] += 1
        elif status is None and reason.startswith("pattern "):
            pattern = reason.removeprefix("pattern ").rpartition(": ")[0]
            _count_name(self.traps, (one.host, pattern[:_NAME_CHARS]), (_OTHERS, ""))

    def _add_host(self, host: str) -> int:
        if len(self._hosts) >= MAX_HOSTS:
            self._drop_hosts()
        at = self._hosts[host] = len(self._hosts)
        for column in self._of_hosts:
            column.append(0)
        return at

    def _drop_hosts(self) -> None:
        pages, before = self._of_hosts[0], self._of_hosts
        kept = nlargest(MAX_HOSTS // 2, self._hosts.items(), key=lambda each: pages[each[1]])
        self._of_hosts = tuple(array("q", (column[at] for _, at in kept)) for column in before)
        self._hosts = {host: place for place, (host, _) in enumerate(kept)}


def figures_of_logs(logs: Sequence[Path], most_bytes: int | None) -> OutcomeFigures:
    """Count the outcomes in *logs*; *most_bytes*: only so much of all together. Raises OSError."""
    figures = OutcomeFigures()
    for log in logs:
        figures.read(log, None if most_bytes is None else most_bytes // len(logs))
    return figures


def _no_hosts() -> tuple[array[int], ...]:
    """Return columns of pages, bytes, milliseconds, answers, errors and dead letters."""
    return tuple(array("q") for _ in range(6))


def _count_name(counted: Counter[_Name], name: _Name, others: _Name) -> None:
    counted[name if name in counted or len(counted) < _MAX_NAMES else others] += 1
