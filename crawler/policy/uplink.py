"""Is it them or us? When nearly all hosts fail at once, it is our own line.

Rule: only hosts that have answered before can tell, each by its last answer: a list of dead hosts
looks like a dead line and would keep a crawl waiting for ever. While the line is down a fetch is
let through now and then, and no host is charged for what fails: the caller asks before it does.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from crawler.core.types import Answer, HostKey


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkRules:
    """Settings; all are guesses, revisit."""

    window_s: float = 60.0
    min_hosts: int = 20  # heard of within it; fewer may well be one server, and it is down
    max_hosts: int = 1024  # remembered
    failing: float = 0.9  # of those heard of
    probe_s: float = 10.0
    longest_s: float = 6 * 3600.0  # then it is them: a crawl must end


class Uplink:
    """The state of our own connection."""

    def __init__(self, rules: UplinkRules) -> None:
        self._rules = rules
        self._last: OrderedDict[HostKey, tuple[float, bool]] = OrderedDict()  # latest last
        self._down_since = 0.0
        self._probe_at: float | None = None  # None: the line is up

    def __len__(self) -> int:
        """Hosts it remembers."""
        return len(self._last)

    def observe(self, host: HostKey, answer: Answer, now: float) -> None:
        """Take note of how *host* answered."""
        if answer.error == "cancelled":
            return
        failed = no_contact(answer)
        if self._probe_at is not None:
            self._probed(failed, now)
        elif host in self._last or not failed:
            self._note(host, failed, now)
            if failed and self._most_fail(now):
                self._down_since, self._probe_at = now, now + self._rules.probe_s

    def is_down(self, now: float) -> bool:
        """Whether to hand nothing out: the line is down and no probe is due."""
        return self._probe_at is not None and now < self._probe_at

    @property
    def probe_at(self) -> float | None:
        """When the next fetch may try the line. None: it is up."""
        return self._probe_at

    def charges(self) -> bool:
        """Whether a failure is the host's own. Asked after `observe`."""
        return self._probe_at is None

    def _probed(self, failed: bool, now: float) -> None:
        if failed and now - self._down_since < self._rules.longest_s:
            self._probe_at = now + self._rules.probe_s
        else:
            self._probe_at = None
            self._last.clear()

    def _note(self, host: HostKey, failed: bool, now: float) -> None:
        self._last[host] = (now, failed)
        self._last.move_to_end(host)
        if len(self._last) > self._rules.max_hosts:
            self._last.popitem(last=False)

    def _most_fail(self, now: float) -> bool:
        since = now - self._rules.window_s
        recent = [failed for at, failed in self._last.values() if at > since]
        enough = len(recent) >= self._rules.min_hosts
        return enough and sum(recent) >= self._rules.failing * len(recent)


def no_contact(answer: Answer) -> bool:
    """Whether not even the head of an answer came."""
    if answer.status is not None:
        return False
    return answer.error in ("dns", "connect", "disconnect", "timeout")
