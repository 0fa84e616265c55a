"""Acting on a crawl that runs: what its operators ask for is changed in its rules and frontier.

Rule: the frontier's part of an act may be done twice, because the process may die before the audit
has its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawler.assembly.build import crawl_of, rules_path
from crawler.assembly.crawl import Crawl, EmbeddedFrontier
from crawler.crawl.interactive import is_interactive
from crawler.data.operator_files import AUDIT, Act, Audit, RulesFile, Touched
from crawler.frontier import dead_letters
from crawler.frontier.records import DeadLetter
from crawler.frontier.sweep import Fate
from crawler.model.types import Candidate, ConfigError, CrawlerError, Dead, HostKey
from crawler.model.url import fetch_form, host_key, split
from crawler.operate.operator import LocalStore, Operator, OperatorStore, is_work, unfinished
from crawler.operate.server import ApiServer, read_tokens
from crawler.operate.verbs import ActRequest
from crawler.policy.admission import operator_refusal
from crawler.policy.priority import Hints
from crawler.policy.scope import Refusal
from crawler.policy.seeds import seed_url
from crawler.policy.targets import UrlTarget, read_target

logger = logging.getLogger(__name__)

_BATCH: Final = 500  # URLs added in one turn of the event loop: 5 ms


class Control:
    """The extension through which operators act on a crawl."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_interactive(crawler.settings):
            raise NotConfigured
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._server: ApiServer | None = None
        self._working: asyncio.Future[None] | None = None
        crawler.signals.connect(self._open, signals.spider_opened)
        crawler.signals.connect(self._close, signals.spider_closed)

    async def _open(self) -> None:
        """Listen, and carry out what was asked for before. A crawl goes on without its socket."""
        crawl = crawl_of(self._crawler)
        if crawl.leases.embedded is None:
            return
        config, data = crawl.settings.config, crawl.storage.data.path
        store = LocalStore(RulesFile(rules_path(config, data)), Audit(data / AUDIT))
        work = FrontierActs(crawl, crawl.leases.embedded, store)
        operator = Operator(
            store,
            len(config.frontier.level_shares),
            crawl.leases.clock.now,
            work.count,
            work.take,
        )
        self._working = asyncio.ensure_future(work.work())
        self._server = ApiServer(data, operator.act)
        try:
            await self._server.open_socket()
            if config.operator.http:
                tokens = config.operator.http_tokens
                await self._server.open_port(
                    *address_of(config.operator.http), read_tokens(Path(tokens)) if tokens else {}
                )
        except (OSError, ConfigError) as refused:
            logger.warning("Commands and requests cannot reach this crawl: %s", refused)

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.close()
        if self._working is not None:
            self._working.cancel()


