"""What acts of operators change in the frontier of a crawl that runs.

Rule: an act may be carried out twice, because the process may die before the audit has its result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from crawler.assembly.crawl import Crawl
from crawler.config.settings import Config
from crawler.data.operator_files import Act, ActResult
from crawler.frontier import dead_letters
from crawler.frontier.records import DeadLetter, HostRecord
from crawler.frontier.sweep import Fate, Forget
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.choices import HostUnit
from crawler.model.types import Candidate, Dead, HostKey, StoreFull, StoreUnavailable
from crawler.model.url import canonical, fetch_form, host_key, registered_domain, split
from crawler.operate.live_rules import LiveRules
from crawler.operate.operator import Operator, unfinished
from crawler.operate.verbs import COUNT_S, ActRequest, WaitingCount
from crawler.policy.admission import canonical_rules, operator_refusal
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.policy.seeds import seed_url
from crawler.policy.targets import UrlTarget, read_target
from crawler.view.formats import many
from crawler.view.local import LocalView
from crawler.view.place import CrawlPlace, known_urls

if TYPE_CHECKING:  # only a crawl whose URLs are in a URL Frontier imports it
    from crawler.urlfrontier.remote_frontier import RemoteFrontier

logger = logging.getLogger(__name__)

RESULT_S: Final = 10.0
"""For how long the result of a retry is waited for, while the crawl runs."""
_LOOK_S: Final = 1.0  # between two looks for acts that were asked of other workers
_BATCH: Final = 500  # URLs added in one turn of the event loop: 5 ms


class Queues(Protocol):
    """The waiting URLs and the dead letters of a frontier, for acts."""

    def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> AsyncIterator[int]:
        """Decide about all that waits, as `frontier.sweep.Sweep.run`, step by step."""

    def put_back(
        self,
        is_chosen: Callable[[DeadLetter], bool],
        now: Callable[[], float],
        domains: Collection[str] | None = None,
    ) -> AsyncIterator[int]:
        """Put the chosen dead letters back, step by step. *domains*: the registered domains of all
        that may be chosen."""

    def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        """Forget what is kept of URLs that do not wait, step by step."""

    async def forget_unsent(self, is_meant: Callable[[str], bool]) -> None:
        """Forget links that are on the disk of this process until a server takes them. Raises
        StoreUnavailable."""

    async def carry_out(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        """Carry out *acts*, all that are left, in their order, as far as that is for this process
        to do now. *do* carries one out by the methods above, and returns how many URLs it has
        touched; *note* writes into the audit how many all processes have, when that survives a
        power cut. Return whether the audit has the results of all. Raises StoreUnavailable."""


class LocalQueues:
    """Implements Queues for a frontier in the data directory."""

    def __init__(self, crawl: Crawl, frontier: TwoTierFrontier) -> None:
        self._crawl = crawl
        self._frontier = frontier

    async def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> AsyncIterator[int]:
        for touched in self._frontier.sweep(hosts, may_concern, fate, now):
            yield touched
            await asyncio.sleep(0)

    async def put_back(
        self,
        is_chosen: Callable[[DeadLetter], bool],
        now: Callable[[], float],
        domains: Collection[str] | None = None,
    ) -> AsyncIterator[int]:
        store, robots = self._crawl.storage.store, self._crawl.loop.precheck.robots
        for some in dead_letters.retry_dead(store, self._frontier, robots, is_chosen, now):
            yield some
            await asyncio.sleep(0)

    async def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        for touched in self._frontier.forget_kept(is_meant, now):
            yield touched
            await asyncio.sleep(0)

    async def forget_unsent(self, is_meant: Callable[[str], bool]) -> None:
        """Do nothing: links go nowhere else."""

    async def carry_out(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        for act in acts:
            touched = await do(act)
            self._frontier.commit()
            await asyncio.to_thread(self._crawl.storage.store.sync)
            await note(act, touched)
        return True


class RemoteQueues:
    """Implements Queues where the URLs are in a URL Frontier: what waits there is out of reach, and
    is judged by the rules in force when it is leased."""

    def __init__(self, frontier: RemoteFrontier) -> None:
        self._frontier = frontier

    async def sweep(
        self,
        hosts: Iterable[HostKey] | None,
        may_concern: Callable[[HostKey], bool],
        fate: Callable[[Candidate], Fate],
        now: Callable[[], float],
    ) -> AsyncIterator[int]:
        logger.warning("URLs that wait in the URL Frontier are not changed: only rules apply")
        return
        yield  # so that it is a generator

    async def put_back(
        self,
        is_chosen: Callable[[DeadLetter], bool],
        now: Callable[[], float],
        domains: Collection[str] | None = None,
    ) -> AsyncIterator[int]:
        logger.warning("The dead letters of a URL Frontier are not put back")
        return
        yield  # so that it is a generator

    async def forget_kept(
        self, is_meant: Callable[[str], bool], now: Callable[[], float]
    ) -> AsyncIterator[int]:
        for touched in self._frontier.forget_kept(is_meant):
            yield touched
            await asyncio.sleep(0)

    async def forget_unsent(self, is_meant: Callable[[str], bool]) -> None:
        """Do nothing: what is not sent yet is refused when it is leased."""

    async def carry_out(
        self,
        acts: Sequence[Act],
        do: Callable[[Act], Awaitable[int]],
        note: Callable[[Act, int], Awaitable[None]],
    ) -> bool:
        for act in acts:
            await note(act, await do(act))
        return True


def queues_of(crawl: Crawl) -> Queues:
    """Return what of *crawl* acts are carried out in."""
    if crawl.leases.embedded is not None:
        return LocalQueues(crawl, crawl.leases.embedded.frontier)
    if crawl.leases.remote is not None:
        return RemoteQueues(crawl.leases.remote)
    frontier, store = crawl.leases.shared, crawl.operator_store
    assert frontier is not None
    from crawler.shared.operator_store import SharedStore  # noqa: PLC0415  # 15 ms
    from crawler.shared.owned.acts import OwnedQueues  # noqa: PLC0415  # 15 ms

    assert isinstance(store, SharedStore)
    return OwnedQueues(
        *(frontier.frontier, frontier.nodes, store, frontier.worker, frontier.outbox),
        crawl.loop.precheck.robots,
        frontier.note_acts_left,
    )


class FrontierActs:
    """Implements operator.Acts in a crawl that runs: acts are carried out one after another, in the
    background."""

    def __init__(self, crawl: Crawl, place: CrawlPlace, live_rules: LiveRules) -> None:
        self._crawl = crawl
        self._place = place
        self._queues = queues_of(crawl)
        self._store = crawl.operator_store
        self._live_rules = live_rules
        self._asked = asyncio.Event()
        self._is_all_done = False  # of the lines of the audit that were read
        self._opened = 0  # the number of the last act whose hosts the crawl may reach

    async def work(self) -> None:
        """Carry out what earlier processes left undone, then what is asked for, for ever."""
        lines_read = -1
        while True:
            try:
                lines = await self._store.audit_lines()
                if lines != lines_read or not self._is_all_done:
                    lines_read = lines
                    await self._catch_up()
            except StoreUnavailable as fault:
                if self._crawl.leases.shared is None and not isinstance(fault, StoreFull):
                    self._crawl.lifecycle.fail(fault)
                    return
                logger.debug("Acts cannot be read or written now: %s", fault)
            except Exception:
                logger.exception("Acts of operators cannot be carried out any more")
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._asked.wait()
            self._asked.clear()

    def known(self, urls: Sequence[str]) -> list[str]:
        return known_urls(self._place, urls)

    async def take(self, act: Act, undone: Act | None) -> float:
        """Put the rules in force, and wake `work`, which carries out the rest."""
        await self._live_rules.look()
        self._asked.set()
        return RESULT_S

    async def _catch_up(self) -> None:
        """Carry out the acts that are not done, unless another worker does."""
        lines = await self._store.acts()
        acts = {line.number: line for line in lines if isinstance(line, Act)}
        new = [act for number, act in acts.items() if number > self._opened]
        added = [act for act in new if act.verb == "add"]
        # Each worker keeps some claims and links, which those that carry out a purge cannot reach.
        if any(act.verb == "purge" for act in (*new, *unfinished(lines))):
            self._crawl.content.duplicates.forget_known()
        ended = {act.undoes for act in acts.values()}
        for act in new:
            if act.verb == "purge" and act.number not in ended:
                targets = list(map(read_target, act.targets))
                await self._queues.forget_unsent(partial(_is_meant, targets=targets))
        self._opened = max(acts, default=0)
        if added:
            for act in added:
                self._open_hosts(act)
            self._crawl.leases.frontier.judge_again()  # what earlier acts had added
        if open_ones := unfinished(lines):
            await self._live_rules.look()
        self._is_all_done = await self._queues.carry_out(
            open_ones, lambda act: self._do(act, acts.get(act.undoes)), self._note
        )
        if open_ones:
            self._crawl.lifecycle.wake()

    async def _note(self, act: Act, touched: int) -> None:
        await self._store.note(ActResult(self._crawl.leases.clock.now(), act.number, touched))
        logger.info("Act %d (%s): %s touched", act.number, act.verb, many(touched, "URL"))

    async def count(self, request: ActRequest) -> WaitingCount:
        return await asyncio.to_thread(count_waiting, self._place, request)

    async def _do(self, act: Act, undone: Act | None) -> int:
        verb = act.verb if undone is None else undone.verb
        if verb == "add":
            return await (self._add(act) if undone is None else self._forget_added(undone))
        if verb == "retry":
            config, now = self._crawl.settings.config, self._crawl.leases.clock.now
            return await put_dead_letters_back(self._queues, act.targets, config, now)
        if verb == "purge" and undone is not None:
            return 0  # what was forgotten is so for good
        targets = list(map(read_target, act.targets))
        if verb == "drop" and undone is not None:
            reason, now = _reason(undone), self._crawl.leases.clock.now
            dropped = self._queues.put_back(lambda letter: letter.reason == reason, now)
            return sum([some async for some in dropped])
        unit = self._crawl.settings.config.politeness.host_unit
        now, fate = self._crawl.leases.clock.now, self._fate_of(verb, act, targets)
        touched = await sweep(self._queues, targets, unit, fate, now)
        if verb == "purge":
            kept = self._queues.forget_kept(lambda url: _is_meant(url, targets), now)
            touched += sum([some async for some in kept])
        return touched

    def _fate_of(
        self, verb: str, act: Act, targets: list[UrlTarget]
    ) -> Callable[[Candidate], Fate]:
        """Return what *verb* means for a waiting URL, by the rules in force now."""
        origins = self._crawl.selection.allowed_origins
        dead = Dead(_reason(act))

        def is_meant(candidate: Candidate) -> bool:
            return _is_meant(candidate.url, targets)

        def level(candidate: Candidate) -> Fate:
            return origins.admission.level_of(candidate) if is_meant(candidate) else None

        def refuse(candidate: Candidate) -> Fate:
            return operator_refusal(origins.operator, candidate.url)

        def drop(candidate: Candidate) -> Fate:
            return dead if is_meant(candidate) else None

        def forget(candidate: Candidate) -> Fate:
            return Forget.FORGET if is_meant(candidate) else None

        return {"level": level, "refuse": refuse, "drop": drop, "purge": forget}[verb]

    async def _add(self, act: Act) -> int:
        """Add the URLs of *act* as seeds; those that a rule refuses are logged."""
        crawl = self._crawl
        self._open_hosts(act)
        admission = crawl.selection.allowed_origins.admission
        hints = Hints(is_seed=True) if act.level is None else None
        new = 0
        for some in _slices(act.targets):
            found = []
            for text in some:
                verdict = admission.candidate(
                    seed_url(text),
                    level=act.level or 0,
                    hints=hints,
                    needs_seen_test=not act.again,
                )
                if isinstance(verdict, Refusal):
                    logger.warning("%s is not added: %s", text, verdict.explain())
                else:
                    found.append(verdict)
            added = crawl.leases.frontier.add(found, crawl.leases.clock.now())
            crawl.stats.count_over_budget(added)
            new += added.new + added.undecided
            await asyncio.sleep(0)
        await crawl.leases.frontier.wait_until_durable()
        return new

    async def _forget_added(self, act: Act) -> int:
        """Forget those URLs of *act* that still wait, but none that pages have led to."""
        added = {fetch_form(seed_url(text)) for text in act.targets}
        hosts = [read_target(split(url).hostname) for url in added if url is not None]

        def fate(candidate: Candidate) -> Fate:
            is_added = candidate.url in added and not candidate.depth
            return Forget.FORGET if is_added else None

        unit = self._crawl.settings.config.politeness.host_unit
        return await sweep(self._queues, hosts, unit, fate, self._crawl.leases.clock.now)

    def _open_hosts(self, act: Act) -> None:
        """Let the crawl reach the hosts of the URLs of *act*, which a person has typed."""
        origins = self._crawl.selection.allowed_origins
        urls = [url for text in act.targets if (url := fetch_form(seed_url(text)))]
        origins.open_hosts(origins.places_outside_scope(urls))
        for url in urls:
            origins.allow_start_url(url)


async def put_failed_back(crawl: Crawl) -> None:
    """Put all dead letters back at the start of a run. Raises StoreUnavailable."""
    now = crawl.leases.clock.now
    if crawl.leases.shared is None:
        touched = await put_dead_letters_back(queues_of(crawl), (), crawl.settings.config, now)
        logger.info("This run fetches only what failed: %d URLs are put back", touched)
        return
    levels = len(crawl.settings.config.frontier.level_shares)
    operator = Operator(crawl.operator_store, levels, now, _CarriedOutLater())
    while not (crawl.lifecycle.failure or crawl.lifecycle.is_stopping):
        try:
            await operator.act(ActRequest("retry", all=True), "only=failed")
        except StoreUnavailable as fault:  # also before the first connection
            logger.debug("What failed cannot be put back yet: %s", fault)
            await asyncio.sleep(_LOOK_S)
        else:
            logger.info("This run fetches only what failed: that is put back")
            return


class _CarriedOutLater:
    """Implements operator.Acts at the start of a worker: all workers look into the audit."""

    async def count(self, request: ActRequest) -> WaitingCount:
        raise NotImplementedError

    async def take(self, act: Act, undone: Act | None) -> float:
        return 0.0

    def known(self, urls: Sequence[str]) -> list[str]:
        return []


async def put_dead_letters_back(
    queues: Queues, targets: Sequence[str], config: Config, now: Callable[[], float]
) -> int:
    """Put back the dead letters of *targets*, as `chosen_letters`. Returns how many."""
    is_chosen, domains = chosen_letters(targets, config)
    return sum([some async for some in queues.put_back(is_chosen, now, domains)])


def chosen_letters(
    targets: Sequence[str], config: Config
) -> tuple[Callable[[DeadLetter], bool], set[str] | None]:
    """Return which dead letters a retry of the URLs *targets*, or of all if there are none, is
    about, and the registered domains of their URLs; None: all."""
    if not targets:
        return lambda letter: True, None
    same = canonical_rules(config)
    urls = [url for each in targets if (url := fetch_form(seed_url(each)))]
    wanted = {canonical(url, same) for url in urls}

    def is_chosen(letter: DeadLetter) -> bool:
        return canonical(letter.candidate.url, same) in wanted

    return is_chosen, {registered_domain(split(url).hostname) for url in urls}


class WaitingUrls(Protocol):
    """The waiting URLs of a crawl, as they are read beside its processes."""

    def hosts(self) -> Iterator[tuple[HostKey, HostRecord]]: ...

    def waiting(self, host: HostKey) -> Iterator[Candidate]: ...


def count_waiting(place: CrawlPlace, request: ActRequest) -> WaitingCount:
    """Return how many waiting URLs are of the targets of *request*, of those that can be looked at
    in COUNT_S, whether the crawl runs or not. Raises CrawlerError."""
    if place.redis is None:
        with LocalView(place.path, place.store) as view:
            return count_urls(view.reader, request)
    from crawler.view.owned import open_owned_reader  # noqa: PLC0415  # 30 ms

    with place.redis() as address, open_owned_reader(address, place.config) as reader:
        return count_urls(reader, request)


def count_urls(frontier: WaitingUrls, request: ActRequest) -> WaitingCount:
    """Count as `count_waiting` in *frontier*."""
    targets = list(map(read_target, request.targets))
    counted = looked_at = 0
    ends_at = time.monotonic() + COUNT_S
    for candidate in _waiting_of_any(targets, frontier):
        if candidate is not None:
            looked_at += 1
            counted += _is_meant(candidate.url, targets)
        if time.monotonic() > ends_at:
            return WaitingCount(counted, looked_at, is_part=True)
    return WaitingCount(counted, looked_at, is_part=False)


def _waiting_of_any(
    targets: Sequence[UrlTarget], frontier: WaitingUrls
) -> Iterator[Candidate | None]:
    """Yield the waiting URLs of hosts that *targets* may concern, and None before each host."""
    names = [target.host for target in targets]
    hosts: Iterable[HostKey]
    if all(name is not None for name in names):
        found = {(name, registered_domain(name)) for name in names if name is not None}
        hosts = {HostKey(each) for pair in found for each in pair}
    else:
        hosts = (host for host, _ in frontier.hosts())
    for host in hosts:
        yield None
        if any(each.may_concern(host) for each in targets):
            yield from frontier.waiting(host)


async def sweep(
    queues: Queues,
    targets: Sequence[UrlTarget],
    unit: HostUnit,
    fate: Callable[[Candidate], Fate],
    now: Callable[[], float],
) -> int:
    """Decide about the waiting URLs of *targets*. Returns how many were touched."""
    named = [target.host for target in targets]
    hosts = None
    if all(name is not None for name in named):
        hosts = [host_key(name, unit) for name in named if name is not None]

    def may_concern(host: HostKey) -> bool:
        return any(target.may_concern(host) for target in targets)

    return sum([some async for some in queues.sweep(hosts, may_concern, fate, now)])


def _is_meant(url: str, targets: Sequence[UrlTarget]) -> bool:
    return any(target.matches(url) for target in targets)


def _reason(act: Act) -> str:
    return f"dropped by {act.by} (act {act.number})"


def _slices(texts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(texts), _BATCH):
        yield texts[at : at + _BATCH]
