"""One process of a simulated crawl: the parts of a real one, called in the order in which Scrapy's
adapters call them.

Rule: no decision is made here. What decides is the product's own: frontier, loop, admission,
robots.txt, rules. Between any two steps the process may be killed, and with it all that no
committed batch holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from crawler.config.arguments import Arguments
from crawler.config.settings import Config
from crawler.data.allowed_origins import AllowedOrigins, CurrentRules
from crawler.data.local_stores import (
    LocalClaims,
    LocalPatternStats,
    RobotsRecords,
    Soft404Records,
)
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import Frontier, FrontierLimits, LeaseRules
from crawler.frontier.shards import Shards
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.loop.life import Life, Lives
from crawler.loop.links import LinkSelection
from crawler.loop.loop import Durability, Loop, loop_limits
from crawler.loop.precheck import OtherWorkers, Precheck, ProbeResult, Probes, SoftErrorVerdict
from crawler.loop.slots import CHECKS, SlotLimits, Slots
from crawler.loop.visit import LaterVisit, seen_of
from crawler.model.choices import HostUnit
from crawler.model.page import Flaw, Link, Page, Parsed
from crawler.model.types import (
    Added,
    Answer,
    Claim,
    CrawlerError,
    HostKey,
    Outcome,
    Purpose,
    PutBack,
    Rest,
)
from crawler.model.url import fetch_form
from crawler.page.challenge import Headers, Signatures
from crawler.page.soft404 import looks_like_error
from crawler.policy.operator_rules import OperatorRules, RuleBudgets, read_rules
from crawler.policy.politeness import Uplink, UplinkLimits, is_retry_status
from crawler.policy.priority import CashPrioritizer, Prioritizer, cash_of_links
from crawler.policy.redirects import FollowRedirect, TooManyRedirects
from crawler.policy.robots_cache import RobotsCache, RobotsFetchResult
from crawler.policy.scope import SeedHosts
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.silent_hosts import SILENCE_S, SilentHosts
from crawler.policy.validators import ConditionFault
from crawler.simulate.disk import Disk
from crawler.simulate.run_log import Hit, RunLog
from crawler.simulate.servers import Reply, Servers
from crawler.simulate.web import Content

_AT_ONCE_S: Final = 0.001  # until it is asked again, where something may be leased now
_MOST_REFUSED: Final = 1000  # leases in one turn: what is written in it is searched again and again
_CHALLENGE_HEADERS: Final[Headers] = {b"Cf-Mitigated": [b"challenge"]}
_DUPLICATE_S: Final = 0.05  # between two looks whether the page with the same content is finished


class ProcessKilled(Exception):
    """The process is killed at the time *at*."""

    def __init__(self, at: float) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is compared: settings, and what makes the parts of a crawl. Each is called as the class
    of its name, and a test or an experiment may put another in its place."""

    name: str = "default"
    config: Config = field(default_factory=Config)
    loop: Callable[..., Loop] = Loop
    precheck: Callable[..., Precheck] = Precheck
    robots: Callable[..., RobotsCache] = RobotsCache
    links: Callable[..., LinkSelection] = LinkSelection
    prioritizer: Callable[[int], Prioritizer] = CashPrioritizer
    frontier: Callable[..., TwoTierFrontier] = open_frontier
    rules_at_start: Callable[[str, int], OperatorRules] = read_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What of a crawl is no policy: how fast it works, and where its limits are."""

    concurrency: int = 8
    frontier: FrontierLimits = field(default_factory=FrontierLimits)
    uplink: UplinkLimits = field(default_factory=UplinkLimits)
    connect_s: float = 0.02  # mean time to connect
    processing_s: float = 0.05  # mean time from an answer to its record
    callback_errors: float = 0.0  # share of pages whose callback raises


@dataclass(slots=True, eq=False)
class Transfer:
    """One request under way; for the loop it is the request."""

    life: Life
    hit: Hit | None = None
    reply: Reply | None = None


class _Figures:
    """Implements loop.LoopFigures. Nothing is judged by it but how long all hosts are silent."""

    def __init__(self) -> None:
        self.heard_at = 0.0

    def count(self, key: str, by: int = 1) -> None: ...

    def count_added(self, added: Added) -> None: ...

    def count_begun(self, host: HostKey, now: float) -> None: ...

    def count_completed(self, life: Life, outcome: Outcome) -> None: ...

    def count_rest(self, host: HostKey, answers: Sequence[Answer], rest: Rest, now: float) -> None:
        if any(each.status is not None for each in answers):
            self.heard_at = now

    def count_condition_fault(self, host: HostKey, fault: ConditionFault) -> None: ...

    def count_later_visit(self, visit: LaterVisit) -> None: ...


class _ContentReservations:
    """Implements loop.Reservations: of two equal pages under way one waits for the other."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, int] = {}
        self._by_lease: dict[int, bytes] = {}

    def reserve(self, digest: bytes, lease_id: int) -> bool:
        """Return whether *digest* is reserved for this lease now."""
        if self._by_digest.setdefault(digest, lease_id) != lease_id:
            return False
        self._by_lease[lease_id] = digest
        return True

    def release(self, lease_id: int) -> None:
        digest = self._by_lease.pop(lease_id, None)
        if digest is not None:
            del self._by_digest[digest]


