"""What is shown of a crawl in tables, for people and as JSON: hosts and why they are not contacted
now, dead letters, what operators have done, workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import exp, inf
from typing import Final

import msgspec

from crawler.config.settings import Config, PolitenessSettings
from crawler.data.operator_files import Act, ActResult
from crawler.frontier.records import DeadLetter
from crawler.loop.life import FetchStage, OpenFetch
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, HostKey, HostWork, Pace
from crawler.policy.forecast import MOST_HOSTS, spans_left
from crawler.policy.operator_rules import OperatorRules, Overrides, read_rules
from crawler.policy.pacing import at_once, factor_of, stage_of
from crawler.policy.politeness import PAUSE_AFTER_CHALLENGES, is_left, overridden
from crawler.shared.codec import WorkerRecord
from crawler.view.budgets import DomainBudgetView, DomainQuery, DomainRow, limits_in_force
from crawler.view.formats import FAR, many, span
from crawler.view.hosts import HostQuery, HostSort, success_of, usual_fetch_s
from crawler.view.port import CrawlView, HostState, UnfinishedLease

MAX_ROWS: Final = 10_000
"""The most rows that a crawl that runs shows at once."""


class HostRow(msgspec.Struct, frozen=True):
    """One host of the frontier."""

    host: str
    waiting: int  # URLs
    place: str  # empty | front | active | resting
    next_at: float  # epoch seconds, from which it may be contacted
    gap_s: float  # its last rest
    crawl_delay_s: float
    failures: int  # in a row
    pauses: int  # in a row
    admitted: int  # URLs ever admitted
    stage: str  # of its pace: first | probes | paced | parallel; empty: not asked yet, or not paced
    base_s: float  # how long its fetches take while it is hardly used; 0: not known
    factor: float  # times its last fetch that it rests, if nothing asks for more
    at_once: int  # requests
    share: float  # of the time that its server works for us: 0 to 1, by its mean fetch
    refused_interval_s: float  # it refused to be asked more often; 0: it did not
    because: str  # why it is not contacted now; empty: nothing keeps it from being
    rest_because: str  # why its rests are as long as they are
    address: str = ""  # that it was fetched from last, or is to be next; empty: not known
    fetch_s: float = 0.0  # how long one takes; 0: not known
    left_s: float | None = None  # until all that waits is fetched; None: not known
    fetches: int = 0  # of pages, and of a robots.txt if that failed
    failed: int = 0  # of these, also by a 404 and its like
    success: float | None = None  # the share that did not fail; None: it was not asked yet
    pages: int = 0  # of status 2xx
    bytes: int = 0  # of bodies
    last_failure: str = ""  # its kind: timeout, status_503...; empty: none failed
    last_status: int | None = None  # of that; None: there was no answer
    failed_at: float = 0.0  # epoch seconds


def host_rows(view: CrawlView, query: HostQuery, config: Config) -> list[HostRow]:
    """Return the hosts of *query*. Raises ConfigError if it asks for one that is not known."""
    rules, now = _rules(view, config), view.now()
    states = view.hosts(query)
    if query.host is not None and not states:
        raise ConfigError(f"the frontier has no host {query.host}")
    left_s = _left_s(states, rules, config, now)
    found = [
        _host(state, rules, config, now, left) for state, left in zip(states, left_s, strict=True)
    ]
    if query.sort is HostSort.END:
        # They were chosen by their last rests, and this is what is expected of the next ones.
        found.sort(key=lambda row: -(row.left_s or 0.0))
    return found


def _left_s(
    states: Sequence[HostState], rules: OperatorRules, config: Config, now: float
) -> Iterator[float | None]:
    """Yield how long each host takes for what waits there, some at a time."""

    def settings_of(host: HostKey) -> PolitenessSettings:
        return overridden(config.politeness, rules.of_host(host))

    for at in range(0, len(states), MOST_HOSTS):
        work = [
            HostWork(each.host, each.waiting, each.rest_until, each.pace, is_leased=False)
            for each in states[at : at + MOST_HOSTS]
        ]
        yield from spans_left(work, settings_of, now)


def domain_rows(view: CrawlView, query: DomainQuery, config: Config) -> list[DomainRow]:
    """Return the registered domains of *query*."""
    arguments = view.last_start().arguments
    limits = limits_in_force(config, arguments, _rules(view, config))
    shown = DomainBudgetView(limits, view.degrees(), view.now())
    return [shown.row(name, record) for name, record in view.domains(query)]


def _rules(view: CrawlView, config: Config) -> OperatorRules:
    """Return the rules, none if there is an error in them: `scrapy rules` says which."""
    levels = len(config.frontier.level_shares)
    with suppress(ConfigError):
        return read_rules(view.rules(), levels)
    return read_rules("", levels)


def next_contact(
    rest_until: float, overrides: Overrides, rules: OperatorRules, now: float
) -> float:
    """Return when a host, or a URL, may be contacted whose host rests until *rest_until*, and
    for which the operator set *overrides*; FAR if it is paused without end."""
    pauses = (overrides.paused_until(now), rules.paused_until(now))
    return max(rest_until, *(min(until, FAR) for until in pauses if until is not None), 0.0)


def _host(
    state: HostState,
    rules: OperatorRules,
    config: Config,
    now: float,
    left_s: float | None = None,
) -> HostRow:
    overrides = rules.of_host(state.host)
    settings = overridden(config.politeness, overrides)
    pace = _with_cap(state.pace, overrides.crawl_delay_s, config.politeness)
    return HostRow(
        host=state.host,
        waiting=state.waiting,
        place=state.place,
        next_at=next_contact(state.rest_until, overrides, rules, now),
        gap_s=state.pace.gap_s,
        crawl_delay_s=state.pace.crawl_delay_s,
        failures=state.pace.failures,
        pauses=state.pace.pauses,
        admitted=state.admitted,
        stage="" if pace.pacing is None else stage_of(pace.pacing),
        base_s=0.0 if pace.pacing is None else pace.pacing.base_s,
        factor=factor_of(pace.pacing, settings),
        at_once=at_once(pace, settings),
        share=_share(pace),
        refused_interval_s=0.0 if pace.pacing is None else pace.pacing.interval_s,
        because=_because(state, rules, config.politeness, now),
        rest_because=_rest_because(pace, overrides.delay_s, config.politeness),
        address=state.address,
        fetch_s=usual_fetch_s(state.pace),
        left_s=left_s,
        fetches=state.tally.fetches,
        failed=state.tally.failures,
        success=success_of(state.tally) if state.tally.fetches else None,
        pages=state.tally.pages,
        bytes=state.tally.bytes,
        last_failure=state.tally.last_failure,
        last_status=state.tally.last_status or None,
        failed_at=float(state.tally.failed_at),
    )


def _share(pace: Pace) -> float:
    """Return which share of a fetch and the rest after it the fetch is."""
    if not pace.fetches:
        return 0.0
    fetch_s = exp(pace.log_fetch_s)
    return fetch_s / (fetch_s + max(pace.gap_s, pace.crawl_delay_s))


_CLOCKS_DIFFER_S: Final = 1.0  # those of a server and of this machine


def _because(
    state: HostState, rules: OperatorRules, politeness: PolitenessSettings, now: float
) -> str:
    """Return why the host is not contacted now."""
    overrides = rules.of_host(state.host)
    if overrides.refuse:
        return "a rule refuses it"
    if overrides.paused_until(now) is not None:
        return "a rule pauses it"
    if rules.paused_until(now) is not None:
        return "the crawl is paused"
    if is_left(state.pace):
        return f"left, as it does not welcome us: {PROGRAM} frontier retry puts it back"
    if state.rest_until <= now:
        return ""
    if state.waits_for_address:
        return f"waits for its turn at {state.address or 'its address, which is looked up'}"
    pace = _with_cap(state.pace, overrides.crawl_delay_s, politeness)
    if pace.unwelcome >= PAUSE_AFTER_CHALLENGES:
        return f"paused, as it does not welcome us: {many(pace.unwelcome, 'challenge')} in a row"
    if pace.pauses:
        return f"paused after {many(pace.failures, 'failure')} in a row"
    if state.rest_until - now > max(pace.gap_s, pace.crawl_delay_s) + _CLOCKS_DIFFER_S:
        return "rests as its answer asked (Retry-After)"
    rest = span(max(pace.gap_s, pace.crawl_delay_s))
    return f"rests {rest}: {_rest_because(pace, overrides.delay_s, politeness)}"


def _with_cap(pace: Pace, by_rule_s: float | None, politeness: PolitenessSettings) -> Pace:
    """Return *pace* with as much of its Crawl-delay as is kept."""
    longest_s = max(politeness.max_crawl_delay_s, by_rule_s or 0.0)
    return msgspec.structs.replace(pace, crawl_delay_s=min(pace.crawl_delay_s, longest_s))


def _rest_because(pace: Pace, delay_s: float | None, politeness: PolitenessSettings) -> str:
    """Return why the host rests as long as it does between two fetches. *delay_s*: by a rule."""
    if pace.failures:
        return f"backs off after {many(pace.failures, 'failure')} in a row"
    if pace.crawl_delay_s and pace.crawl_delay_s >= pace.gap_s:
        return "its robots.txt asks for it (Crawl-delay)"
    if delay_s is not None:
        return "a rule asks for it"
    pacing, factor = pace.pacing, factor_of(pace.pacing, politeness)
    if pacing is not None and pacing.interval_s and pace.gap_s < pacing.interval_s:
        return f"it refused to be asked more often than every {span(pacing.interval_s)}"
    if pacing is not None and pacing.step:
        base, requests = span(pacing.base_s), at_once(pace, politeness)
        beside = f", {requests} at once" if requests > 1 else ""
        stays = f"its fetches stay near the {base} of a server hardly used"
        return f"{stays}: {factor:g} times a fetch{beside}"
    if pace.gap_s > politeness.min_delay_s and factor:
        took = span(pace.gap_s / factor)
        return (
            f"an answer took {took} and it rests {factor:g} times that, or it failed not long ago"
        )
    return "the shortest rest" if pace.gap_s else "not fetched from yet"


class DeadLetterRow(msgspec.Struct, frozen=True):
    """One dead letter."""

    url: str
    reason: str
    at: float  # epoch seconds
    attempts: int  # its tries
    depth: int


def dead_letter_rows(letters: Iterable[DeadLetter]) -> list[DeadLetterRow]:
    return [
        DeadLetterRow(
            each.candidate.url, each.reason, each.at, each.candidate.attempts, each.candidate.depth
        )
        for each in letters
    ]


class ActRow(msgspec.Struct, frozen=True):
    """An act of an operator, with what became of it."""

    number: int
    at: float  # epoch seconds
    by: str
    verb: str
    targets: str
    value: str
    touched: int | None  # URLs; None: it touches none, or is not done yet
    state: str  # in force | undone | failed


def act_rows(lines: Iterable[Act | ActResult]) -> list[ActRow]:
    """Return the acts of an audit, the latest first."""
    acts: list[Act] = []
    results: dict[int, ActResult] = {}
    undone: set[int] = set()
    for line in lines:
        if isinstance(line, ActResult):
            results[line.of] = line
        else:
            acts.append(line)
            undone.add(line.undoes)
    rows = []
    for act in reversed(acts):
        result = results.get(act.number)
        failed = result is not None and result.failed
        state = "failed" if failed else "undone" if act.number in undone else "in force"
        touched = None if result is None or failed else result.touched
        targets = " ".join(act.targets[:20])
        verb = f"undo {act.undoes}" if act.undoes else act.verb
        rows.append(
            ActRow(act.number, act.at, act.by, verb, targets, act.value[:200], touched, state)
        )
    return rows


HUNG_S: Final = 3.0  # as the loop, which says of an answer that took so long that its host hung
HUNG_TIMES: Final = 3.0
HUNG_BYTES_PER_S: Final = 1000.0


class FetchRow(msgspec.Struct, frozen=True):
    """One URL that is fetched now, or was when its process ended."""

    url: str  # that is asked for: also a robots.txt, or a probe, before the page
    host: str
    begun_at: float  # epoch seconds; of one that is not sent yet, when it was leased
    seconds: float  # since then
    bytes: int | None  # of its body, so far; None: not known
    stage: str  # beginning | fetching | storing | cut off; empty: not told yet
    is_hung: bool
    usual_s: float  # how long a fetch of its host takes; 0: not known
    worker: str  # of a shared crawl, that holds it; empty: not shared, or not held any more


def fetch_rows(
    view: CrawlView, config: Config, own: Sequence[OpenFetch] | None = None, host: str = ""
) -> list[FetchRow]:
    """Return what is fetched now, of *host* if it is given, the longest first. *own*: how far each
    fetch is, as the process of a crawl that is not shared knows; None: it was not asked. Workers of
    a shared crawl announce it."""
    now, told = view.now(), own or []
    if view.crawl.is_shared:
        told = [
            each for worker in view.workers() if worker.is_alive(now) for each in worker.fetches
        ]
    known = {each.key: each for each in told}
    leases = [each for each in view.leases() if host in ("", each.candidate.host)]
    longest_s = config.fetch.total_timeout_s if own is None and not view.crawl.is_shared else inf
    rows = [_fetch(each, known.get(each.candidate.key), longest_s, now) for each in leases]
    return sorted(rows, key=lambda row: (-row.seconds, row.url))


def _fetch(
    lease: UnfinishedLease, told: OpenFetch | None, longest_s: float, now: float
) -> FetchRow:
    """Return the row of *lease*. *longest_s*: one of which nothing is told is hung after so
    long."""
    begun_at = told.begun_at if told is not None and told.begun_at else lease.taken_at
    seconds = max(0.0, now - begun_at)
    is_hung = lease.is_held and (
        seconds > longest_s
        if told is None
        else told.stage is FetchStage.FETCHING and is_hung_fetch(seconds, told.bytes, lease.usual_s)
    )
    stage = "" if told is None else str(told.stage)
    return FetchRow(
        url=told.url if told is not None and told.url else lease.candidate.url,
        host=lease.candidate.host,
        begun_at=begun_at,
        seconds=seconds,
        bytes=None if told is None else told.bytes,
        stage=stage if lease.is_held else "cut off",
        is_hung=is_hung,
        usual_s=lease.usual_s,
        worker=lease.worker,
    )


def is_hung_fetch(seconds: float, received_bytes: int, usual_s: float) -> bool:
    """Return whether a fetch hangs: it has taken 3 s, and three times as long as its host usually
    takes, and has brought less than 1 kB a second."""
    is_late = seconds >= max(HUNG_S, HUNG_TIMES * usual_s)
    return is_late and received_bytes < HUNG_BYTES_PER_S * seconds


class WorkerRow(msgspec.Struct, frozen=True):
    """One worker of a shared crawl, by its last record."""

    name: str
    host: str  # the machine
    pid: int
    state: str  # starting | working | stopping | silent
    pages: int
    pages_per_s: float  # since it began to read pages; 0 if its clock is ahead of the server's
    bytes: int
    errors: int
    leases: int
    outbox: int  # links on its disk
    shards: int  # that it owns
    heard_at: float  # epoch seconds


def worker_rows(records: Sequence[WorkerRecord], now: float) -> list[WorkerRow]:
    return [_worker(record, now) for record in records]


def _worker(record: WorkerRecord, now: float) -> WorkerRow:
    ran_s = record.at - record.started
    return WorkerRow(
        name=record.name,
        host=record.host,
        pid=record.pid,
        state=record.state if record.is_alive(now) else "silent",
        pages=record.pages,
        pages_per_s=record.pages / ran_s if ran_s > 0 else 0.0,
        bytes=record.bytes,
        errors=record.errors,
        leases=record.leases,
        outbox=record.outbox,
        shards=record.shards,
        heard_at=record.at,
    )
