"""The interfaces of the frontier and of its store. One suite tests the guarantees over every
implementation (tests/contract)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from crawler.model.choices import LaterVisits
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    BorrowedTurn,
    Candidate,
    HostKey,
    HostWork,
    Lease,
    LinkSource,
    NotItsTurn,
    Pace,
    Rest,
    Standing,
    Verdict,
)
from crawler.policy.budgets import BudgetRules
from crawler.policy.operator_rules import Budgets, RuleBudgets
from crawler.policy.refusal import Refusal
from crawler.policy.rounds import RoundCaps, RoundProgress

FRONTIER: Final = "frontier"  # the folder of the records
SEEN: Final = "seen"  # the folder of the keys of all URLs ever admitted

PerHost = Callable[[HostKey, Pace], int]
"""How many URLs of a host, which has that pace, may be fetched at once."""


def one(host: HostKey, pace: Pace) -> int:
    """Let each host be asked for one URL at once."""
    del host, pace
    return 1


class Frontier(Protocol):
    """Holds every URL until it is finished. *now* is epoch seconds, and never goes back.

    1. A URL added is leased again and again until it is finished; done without a next
       visit, it is never leased again.
    2. Never two unreleased leases on one host, but for those that one call took of it, a bundle;
       and none before the host's rest is over: across eviction and restart too. The same of an
       address, if hosts are grouped by it, but for hosts that have waited for it as long as they
       may.
    3. A result under a lease that is no longer held returns False and changes nothing.
    4. Each call is atomic: after a crash all of it has happened, or nothing. It is durable when
       `wait_until_durable`, awaited after it, returns. A process that crashes before that repeats
       what it did: a page is finished after its links.
    5. Among due hosts of one standing, higher levels get more turns, and none starves.
    6. The cost of a call grows with hosts or URLs by a logarithm at most.
    """

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        """Admit the URLs not seen before, as far as budgets allow; the others wait for these. The
        seen test is part of the call. A robots.txt that another host waits for goes before all URLs
        of its host. *at_once*: say of most of those that are new that they are; else they may all
        be undecided until later. *source*: the page whose links they are, which count for budgets;
        None: they are no links."""

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
        host: HostKey | None = None,
    ) -> list[Lease]:
        """Take URLs of up to *limit* hosts, all of them due: of hosts of the first of *standings*,
        then of the next. Hosts of other standings keep their turns. Of a host up to *per_host* URLs
        of its turn, one at least; they are one after another in what is returned. *host*: of this
        one, if it is due, though it is not its turn."""

    def update(self, found: Iterable[Candidate], now: float) -> int:
        """Say of URLs when they are fetched next, whatever was known of them: when their
        `not_before` has come, the earliest first; never again if that is NEVER. Returns how many it
        was not done for: those that are leased, whose verdicts decide."""

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        """End the fetch: the host may be leased after the rest, and after those of the others of a
        bundle; the pace that was given last is its own. Returns False if the lease is not held."""

    def note_trouble(self, lease: Lease | BorrowedTurn, rest: Rest, now: float) -> None:
        """Note, when the head of an answer with trouble has come, a fetch begins whose host asks
        for more than it is known for, or several requests were sent, that the host rests at least
        *rest* from now on, whatever becomes of the fetch and of this process. It is written, or
        sent, when this returns, or with the lease; the lease, or the turn, stays as it is."""

    async def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        """Take the turn of *host* for requests that are over by *until*, though no URL of it may
        wait, and it may never have been seen. Returns at once, or within 2 s if it is another
        process that has the host.

        Not while it is leased, borrowed or at rest, its address is not free, or it is left. What
        the operator says of it is the caller's to ask. Until the turn is given back the host is
        neither leased nor borrowed, its address counts as used, and it counts for no round. It is
        durable when this returns that the host rests until then, and after that as after a fetch
        that a crash has cut off: so a crash, or a turn that is never given back, leaves a rest and
        nothing else."""

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        """End *turn*: the host may be leased after *rest*, whose pace is its own from then on.
        Returns False if that may be later, as the turn was over before, or its shard has another
        owner by now. A rest that has become longer meanwhile, as by `note_trouble`, is never
        shortened."""

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        """Apply *verdict* to the URL, whose page is durable. Returns False if the lease is not
        held. A lease not yet released is released with its host's last gap."""

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        """Return when to call `lease` again with *standings*: may be early, never late. Returns
        None if nothing waits, or if the frontier calls back when something can be leased."""

    def counts(self) -> Counts:
        """Return the counters. O(1)."""

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return up to *limit* hosts with waiting URLs, those with most left to do first. The cost
        does not grow with the hosts. If there are more than some hundred, some with more left to do
        may be missing until their next fetch."""

    def sampled_paces(self) -> Sequence[Pace]:
        """Return the paces of some hosts that were not chosen by them, nor by what is left there;
        100 at most."""

    def judge_again(self) -> None:
        """Judge waiting URLs by the lease rules, which have changed, and put back what earlier ones
        refused and they admit."""

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        """End *rests* now, by host: those that end at that time or before. They were for a pause,
        after a lease under which no request was sent."""

    def may_begin(self, lease: Lease) -> bool:
        """Return whether a fetch may begin now under *lease*: it is durable, and the fetch is over
        before it can end."""

    def is_over(self) -> bool:
        """Return whether no URL waits, none is leased and none can be added. Call it only after
        all seeds and start requests were added."""

    def end_dry_round(self, now: float) -> bool:
        """End the round if it has begun and nothing more may be leased in it, and return whether it
        did. Call it as `is_over`, and when no lease is open."""

    def round_progress(self) -> RoundProgress | None:
        """Return where the crawl is in its rounds; None: this run has none."""

    def is_congested(self) -> bool:
        """Return whether the backlog of added URLs is full, so that bulk adds should wait."""

    async def wait_until_durable(self) -> None:
        """Return when every call made before it is durable. Raises StoreUnavailable if that cannot
        come any more."""


class HostAddresses(Protocol):
    """The addresses that the names of hosts lead to."""

    def addresses(self, host: HostKey) -> Sequence[str] | None:
        """Return the addresses of *host*, the preferred one first; none if it has none, or they are
        not to be looked up here. Returns None if they are looked up now: then
        `TwoTierFrontier.note_known` is called at the end of that. It never waits."""


class AddressLeases(Protocol):
    """Which addresses this process may fetch from, where other processes do so too."""

    def may_use(self, address: str) -> bool:
        """Return whether hosts of *address* may be leased now. If not, it is asked for, and
        `TwoTierFrontier.note_usable` is called when they may. It never waits."""

    def note_rest(self, address: str, rest_s: float) -> None:
        """Note that *address* rests for *rest_s* from now on, whatever becomes of this process."""


class LeaseRules(Protocol):
    """The rules of this start, by which a frontier judges waiting URLs."""

    @property
    def are_complete(self) -> bool:
        """Whether the rules are complete. Before that, nothing is judged and nothing is leased."""

    @property
    def later_visits(self) -> LaterVisits:
        """Which pages that were visited before are visited in this run. The others are kept for one
        that does, and the crawl is over without them."""

    @property
    def visits_per_day(self) -> float | None:
        """The budget of visits of pages without a date; None: that of FrontierLimits."""

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Return why *candidate* may not be leased, or None if it may."""

    def on_refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        """Report *urls* as refused. They are kept until a start has rules that admit them."""

    def on_readmitted(self, urls: int) -> None:
        """Report how many *urls* that earlier starts refused wait again."""