class FrontierActs:
    """Carries out acts in the frontier of the crawl, one after another, in the background."""

    def __init__(self, crawl: Crawl, embedded: EmbeddedFrontier, store: OperatorStore) -> None:
        self._crawl = crawl
        self._frontier = embedded.frontier
        self._store = store
        self._waiting: asyncio.Queue[tuple[Act, Act | None]] = asyncio.Queue()

    async def work(self) -> None:
        """Carry out what earlier processes left undone, then what is asked for, for ever."""
        lines = await self._store.acts()
        acts = {line.number: line for line in lines if isinstance(line, Act)}
        for act in acts.values():
            if act.verb == "add":
                self._open_hosts(act)
        for act in unfinished(lines):
            self._waiting.put_nowait((act, acts.get(act.undoes)))
        while True:
            act, undone = await self._waiting.get()
            try:
                touched = await self._do(act, undone)
                await self._store.note(Touched(self._crawl.leases.clock.now(), act.number, touched))
                logger.info("Act %d (%s): %d URLs touched", act.number, act.verb, touched)
            except CrawlerError as error:
                self._crawl.lifecycle.fail(error)
                return

    async def take(self, act: Act, undone: Act | None) -> None:
        """Put the rules in force, and carry *act* out, which undoes *undone*."""
        await self._crawl.live_rules.look()
        if is_work(act, undone):
            self._waiting.put_nowait((act, undone))

    async def count(self, request: ActRequest) -> int:
        """Return how many waiting URLs are of the targets of *request*."""
        targets = list(map(read_target, request.targets))
        counted = 0

        def fate(candidate: Candidate) -> None:
            nonlocal counted
            counted += any(target.matches(candidate.url) for target in targets)

        await self._sweep(targets, fate)
        return counted

    async def _do(self, act: Act, undone: Act | None) -> int:
        verb = act.verb if undone is None else undone.verb
        if verb == "add":
            return await self._add(act) if undone is None else 0
        targets = list(map(read_target, act.targets))
        if verb == "drop" and undone is not None:
            return await self._put_back(_reason(undone))
        return await self._sweep(targets, self._fate_of(verb, act, targets))

    def _fate_of(
        self, verb: str, act: Act, targets: list[UrlTarget]
    ) -> Callable[[Candidate], Fate]:
        """Return what *verb* means for a waiting URL, by the rules in force now."""
        origins, prioritizer = (
            self._crawl.selection.allowed_origins,
            self._crawl.selection.prioritizer,
        )
        dead = Dead(_reason(act))

        def is_meant(candidate: Candidate) -> bool:
            return any(target.matches(candidate.url) for target in targets)

        def level(candidate: Candidate) -> Fate:
            if not is_meant(candidate):
                return None
            said = origins.said_of(candidate.url).level
            hints = Hints(depth=candidate.depth, is_seed=not candidate.depth)
            return prioritizer.level(hints) if said is None else said

        def refuse(candidate: Candidate) -> Fate:
            return operator_refusal(origins.operator, candidate.url)

        def drop(candidate: Candidate) -> Fate:
            return dead if is_meant(candidate) else None

        return {"level": level, "refuse": refuse, "drop": drop}[verb]

    async def _sweep(self, targets: list[UrlTarget], fate: Callable[[Candidate], Fate]) -> int:
        """Decide about what waits of *targets*, a step in each turn of the event loop. Returns how
        many URLs were touched."""
        unit = self._crawl.settings.config.politeness.host_unit
        named = [target.host for target in targets]
        hosts = None
        if all(name is not None for name in named):
            hosts = [host_key(name, unit) for name in named if name is not None]

        def may_concern(host: HostKey) -> bool:
            return any(target.may_concern(host) for target in targets)

        touched = 0
        now = self._crawl.leases.clock.now
        for some in self._frontier.sweep(hosts, may_concern, fate, now):
            touched += some
            await asyncio.sleep(0)
        self._crawl.lifecycle.wake()
        return touched

    async def _add(self, act: Act) -> int:
        """Add the URLs of *act* as seeds; those that a rule refuses are logged."""
        crawl = self._crawl
        self._open_hosts(act)
        admission = crawl.selection.allowed_origins.admission
        level = crawl.selection.prioritizer.level(Hints(is_seed=True))
        new = 0
        for some in _slices(act.targets):
            found = []
            for text in some:
                verdict = admission.candidate(
                    seed_url(text),
                    level=level if act.level is None else act.level,
                    needs_seen_test=not act.again,
                )
                if isinstance(verdict, Refusal):
                    logger.warning("%s is not added: %s", text, verdict.explain())
                else:
                    found.append(verdict)
            added = crawl.leases.frontier.add(found, crawl.leases.clock.now())
            crawl.stats.count_over_budget(added)
            new += added.new
            await asyncio.sleep(0)
        await crawl.leases.frontier.wait_until_durable()
        crawl.lifecycle.wake()
        return new

    def _open_hosts(self, act: Act) -> None:
        """Let the crawl reach the hosts of the URLs of *act*, which a person has typed."""
        origins = self._crawl.selection.allowed_origins
        urls = [url for text in act.targets if (url := fetch_form(seed_url(text)))]
        origins.add_seed_hosts({split(url).hostname for url in urls})
        for url in urls:
            origins.allow_start_url(url)

    async def _put_back(self, reason: str) -> int:
        """Put the dead letters with *reason* back."""
        crawl = self._crawl

        def is_chosen(letter: DeadLetter) -> bool:
            return letter.reason == reason

        robots, now = crawl.selection.robots, crawl.leases.clock.now
        total = 0
        for some in dead_letters.retry_dead(
            crawl.storage.store, self._frontier, robots, is_chosen, now
        ):
            total += some
            await asyncio.sleep(0)
        crawl.lifecycle.wake()
        return total


def _reason(act: Act) -> str:
    return f"dropped by {act.by} (act {act.number})"


def _slices(texts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(texts), _BATCH):
        yield texts[at : at + _BATCH]


def address_of(written: str) -> tuple[str, int]:
    """Return host and port of CRAWLER_HTTP."""
    host, _, port = written.rpartition(":")
    return host, int(port)
