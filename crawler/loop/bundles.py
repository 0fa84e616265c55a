"""Bundles: URLs of a host that were leased together, as the user allows several requests to it at
once. They are asked for one after another, without waiting for each answer.

Rule: a request of a bundle is begun with the pace that the answers before it have left. When that
lets no other be asked for at once, as after trouble, what is left is put back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import takewhile

from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.frontier.port import Frontier
from crawler.loop.life import Life
from crawler.model.types import HostKey, Lease, Pace, PutBack, Rest, Standing
from crawler.policy.pacing import at_once, bundle_size, spacing_s


@dataclass(slots=True, eq=False)
class LeaseBundle:
    """What is left of one bundle."""

    host: HostKey
    pace: Pace
    unused: deque[Lease]  # no fetch has begun under them
    lives: list[Life] = field(default_factory=list)  # that are not released
    begun_at: float = 0.0  # of its first request; 0: none was sent
    next_at: float = 0.0  # the next request is not sent before
    is_filed: bool = False  # it is known when that is
    is_stopped: bool = False  # nothing else of it is sent


class Bundles:
    """The bundles of a crawl. Bound: the leases that are open."""

    def __init__(
        self,
        frontier: Frontier,
        politeness_of: Callable[[HostKey], PolitenessSettings],
        politeness_of_url: Callable[[str], PolitenessSettings],
    ) -> None:
        self._frontier = frontier
        self._politeness_of = politeness_of
        self._politeness_of_url = politeness_of_url
        self._of_host: dict[HostKey, LeaseBundle] = {}
        # A heap: when the next URL of each may be asked for.
        self._spaced: list[tuple[float, HostKey]] = []

    def size(self, host: HostKey, pace: Pace) -> int:
        """Return how many URLs of *host* are leased together."""
        if pace.pacing is None or pace.pacing.at_once == 1:
            return 1
        return bundle_size(pace, self._politeness_of(host))

    def first_of(self, leases: Sequence[Lease], now: float) -> Lease:
        """Begin the bundle of *leases*, and take the first. It ends before a URL that a rule gives
        a rest of its own."""
        first = leases[0]
        host = first.candidate.host
        bundle = self._of_host[host] = LeaseBundle(host, first.pace, deque(leases))
        together = takewhile(self._may_be_beside_others, leases)
        self._give_back(bundle, max(1, sum(1 for _ in together)), now)
        return self._take(bundle, now)

    def _may_be_beside_others(self, lease: Lease) -> bool:
        return at_once(lease.pace, self._politeness_of_url(lease.candidate.url)) > 1

    def next(self, now: float, standings: Sequence[Standing]) -> Lease | None:
        """Take a lease whose turn has come; of a host of *standings*, which have free slots."""
        while self._spaced and self._spaced[0][0] <= now:
            bundle = self._of_host.get(self._spaced[0][1])
            if bundle is not None and bundle.pace.standing not in standings:
                break
            at, _ = heappop(self._spaced)
            if bundle is None or at != bundle.next_at:
                continue  # it is over
            bundle.is_filed = False
            # If it is busy, it is filed again when one of its fetches ends.
            if bundle.unused and not self._is_busy(bundle):
                return self._take(bundle, now)
        return None

    def _take(self, bundle: LeaseBundle, now: float) -> Lease:
        lease = bundle.unused.popleft()
        bundle.next_at = now + spacing_s(bundle.pace, self._politeness_of(bundle.host))
        self._file(bundle)
        return replace(lease, pace=bundle.pace)

    def _file(self, bundle: LeaseBundle) -> None:
        if bundle.unused and not bundle.is_filed:
            bundle.is_filed = True
            heappush(self._spaced, (bundle.next_at, bundle.host))

    def wake_at(self, standings: Sequence[Standing]) -> float | None:
        """Return when to call `next` again; None: no time is known before a fetch ends."""
        if not self._spaced:
            return None
        at, host = self._spaced[0]
        bundle = self._of_host.get(host)
        return at if bundle is None or bundle.pace.standing in standings else None

    def add(self, life: Life) -> None:
        """Note that *life* has a lease of a bundle, if it has."""
        if (bundle := self._of_host.get(life.candidate.host)) is not None:
            bundle.lives.append(life)

    def has(self, life: Life) -> bool:
        """Return whether other URLs of its host may be fetched beside that of *life*."""
        return self._bundle_of(life) is not None

    def are_fetched(self, host: HostKey) -> bool:
        """Return whether URLs of a bundle of *host* are under way."""
        bundle = self._of_host.get(host)
        return bundle is not None and bool(bundle.lives)

    def turn_at(self, life: Life, now: float) -> float:
        """Return when the host of *life*, whose request is sent now, was asked first in this
        turn."""
        if (bundle := self._bundle_of(life)) is None:
            return now
        bundle.begun_at = bundle.begun_at or now
        return bundle.begun_at

    def note_released(self, life: Life, pace: Pace, now: float) -> None:
        """Let the others of the bundle of *life*, whose host was released and has *pace*, go on
        with that, or put them back."""
        if (bundle := self._bundle_of(life)) is None:
            return
        self._file(bundle)
        bundle.pace = pace
        bundle.lives.remove(life)
        for other in bundle.lives:
            other.note_pace(pace)
        if at_once(pace, self._politeness_of(bundle.host)) == 1:
            self.stop(bundle.host, now)
        elif not bundle.unused:
            self.give_back(bundle.host, now)

    def stop(self, host: HostKey, now: float) -> None:
        """Send nothing else of the bundle of *host*, though it may be handed out already."""
        if (bundle := self._of_host.get(host)) is not None:
            bundle.is_stopped = True
            self.give_back(host, now)

    def is_stopped(self, life: Life) -> bool:
        """Return whether the request of *life* is not to be sent any more."""
        bundle = self._bundle_of(life)
        return bundle is not None and bundle.is_stopped

    def give_back_all(self, now: float) -> None:
        """Put all URLs back that are not asked for yet."""
        for host in list(self._of_host):
            self.give_back(host, now)

    def give_back(self, host: HostKey, now: float) -> None:
        """Put the URLs of *host* back that are not asked for yet."""
        if (bundle := self._of_host.get(host)) is not None:
            self._give_back(bundle, 0, now)
            if not bundle.lives:
                del self._of_host[host]

    def _give_back(self, bundle: LeaseBundle, kept: int, now: float) -> None:
        """Put all but the first *kept* unused leases back."""
        while len(bundle.unused) > kept:
            lease = bundle.unused.pop()
            self._frontier.release(lease, Rest(0.0, bundle.pace, "unused"), now)
            self._frontier.finish(lease, PutBack(is_first=True), now)

    def _bundle_of(self, life: Life) -> LeaseBundle | None:
        bundle = self._of_host.get(life.candidate.host)
        return bundle if bundle is not None and life in bundle.lives else None

    def _is_busy(self, bundle: LeaseBundle) -> bool:
        """Return whether as many requests to its host are under way as may be."""
        return len(bundle.lives) >= at_once(bundle.pace, self._politeness_of(bundle.host))