class DomainRanks(Protocol):
    """Ranks of domains that were given to the crawl."""

    def of_domain(self, name: str) -> int | None:
        """Return the rank of a registered domain, from 1, the best; None: it has none."""


class ReadableStore(Protocol):
    """A sorted map from bytes to bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None."""

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to *limit* pairs with start <= key < stop, in order of key."""


class OrderedStore(ReadableStore, Protocol):
    """All that the two-tier frontier needs of a disk for its records."""

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        """Put each value, and delete each key with None, atomically even if the process dies.
        Raises StoreUnavailable, and then nothing was written."""


class DurableStore(OrderedStore, Protocol):
    """An ordered store on disk, as a crawl uses it. A write is kept if the process dies."""

    def sync(self) -> None:
        """Make all earlier writes survive a power cut. May run in a thread while other threads read
        and write. Raises StoreUnavailable."""

    def close(self) -> None:
        """Close the store, so that another process may open it. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierLimits:
    """The limits of a frontier."""

    level_shares: tuple[float, ...] = (60.0, 30.0, 10.0)  # turns of each level, best first
    max_active_hosts: int = 20_000  # hosts in memory, about 4 kB each with their heads
    # Records of hosts in memory beside those of active ones, 1 kB each; of twice as many, half go.
    # The links of a page lead to ten hosts, and a read takes 4 us.
    known_hosts: int = 20_000
    # The same of registered domains: how many URLs of each were admitted, 150 bytes each.
    known_domains: int = 20_000
    # Places for keys of URLs found lately, 8 bytes each, a power of two: most links of a page are
    # to one of these.
    recent_keys: int = 131_072
    head_urls: int = 32  # URLs of a turn: the head of a host in memory
    # URLs are admitted together, which is cheaper the more are of one host: when so many have come
    # (400 bytes each), when the first came so long ago, or when a slot is free for hosts that
    # answer and nothing else may be leased.
    max_arrived: int = 32_768
    max_arrived_s: float = 3.0
    max_new_keys: int = 65_536  # of seen URLs in memory (100 bytes each) before a run is written
    chunk_urls: int = 64  # URLs read at once from a queue: two heads
    # URLs for which the runs of the seen set are to be searched. They are searched for when there
    # are so many, the oldest has waited so long, or nothing else may be leased.
    max_undecided: int = 131_072
    max_undecided_s: float = 60.0
    min_gap_s: float = 1.0  # least rest of a host whose lease a dead process left open
    # Bounds of the fetch that a dead process may have left under such a lease, for the host's rest.
    gap_factor: float = 10.0
    max_gap_s: float = 300.0
    longest_fetch_s: float = 30.0  # with all requests under its lease; of a borrowed turn, too
    # Of these requests: as many of the host's own rests follow.
    most_requests: int = 1
    max_retry_after_s: float = 86_400.0  # the longest Retry-After that is remembered of a host
    max_rest_s: float = 86_400.0  # no rest is longer
    # Longest that a host waits for others of its address, beyond its own rest.
    address_wait_s: float = 600.0
    # A host that rests longer leaves memory: at 10 x the fetch time most gaps are below 30 s.
    evict_rest_s: float = 60.0
    max_front_reads: int = (
        16  # front entries read for one lease: bounds the call when most hosts rest
    )
    due_slice: int = 64  # due entries moved in one call (12 us each)
    recovered_slice: int = 1000  # hosts, or leases, filed in one write when a frontier opens
    judged_slice: int = 1000  # refused URLs handled in one call: 10 ms
    # Of turns of hosts, for pages that are visited again while others wait; and of the turns of
    # each host.
    visit_share: float = 0.1
    visits_per_day: float | None = None  # of pages without a date; None: each in 30 days
    # In which a page changes once, by the guess before it was visited again.
    usual_change_days: float = 30.0
    max_urls_per_domain: int | None = None
    max_urls_per_host: int | None = None
    budgets: BudgetRules | None = None  # of domains a round; None: there are none
    ranks: DomainRanks | None = None  # that go before those by links
    rule_budgets: RuleBudgets | None = None  # that go before these four
    lists_urls: bool = False  # all of them are kept in a table, done ones too
    rounds: RoundCaps | None = None  # None: what may be leased is leased

    @property
    def shares(self) -> tuple[float, ...]:
        """The turns of each level, and of one more behind them: of pages that are visited again."""
        again = sum(self.level_shares) * self.visit_share / (1.0 - self.visit_share)
        return (*self.level_shares, again)

    @property
    def longest_address_rest_s(self) -> float:
        """How long an address rests of which a fetch may be under way elsewhere."""
        return self.longest_fetch_s + self.rest_after_s(self.longest_fetch_s, self.min_gap_s)

    def rest_after_s(self, fetched_s: float, gap_s: float) -> float:
        """Return how long a host rests that was asked for *fetched_s*, an unknown number of times,
        and rests *gap_s* after one request."""
        own_s = min(self.gap_factor * fetched_s, self.most_requests * self.max_gap_s)
        return max(own_s, self.most_requests * gap_s)

    def budgets_of(self, host: str, domain: str) -> Budgets:
        """Return how many URLs of *host* and of its registered *domain* may be admitted."""
        by_settings = (self.max_urls_per_host, self.max_urls_per_domain)
        if self.rule_budgets is None or not self.rule_budgets.are_any:
            return by_settings
        return self.rule_budgets.of(host, domain, by_settings)
