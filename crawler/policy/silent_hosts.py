"""Hosts that have never answered, when they are all that is left of a crawl.

Rule: they are given up when no host at all has answered for SILENCE_S: their pauses would last for
hours. If nothing has answered since the start and each fails by its name or its connection, it may
be our own connection that is down, so that is probed first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from crawler.model.types import Answer, HostKey, Pace
from crawler.policy.addresses import AddressKind, host_kind

SILENCE_S: Final = 40.0
"""With a probe of our own connection, and its time-out, the crawl is over within a minute."""
UPLINK_WAIT_S: Final = 300.0
"""How long a crawl that has reached nothing waits for our own connection (guess)."""
UPLINK_PROBE_S: Final = 10.0
MAX_SILENT: Final = 100_000
"""Hosts that are remembered, 150 bytes each. If more are left, each has its 17 pauses."""

NEVER_ANSWERED: Final = "its host has never answered: "
"""The reason of a URL whose host is given up, before the error of its last fetch."""

_OURS_PERHAPS: Final = frozenset({"dns", "connect"})


Probe = Callable[[], Awaitable[bool]]


class SilentHosts:
    """The hosts that failed in this run and have never answered, with the errors of their last
    fetches."""

    def __init__(self) -> None:
        self.errors: OrderedDict[HostKey, str] = OrderedDict()  # the latest last
        self.are_given_up = False
        self._began_at: float | None = None  # None: not asked for, as in a shared crawl
        self._probe: Probe | None = None
        self._waits_for = ""

    def begin(self, now: float) -> None:
        """Begin, or begin anew, to wait for an answer."""
        self._began_at = now

    def observe(self, host: HostKey, pace: Pace, answer: Answer) -> None:
        """Record *answer* of *host*, which had *pace* before it."""
        if answer.error == "cancelled" or self._began_at is None:
            return
        if answer.status is not None or answer.error == "protocol":
            self.errors.pop(host, None)
        elif not pace.has_sent:
            self.errors[host] = answer.error
            self.errors.move_to_end(host)
            if len(self.errors) > MAX_SILENT:
                self.errors.popitem(last=False)

    def is_due(self, now: float, heard_at: float) -> bool:
        """Return whether it is quiet for so long that the silent hosts are given up, if nothing
        else is left. *heard_at*: when a host answered last in this run; 0: none has."""
        began_at = self._began_at
        if began_at is None or not self.errors:
            return False
        return now - max(began_at, heard_at) >= SILENCE_S

    def has_failed(self, host: HostKey) -> bool:
        return host in self.errors

    def give_up(self) -> None:
        """Give up all of them, until `end_giving_up`."""
        self.are_given_up = True

    def end_giving_up(self) -> None:
        self.are_given_up = False

    def probe_with(self, probe: Probe) -> None:
        """Let *probe* tell whether our own connection is up."""
        self._probe = probe

    async def probe(self) -> bool:
        """Return whether our own connection is up, as far as that is known."""
        return self._probe is None or await self._probe()

    def wait_for(self, what: str) -> None:
        """Note what the crawl waits for in place of a host; empty: nothing."""
        self._waits_for = what

    @property
    def waits_for(self) -> str:
        return self._waits_for

    def given_up(self, host: HostKey, pace: Pace) -> str:
        """Return the error of *host*, if it is given up, or ""."""
        return self.errors.get(host, "") if self.are_given_up and not pace.has_sent else ""

    @property
    def may_be_ours(self) -> bool:
        """Whether our own connection may be why, if no other host has answered."""
        return _OURS_PERHAPS.issuperset(self.errors.values())

    @property
    def are_inside(self) -> bool:
        """Whether all are inside addresses, which no connection to the outside is needed for."""
        return all(host_kind(host) is not AddressKind.PUBLIC for host in self.errors)