class _NoReservations:
    """Implements loop.Reservations for a memory of bodies without a limit."""

    def release(self, lease_id: int) -> None: ...


class _Syncs:
    """Implements loop.Durability: one sync for all pages that wait, at intervals."""

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self._waiting: list[Callable[[CrawlerError | None], None]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def when_synced(self, finish: Callable[[CrawlerError | None], None]) -> None:
        if not self._waiting:
            self._request()
        self._waiting.append(finish)

    def take(self) -> list[Callable[[CrawlerError | None], None]]:
        waiting, self._waiting = self._waiting, []
        return waiting


class Process:
    """A crawl from its start to its end or its crash, on a virtual clock."""

    local_frontier: TwoTierFrontier
    _shards: Shards | None = None  # of the crawl, if it is shared

    def __init__(
        self,
        disk: Disk,
        policy: Policy,
        machine: Machine,
        servers: Servers,
        log: RunLog,
        *,
        seeds: Sequence[str],
        now: float,
        random: Random,
        steps: int,
    ) -> None:
        """*steps*: after so many it is killed; 0: never. It may be killed while it opens. Raises
        ProcessKilled, and DataDirError if a file is missing."""
        self.now, self.log = now, log
        self._disk, self._machine, self._servers, self._seeds = disk, machine, servers, seeds
        self._random, self._steps_left = random, steps
        self.number = len(log.starts)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tick = 0  # events of the same time come in the order in which they were made
        self._wake_at = inf  # when it asks for a lease again, if nothing happens before
        self._may_lease = False  # something that is no call of the frontier may allow a lease
        self._is_silence_checked = False  # or will be, and nothing was completed since
        self._is_checking = self._are_seeds_added = False
        self._uncommitted: list[Outcome] = []
        self._started_at = now
        config = self._config = policy.config
        arguments = Arguments(seeds="simulated")
        budgets = RuleBudgets()
        disk.sync_store(now)  # as RocksDB does with what it recovers
        disk.store.watch(self._step)
        levels = len(config.frontier.level_shares)
        self.origins = AllowedOrigins(
            *(config, arguments, disk.store, disk.key_seed, now),
            rule_budgets=budgets,
            prioritizer=policy.prioritizer(levels),
        )
        self.origins.set_operator_rules(policy.rules_at_start(disk.rules_text, levels))
        self._turns, self._figures = FrontierTurns(), _Figures()
        self._signatures = Signatures()
        self._contents = _ContentReservations()
        self._syncs = _Syncs(self._sync_later)
        slots = Slots(SlotLimits(concurrency=machine.concurrency), self._allow_lease)
        rules = CurrentRules(self.origins, log.log, self._figures.count, self.clock)
        self.frontier = frontier = self._open(policy, rules, slots)
        disk.store.watch(None)
        records = self.local_frontier.records
        self._claims = LocalClaims(records)
        self.patterns = patterns = LocalPatternStats(records, config.patterns, shards=self._shards)
        self.origins.seed_limits.open(records, self._shards)
        robots = policy.robots(
            RobotsRecords(records), config.identity.user_agent_name, config.robots
        )
        probes = Probes(
            Soft404Records(records),
            lambda: random.randbytes(12).hex(),
            config.content,
        )
        precheck = policy.precheck(
            *(robots, self.origins.robots_candidate, patterns, self.origins.seed_limits, probes),
            self.origins.overrides_of,
            self._other_workers(),
        )
        self.loop = policy.loop(
            frontier=frontier,
            lives=Lives(),
            origins=self.origins,
            precheck=precheck,
            links=policy.links(
                scope=self.origins,
                pattern_stats=patterns,
                figures=self._figures,
                settings=config.links,
                arguments=arguments,
            ),
            uplink=Uplink(machine.uplink),
            silent_hosts=SilentHosts(),
            slots=slots,
            limits=loop_limits(config),
            outcomes=self,
            bodies=_NoReservations(),
            contents=(self._contents,),
            durability=self._durability(),
            figures=self._figures,
            random=random,
            now=self.clock,
        )
        self.loop.silent_hosts.begin(now)
        self._schedule(now, self._add_seeds)

    def _open(self, policy: Policy, rules: LeaseRules, slots: Slots) -> Frontier:
        """Open the frontier of the crawl, and `local_frontier`, the one of this process. Raises as
        the constructor."""
        disk, politeness = self._disk, policy.config.politeness
        are_grouped = politeness.host_unit is HostUnit.ADDRESS
        self.local_frontier = policy.frontier(
            disk.folder,
            dataclasses.replace(self._machine.frontier, address_wait_s=politeness.address_wait_s),
            self.now,
            lease_rules=rules,
            background=self._turns,
            store=disk.store,
            runs=disk.runs,
            addresses=self._servers if are_grouped else None,
        )
        return self.local_frontier

    def _other_workers(self) -> OtherWorkers | None:
        """Return what has the other hosts of the crawl; None: nothing."""
        return None

    def _durability(self) -> Durability | None:
        return self._syncs if self._config.archive.fsync else None

    def clock(self) -> float:
        return self.now

    def append(self, outcome: Outcome) -> None:
        """Implements loop.OutcomeSink, as `FrontierWork`: it is logged when its verdict is."""
        self._uncommitted.append(outcome)

    # Events, in the order of their times.

    @property
    def next_at(self) -> float | None:
        """When its next event is; None: it has none."""
        at = min(self._events[0][0], self._wake_at) if self._events else self._wake_at
        return at if at < inf else None

    def advance(self) -> None:
        """Do the next event, then all that it has made possible. Raises ProcessKilled."""
        self.log.events += 1
        if not self._events or self._wake_at < self._events[0][0]:
            self.now, self._wake_at = max(self.now, self._wake_at), inf
            self._may_lease = True
        else:
            at, _, call, arguments = heappop(self._events)
            self.now = max(self.now, at)
            call(*arguments)
        self.end_turn()

    def end_turn(self) -> None:
        """Take leases and commit, until there is nothing to do before the next event, or so many
        were refused that the others have to wait for it. Raises ProcessKilled."""
        most_events = self.log.events + _MOST_REFUSED
        while (self._may_lease or self._turns.is_due) and self.log.events < most_events:
            self._may_lease = False
            while self._is_lease_due() and self.log.events < most_events:
                if not self._lease():
                    self._is_lease_due()  # the timer: what was due is moved, or admitted
                    break
            self._commit()
            if self._is_idle() and self.frontier.end_dry_round(self.now):
                self._allow_lease()
        self._schedule_silence_check()

    def put_in_force(self, text: str, at: float) -> None:
        """Let the rules of *text* count from *at* on. Raises ProcessKilled."""
        self.now = max(self.now, at)
        rests = self.loop.put_in_force(read_rules(text, len(self._config.frontier.level_shares)))
        self._step()
        self.frontier.end_rests(rests, self.now)
        self._allow_lease()
        self.end_turn()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self._is_idle() and self.frontier.is_over()

    def _is_idle(self) -> bool:
        return self._are_seeds_added and not len(self.loop.lives)

    def _schedule(self, at: float, call: Callable[..., None], *arguments: Any) -> None:
        self._tick += 1
        heappush(self._events, (at, self._tick, call, arguments))

    def _allow_lease(self) -> None:
        """Let `end_turn` ask for leases, though no call of the frontier may have changed that."""
        self._may_lease = True

    def _step(self) -> None:
        """The process may be killed here."""
        self._steps_left -= 1
        if self._steps_left == 0:
            raise ProcessKilled(self.now)

    def _commit(self) -> None:
        """End the turn of the event loop: what was staged becomes durable. Work of the frontier
        may allow leases."""
        if not self._turns.is_due:
            return
        for number, _ in enumerate(self._turns.steps(self.local_frontier, self.clock)):
            self._may_lease |= number > 0
            if self._uncommitted:  # in the same step, as no line may be of what is lost
                logged, self._uncommitted = self._uncommitted, []
                self.log.log(logged)
            self._step()

    def _add_seeds(self) -> None:
        """Add the seeds, as each start does."""
        urls = [url for each in self._seeds if (url := fetch_form(each))]
        self.origins.set_seeds(SeedHosts(TermsOfSeeds(), urls))
        found, _ = self.origins.admission.select_seeds(urls)
        self._step()
        self.frontier.add(found, self.now)
        self._are_seeds_added = True
        self._allow_lease()

    # A lease is taken, as by the scheduler.

    def _is_lease_due(self) -> bool:
        """Return whether a lease may be taken now, and set the timer for when one may be."""
        loop, self._wake_at = self.loop, inf
        if not loop.slots.free_standings() or loop.is_crowded():
            return False
        wake_at = loop.wake_at()
        if wake_at is not None:
            self._wake_at = max(wake_at, self.now + _AT_ONCE_S)
            if wake_at <= self.now:
                return True
        return (
            self.local_frontier.undecided() > 0
        )  # if nothing else is due, these are decided at once

    def _lease(self) -> bool:
        """Take a lease and begin what it is for. Returns False if there is none."""
        loop, slots = self.loop, self.loop.slots
        life = loop.next()
        if life is None:
            return False
        self._step()
        if life.is_refused:
            self.log.events += 1
            self.log.note(self.now, f"refused {life.plan.url} {life.reason}")
            self._complete(life)
            return True
        transfer = Transfer(life)
        loop.lives.hand_out(life, transfer)
        self._step()
        loop.begin(life)
        slots.begin(transfer, life.lease.pace.standing)
        if not self._is_checking:
            self._is_checking = True
            self._schedule(self.now + slots.limits.slow_after_s, self._check_slots)
        self._step()
        wait_s = self._random.expovariate(1.0 / self._machine.connect_s)
        self._schedule(self.now + min(wait_s, 1.0), self._send, transfer)
        return True

    def _schedule_silence_check(self) -> None:
        """Set a timer for silent hosts, if nothing else is left."""
        loop = self.loop
        if self._is_silence_checked or not loop.silent_hosts.errors:
            return
        if loop.waits_for_silent_hosts():
            self._is_silence_checked = True
            since = max(self._started_at, self._figures.heard_at)
            self._schedule(max(since + SILENCE_S, self.now + 1.0), self._check_silent_hosts)

    def _check_silent_hosts(self) -> None:
        """Give up hosts that never answered if nothing else is left, as scheduler/silence.py."""
        loop, silent = self.loop, self.loop.silent_hosts
        if silent.are_given_up and not self.frontier.counts().left:
            silent.end_giving_up()
        is_idle = loop.waits_for_silent_hosts() and loop.may_lease()
        is_due = silent.are_given_up or silent.is_due(self.now, self._figures.heard_at)
        if not is_idle or not is_due:
            return
        rests: dict[HostKey, float] = {}
        for left in self.local_frontier.hosts_left():
            if left is None or not loop.may_give_up_silent(left[0]):
                return
            rests[left[0]] = left[1]
        silent.give_up()
        self._step()
        self.frontier.end_rests(rests, self.now)

    def _check_slots(self) -> None:
        """Look which fetches are slow. `Slots` counts CHECKS of them in the time that makes one
        slow."""
        slots = self.loop.slots
        for _ in range(CHECKS):
            slots.check(slots.limits.check_interval_s)
        self._is_checking = len(slots) > slots.slow_count
        if self._is_checking:
            self._schedule(self.now + slots.limits.slow_after_s, self._check_slots)

    # Its request is sent, and answered, as by downloader and middlewares.

    def _send(self, transfer: Transfer) -> None:
        loop, life = self.loop, transfer.life
        if not loop.may_send(life):
            self._end_transfer(transfer)
            self._complete(life)
            return
        self._step()
        loop.slots.set_waiting(loop.slots.progress_of(transfer), for_host=True)
        life.note_fetched()
        left_s = loop.limits.total_timeout_s - (self.now - life.began_at)
        url, host = life.plan.url, life.candidate.host
        reply = self._servers.answer(host, url, self.now, left_s)
        transfer.reply = reply
        transfer.hit = hit = Hit(
            *(host, url, self.now, reply.end_at, reply.status, reply.error, reply.content),
            retry_after_s=reply.retry_after_s,
            head_at=reply.head_at,
            process=self.number,
            round=life.lease.round if life.is_of_own_url else 0,
            is_challenge=reply.is_challenge,
        )
        self.log.hits.append(hit)
        self.log.note(self.now, f"request {url}")
        status = reply.status
        if status is not None and (reply.retry_after is not None or is_retry_status(status)):
            self._schedule(reply.head_at, self._head, transfer)
        self._schedule(reply.end_at, self._answer, transfer)

    def _head(self, transfer: Transfer) -> None:
        hit, reply = transfer.hit, transfer.reply
        assert hit is not None and reply is not None and reply.status is not None
        self.loop.note_head(transfer.life, reply.status, reply.retry_after)
        hit.is_head_read = True
        self._step()

    def _answer(self, transfer: Transfer) -> None:
        life, reply = transfer.life, transfer.reply
        assert reply is not None
        life.end(self.now)
        self.log.note(self.now, f"response {life.plan.url} {reply.status} {reply.error}")
        size = 1000 if reply.content.status == 200 else 100
        self.loop.slots.progress_of(transfer).received_bytes += size
        if reply.status is None:
            answer = self.loop.failure(life, reply.error)
        else:
            answer = self.loop.answer(
                life,
                reply.status,
                error=reply.error,
                retry_after=reply.retry_after,
                body_bytes=size,
                challenge=self._signatures.challenge_of(
                    reply.status,
                    _CHALLENGE_HEADERS if reply.is_challenge else {},
                    reply.content.text.encode(),
                ),
            )
        self._step()
        match life.plan.purpose:
            case Purpose.ROBOTS:
                self.loop.robots_answered(life, _robots_result(life.plan.url, reply), answer)
                self._step()
                self._end_transfer(transfer)
                self._complete(life)
            case Purpose.PROBE:
                noted = self.loop.probe_answered(life, answer)
                self._step()
                self._probed(life, reply, noted)
                self._end_transfer(transfer)
                self._complete(life)
            case _:
                self._page_answered(transfer, reply, answer)

    def _probed(self, life: Life, reply: Reply, answer: Answer | None) -> None:
        if answer is not None and answer.error == "cancelled":
            life.put_back()
            return
        result = ProbeResult(None)
        if reply.status is not None and not reply.error:
            text = reply.content.text
            digest = sha1(text.encode(), usedforsecurity=False).digest()
            result = ProbeResult(reply.status, digest, text=text if reply.status == 200 else "")
        self.loop.probed(life, result)
        self._step()

    def _page_answered(self, transfer: Transfer, reply: Reply, answer: Answer) -> None:
        loop, life = self.loop, transfer.life
        is_retried = loop.answered(life, answer)
        self._step()
        if is_retried or reply.status is None:
            self._end_transfer(transfer)
            self._complete(life)
            return
        if life.is_challenged:
            life.archive(self._disk.append_record())
            self._end_transfer(transfer)
            self._complete(life)
            return
        location = reply.content.location.encode() or None
        decision = loop.redirected(life, reply.status, location, is_wall=False)
        self._step()
        if isinstance(decision, FollowRedirect | TooManyRedirects):
            life.archive(self._disk.append_record())
            self._end_transfer(transfer)
            self._complete(life)
            return
        self._end_transfer(transfer)
        wait_s = self._random.expovariate(1.0 / self._machine.processing_s)
        self._schedule(self.now + wait_s, self._page, life, reply)

    def _end_transfer(self, transfer: Transfer) -> None:
        """End the transfer, as `FrontierDownloader.transfer` does."""
        self.loop.slots.end(transfer)
        if not isinstance(transfer.life.verdict, PutBack):
            self.loop.release(transfer.life)
        self._step()

    # Its page is processed, as by the pipelines.

    def _page(self, life: Life, reply: Reply) -> None:
        loop, content = self.loop, reply.content
        body = content.text.encode()
        assert reply.status is not None
        page = Page(
            url=life.plan.url,
            status=reply.status,
            content_type="text/html",
            body=body,
            depth=life.candidate.depth,
            lease_id=life.lease.id,
            media_type="text/html" if content.is_html else "application/xml",
            is_sitemap=life.candidate.is_sitemap,
        )
        if body:
            digest = sha1(body, usedforsecurity=False).digest()
            original = self._claims.claim(digest)
            if original is not None and original.url == page.url and not original.record:
                original = None
            if original is None and not self._contents.reserve(digest, life.lease.id):
                self._schedule(self.now + _DUPLICATE_S, self._page, life, reply)
                return
            page = replace(page, digest=digest, duplicate_of=original)
        elif page.is_answered:
            page = replace(page, flaw=Flaw.EMPTY)
        if page.is_answered and not page.flaw and not page.is_copy:
            page = self._parsed(page, content, life)
        life.note_page(page)
        self._step()
        if self._random.random() < self._machine.callback_errors:
            self.log.callback_errors.append((self.now, life.candidate.url))
            life.note_error("error in a callback or pipeline: by the simulation")
        claim = None
        if page.digest and page.duplicate_of is None:
            claim = Claim(
                page.digest, page.url, "", self.now, status=404 if page.flaw else page.status
            )
        record = self._disk.append_record()
        life.archive(record, None if claim is None else replace(claim, record=record))
        life.note_seen(seen_of(page, self._config.revisits.revisit_change))
        self._step()
        links = loop.links.select(
            *(page.outlinks, None, page, self.now),
            origin=life.candidate,
            cash=cash_of_links(life.candidate.cash, len(page.outlinks)),
        )
        if not links and life.candidate.seed_url:
            life.note_dead_end(loop.links.dead_end(page, page.links, life.candidate))
        life.add_links(links)
        self._complete(life)

    def _parsed(self, page: Page, content: Content, life: Life) -> Page:
        links = tuple([Link(url, content.link_kind) for url in content.links])
        if not content.is_html:
            parsed = Parsed(parser="sitemap", links=links)
            return replace(page, parsed=parsed, outlinks=links, links=links)
        parsed = Parsed(parser="html", text=page.body.decode(), links=links)
        page = replace(page, parsed=parsed, text=parsed.text, outlinks=links, links=links)
        if not looks_like_error("", page.text):
            return page
        result = ProbeResult(page.status, page.digest, "", page.text)
        probes, host = self.loop.precheck.probes, life.candidate.host
        match probes.judge(page.url, host, result, self.now):
            case SoftErrorVerdict.PROBE:
                life.put_back()
                return replace(page, outlinks=(), links=(), archive=False, flaw=Flaw.SOFT_404)
            case SoftErrorVerdict.SOFT_404:
                return replace(page, flaw=Flaw.SOFT_404)
        return page

    def _complete(self, life: Life) -> None:
        self.loop.complete(life)
        self._is_silence_checked = False
        self._allow_lease()
        self._step()

    def _sync_later(self) -> None:
        self._schedule(self.now + self._config.archive.fsync_every_s, self._sync)

    def _sync(self) -> None:
        """Sync the records, finish the pages that waited for it, and sync that."""
        self._disk.sync_records()
        for finish in self._syncs.take():
            finish(None)
            self._step()
        self._commit()  # so `end_turn` has no call of the frontier to see
        self._allow_lease()
        self._disk.sync_store(self.now)


def _robots_result(url: str, reply: Reply) -> RobotsFetchResult:
    if reply.status is None or reply.error:
        return RobotsFetchResult(url, error=reply.error)
    target = fetch_form(reply.content.location, url) if reply.content.location else None
    return RobotsFetchResult(url, reply.status, target=target, body=reply.content.text.encode())
