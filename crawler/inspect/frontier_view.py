"""What `scrapy frontier` shows and does, for the frontier of a data directory or a shared one.

Rule: the settings choose the frontier in the same way as for a crawl.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import msgspec
from scrapy.settings import BaseSettings

from crawler.archive.cdxj import indexed_urls
from crawler.assembly.build import data_dir, rules_path
from crawler.config.settings import Config, PolitenessSettings
from crawler.data import crawl_requests, snapshots
from crawler.data.crawl_requests import SnapshotRequest
from crawler.data.data_dir import (
    OUTCOMES,
    SPIDER,
    WARC,
    DataDir,
    lock_owner,
    read_format,
)
from crawler.data.local_stores import RobotsRecords
from crawler.data.operator_files import AUDIT, Act, Audit, OperatorFiles, RulesFile, Touched
from crawler.data.outcomes import read_outcomes
from crawler.data.snapshots import Snapshot
from crawler.frontier import dead_letters
from crawler.frontier.open import frontier_limits, open_frontier
from crawler.frontier.port import FRONTIER, SEEN
from crawler.frontier.reader import (
    FrontierReader,
    RecountedCounter,
    correct_counters,
    count_again,
)
from crawler.frontier.rocks_store import OpenedStore, RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.seen_repair import RebuiltSeen, repair_seen
from crawler.inspect.why import next_contact
from crawler.model.counts import Counts
from crawler.model.types import ConfigError, DataDirError, HostKey, Pace
from crawler.model.url import fetch_form
from crawler.operate import client
from crawler.operate.acts import (
    chosen_letters,
    count_waiting,
    count_waiting_on_disk,
    put_dead_letters_back,
)
from crawler.operate.operator import LOOKED_AT, Operator
from crawler.operate.verbs import ActAnswer, ActRequest, WaitingCount
from crawler.policy.admission import identity_of_urls
from crawler.policy.operator_rules import OperatorRules, read_rules
from crawler.policy.robots_cache import RobotsCache
from crawler.report.figures import (
    many,
    number,
    plain,
    rate,
    since,
    size,
    span,
    until,
)
from crawler.report.messages import frontier_command, shared_command
from crawler.shared.address import Address, RedisAddress, redis_address
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.operator_store import SharedQueues, SharedStore
from crawler.shared.shard import ShardOperations
from crawler.shared.worker.join import asked_once, open_args
from crawler.view.hosts import HostQuery
from crawler.view.identity import UrlIdentifier, refuse_other_identity, seen_among
from crawler.view.local import LocalInspection
from crawler.view.port import HostState, Inspection
from crawler.view.shared import (
    Recount,
    RedisCrawlReader,
    RedisInspection,
    forget,
    is_alive,
    worker_records,
)
from crawler.workers.supervisor import has_own_redis, open_own_redis

# Memory is bounded, however many hosts and dead letters there are.


class FrontierOverview(msgspec.Struct, frozen=True):
    """The frontier of a data directory as a whole."""

    counts: Counts
    process: int | None  # of the running crawl
    data_dir: str
    arguments: dict[str, str] = {}  # of the spider's last start


class SharedOverview(msgspec.Struct, frozen=True):
    """A shared frontier as a whole."""

    counts: Counts
    where: str  # for people
    workers: int  # alive
    outbox: int  # links on the disks of workers, alive or not
    arguments: dict[str, str] = {}  # of the spider's last start


class HostRow(msgspec.Struct, frozen=True):
    """One host of the frontier."""

    host: str
    waiting: int  # URLs
    place: str  # empty | front | active | leased | resting
    next_at: float  # epoch seconds, from which it may be contacted
    gap_s: float  # its last rest
    crawl_delay_s: float
    failures: int  # in a row
    pauses: int  # in a row
    admitted: int  # URLs ever admitted
    because: str  # why it is not contacted now; empty: nothing keeps it from being
    rest_because: str  # why its rests are as long as they are


class DeadLetterRow(msgspec.Struct, frozen=True):
    """One dead letter."""

    url: str
    reason: str
    at: float  # epoch seconds
    attempts: int  # its tries
    depth: int


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
    preferred: int  # shards
    heard_at: float  # epoch seconds


def host_rows(inspection: Inspection, query: HostQuery, config: Config) -> list[HostRow]:
    rules, now = _operator_rules(inspection, config), inspection.now()
    return [_host(state, rules, config, now) for state in inspection.hosts(query)]


def host_row(inspection: Inspection, name: str, config: Config) -> HostRow:
    """Return the host *name*. Raises ConfigError if the frontier does not know it."""
    state = inspection.host(HostKey(name.lower()))
    if state is None:
        raise ConfigError(f"the frontier has no host {name}")
    return _host(state, _operator_rules(inspection, config), config, inspection.now())


def _operator_rules(inspection: Inspection, config: Config) -> OperatorRules:
    """Return the rules, none if there is an error in them: `scrapy rules` says which."""
    levels = len(config.frontier.level_shares)
    with suppress(ConfigError):
        return read_rules(inspection.operator_rules(config), levels)
    return read_rules("", levels)


def dead_letter_rows(inspection: Inspection, limit: int) -> Iterator[DeadLetterRow]:
    """Yield dead letters, the oldest first."""
    for letter in inspection.oldest_dead(limit):
        url = letter.candidate
        yield DeadLetterRow(url.url, letter.reason, letter.at, url.attempts, url.depth)


def act_rows(lines: Iterable[Act | Touched]) -> list[ActRow]:
    """Return the acts of an audit, the latest first."""
    acts: list[Act] = []
    results: dict[int, Touched] = {}
    undone: set[int] = set()
    for line in lines:
        if isinstance(line, Touched):
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


def audit_text(acts: Sequence[ActRow], now: float) -> Iterator[str]:
    head = ("act", "when", "by", "verb", "targets", "value", "URLs", "state")
    rows = [
        (
            str(act.number),
            since(act.at, now),
            plain(act.by, 40),
            act.verb,
            plain(act.targets, 60),
            plain(act.value, 30),
            "-" if act.touched is None else number(act.touched),
            act.state,
        )
        for act in acts
    ]
    yield from table([head, *rows], right={0, 6})


def worker_rows(records: Sequence[WorkerRecord], now: float) -> list[WorkerRow]:
    return [_worker(record, now) for record in records]


def _host(state: HostState, rules: OperatorRules, config: Config, now: float) -> HostRow:
    said = rules.of_host(state.host)
    return HostRow(
        host=state.host,
        waiting=state.waiting,
        place=state.place,
        next_at=next_contact(state.rest_until, said, rules, now),
        gap_s=state.pace.gap_s,
        crawl_delay_s=state.pace.crawl_delay_s,
        failures=state.pace.failures,
        pauses=state.pace.pauses,
        admitted=state.admitted,
        because=_because(state, rules, config.politeness, now),
        rest_because=_rest_because(
            _with_cap(state.pace, said.crawl_delay_s, config.politeness),
            said.delay_s,
            config.politeness,
        ),
    )


_CLOCKS_DIFFER_S: Final = 1.0  # those of a server and of this machine


def _because(
    state: HostState, rules: OperatorRules, politeness: PolitenessSettings, now: float
) -> str:
    """Return why the host is not contacted now."""
    said = rules.of_host(state.host)
    if said.refuse:
        return "a rule refuses it"
    if said.paused_until(now) is not None:
        return "a rule pauses it"
    if rules.paused_until(now) is not None:
        return "the crawl is paused"
    if state.place == "leased":
        return "a fetch is under way"
    if state.rest_until <= now:
        return ""
    pace = _with_cap(state.pace, said.crawl_delay_s, politeness)
    if pace.pauses:
        return f"paused after {many(pace.failures, 'failure')} in a row"
    if state.rest_until - now > max(pace.gap_s, pace.crawl_delay_s) + _CLOCKS_DIFFER_S:
        return "rests as its answer asked (Retry-After)"
    rest = span(max(pace.gap_s, pace.crawl_delay_s))
    return f"rests {rest}: {_rest_because(pace, said.delay_s, politeness)}"


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
    if pace.gap_s > politeness.min_delay_s and politeness.delay_factor:
        took = span(pace.gap_s / politeness.delay_factor)
        times = f"{politeness.delay_factor:g} times that"
        return f"an answer took {took} and it rests {times}, or it failed not long ago"
    return "the shortest rest" if pace.gap_s else "not fetched from yet"


def _worker(record: WorkerRecord, now: float) -> WorkerRow:
    ran_s = record.at - record.started
    return WorkerRow(
        name=record.name,
        host=record.host,
        pid=record.pid,
        state=record.state if is_alive(record, now) else "silent",
        pages=record.pages,
        pages_per_s=record.pages / ran_s if ran_s > 0 else 0.0,
        bytes=record.bytes,
        errors=record.errors,
        leases=record.leases,
        outbox=record.outbox,
        preferred=record.preferred,
        heard_at=record.at,
    )


def overview_text(overview: FrontierOverview) -> Iterator[str]:
    at_work = (
        f"process {overview.process} crawls now" if overview.process else "no crawl is running"
    )
    yield f"{plain(overview.data_dir)}: {at_work}"
    hosts = ("hosts", overview.counts.hosts_active, "hosts in memory")
    yield from _counted([*_figures(overview.counts), hosts])
    yield from _arguments(overview.arguments)


def repair_text(repaired: RebuiltSeen, unread: Sequence[str]) -> Iterator[str]:
    for name in repaired.set_aside:
        yield f"{SEEN}/{name} is set aside; nothing reads it any more"
    yield f"{many(repaired.damaged, 'key')} of seen URLs were in what is damaged. Found again:"
    yield f"  {number(repaired.held)} of URLs that wait, or that the frontier keeps"
    yield f"  {number(repaired.fetched)} of URLs in {OUTCOMES} and in the archive's index"
    yield (
        f"  {number(repaired.lost)} of no URL that is known: at most so many pages may be fetched"
        " again. An index that is elsewhere: scrapy frontier seen --from FILE.cdxj"
        if repaired.lost
        else "  nothing is lost"
    )
    for error in unread:
        yield f"left out from there on: {plain(error)}"


def snapshot_text(made: Snapshot) -> Iterator[str]:
    yield (
        f"{plain(made.folder)}: {many(made.left, 'URL')} left to do, {number(made.seen)} seen, of"
        " one moment"
    )
    shared = f", {size(made.shared)} of them as hard links" if made.shared else ""
    yield f"{size(made.bytes)}{shared}; without the archive (warc) and the logs"
    yield f"a crawl goes on from it with -s CRAWLER_DATA_DIR={plain(made.folder)}"


def check_text(
    counters: Sequence[RecountedCounter], is_repaired: bool, uncounted: Sequence[int]
) -> Iterator[str]:
    differing = [each for each in counters if each.differs]
    for each in differing:
        where = "" if each.shard is None else f"shard {each.shard}: "
        yield f"{where}{each.name}: the counter says {each.stored:,}, counted {each.counted:,}"
    if differing and is_repaired:
        yield f"{many(len(differing), 'counter')} repaired"
    elif differing:
        found = many(len(differing), "counter")
        yield f"{found} differ; scrapy frontier check --repair corrects them"
    elif counters:
        yield f"{many(len(counters), 'counter')} counted again: all are right"
    if uncounted:
        shards = ", ".join(map(str, uncounted[:20]))
        yield (
            f"{many(len(uncounted), 'shard')} not counted, because workers changed them all the"
            f" time: {shards}. Stop the workers, and check again"
        )


def shared_overview_text(overview: SharedOverview) -> Iterator[str]:
    at_work = (
        f"{many(overview.workers, 'worker')} at work"
        if overview.workers
        else "no worker is at work"
    )
    yield f"{plain(overview.where)}: {at_work}"
    outbox = ("outbox", overview.outbox, "links on workers' disks, until Redis can take them")
    yield from _counted([*_figures(overview.counts), outbox])
    yield from _arguments(overview.arguments)


def hosts_text(hosts: Sequence[HostRow], now: float) -> Iterator[str]:
    head = (
        "host",
        "waiting",
        "admitted",
        "next",
        "last gap",
        "crawl-delay",
        "failures",
        "pauses",
        "place",
    )
    rows = [_host_row(host, now) for host in hosts]
    yield from table([head, *rows], right=set(range(1, 8)))


def workers_text(records: Sequence[WorkerRow], now: float) -> Iterator[str]:
    head = (
        "worker",
        "machine",
        "process",
        "state",
        "pages",
        "pages/s",
        "leases",
        "outbox",
        "heard",
    )
    yield from table(
        [head, *(_worker_row(record, now) for record in records)], right={2, *range(4, 9)}
    )
    for record in records:
        if record.state == "silent" and record.outbox:
            yield (
                f"{plain(record.name)} is silent, and the crawl does not end while"
                f" {many(record.outbox, 'link')} on its disk may come. Start it again with its data"
                f" directory; if that is lost: scrapy frontier workers --forget"
                f" {plain(record.name)}"
            )


def dead_text(
    letters: Sequence[DeadLetterRow], total: int, advice: Callable[[str], str], now: float
) -> Iterator[str]:
    """*advice* returns the command to type for an action."""
    for letter in letters:
        yield f"{since(letter.at, now):>18}  {plain(letter.url)}"
        yield f"{'':18}  {plain(letter.reason)}"
    yield f"{number(len(letters))} of {many(total, 'dead letter')}"
    if letters:
        yield f"put one back: {advice('retry URL')}"
        yield f"put all back: {advice('retry --all')}"


def table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    """Format *rows* in columns, of which those numbered in *right* are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _figures(counts: Counts) -> list[tuple[str, int, str]]:
    return [
        ("waiting", counts.waiting, "URLs that wait for their host's turn"),
        ("undecided", counts.undecided, "URLs found of which it is not known yet if they are new"),
        ("later", counts.later, "URLs with a date: to be tried again"),
        ("leased", counts.leased, "URLs under way, or cut off by the end of a process"),
        ("left", counts.left, "URLs that are not finished: the four above"),
        ("seen", counts.seen, "URLs ever admitted"),
        ("done", counts.done, "URLs finished"),
        ("dead", counts.dead, "URLs given up"),
        ("refused", counts.refused, "URLs that waited, and that a rule of the last start refuses"),
    ]


def _arguments(given: Mapping[str, str]) -> Iterator[str]:
    if given:
        typed = " ".join(f"-a {plain(name)}={plain(value)}" for name, value in given.items())
        yield f"arguments of the last start: {typed}"


def _counted(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    yield from table([(name, number(value), meaning) for name, value, meaning in rows], right={1})


def _worker_row(row: WorkerRow, now: float) -> tuple[str, ...]:
    return (
        plain(row.name, 64),
        plain(row.host, 40),
        str(row.pid),
        plain(row.state, 20),
        number(row.pages),
        rate(row.pages_per_s) if row.pages_per_s else "-",
        number(row.leases),
        number(row.outbox),
        since(row.heard_at, now),
    )


def _host_row(row: HostRow, now: float) -> tuple[str, ...]:
    return (
        plain(row.host, 60),
        number(row.waiting),
        number(row.admitted),
        until(row.next_at, now),
        span(row.gap_s),
        span(row.crawl_delay_s) if row.crawl_delay_s else "-",
        number(row.failures),
        number(row.pauses),
        row.place,
    )


_SEEN_AT_ONCE: Final = 500_000  # URLs: 200 MB
ANSWER_TIMEOUT_S: Final = 30.0  # a running crawl checks every second, but may be starting or ending
# It may be merging runs, too: 1e8 keys, 800 MB, on a slow disk.
SNAPSHOT_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
_COUNTS: Final = 3  # of a crawl at work, until nothing is removed meanwhile


def _answered_or_ended(path: Path, request: Path, timeout_s: float) -> int | None:
    """Wait until the file *request* is answered, or withdraw it if the crawl has ended. Returns the
    process id of a crawl that has not answered for *timeout_s*, else None."""
    deadline = time.monotonic() + timeout_s
    while not crawl_requests.is_answered(request):
        at_work = lock_owner(path)
        if at_work is None:
            request.unlink(missing_ok=True)
            return None
        if time.monotonic() > deadline:
            return at_work
        time.sleep(_POLL_S)
    return None


def snapshot_local(path: Path, target: Path) -> Snapshot:
    """Copy the data directory *path*, as it is at one moment, to *target*. If a crawl uses it, that
    crawl does its part. Raises CrawlerError; then *target* is as before."""
    crawl_format = read_format(path)
    if not (path / FRONTIER).is_dir():
        raise DataDirError(f"{path} holds no frontier: no crawl has begun in it")
    target = target.absolute()
    snapshots.check_target(target)
    with snapshots.only_snapshot(path):
        name = snapshots.new_name()
        if lock_owner(path) is None or not _frozen_by_crawl(path, name):
            with (
                closing(DataDir(path, crawl_format.identity)) as data,
                closing(RocksStore(data.frontier)) as store,
            ):
                snapshots.freeze(path, store, name)
        return snapshots.publish(path, name, target)


def _frozen_by_crawl(path: Path, name: str) -> bool:
    """Let the running crawl make the folder *name*; return whether it has, or False if it ended
    before."""
    file = crawl_requests.write_request(path, SnapshotRequest(name))
    at_work = _answered_or_ended(path, file, SNAPSHOT_TIMEOUT_S)
    if at_work is not None:
        raise DataDirError(
            f"the crawl in {path} (process {at_work}) has made no snapshot for"
            f" {SNAPSHOT_TIMEOUT_S:g} s, and the request is withdrawn. If it is starting or ending,"
            " try again"
        )
    why_not = crawl_requests.take_answer(file)
    if why_not:
        raise DataDirError(f"the crawl in {path} made no snapshot: {why_not}")
    return why_not is not None


def put_back_alone(data: DataDir, config: Config, request: ActRequest) -> int:
    """Put back the dead letters that *request*, a retry, asks for, while no crawl runs."""
    with closing(open_frontier(data.path, frontier_limits(config), time.time())) as frontier:
        store, now = frontier.records, frontier.clock
        robots = RobotsCache(RobotsRecords(store), config.identity.user_agent_name, config.robots)
        is_chosen = chosen_letters(request, config)[0]
        letters = dead_letters.retry_dead(store, frontier, robots, is_chosen, lambda: now)
        return sum(letters)


class FetchedUrls:
    """The URLs that the outcome log and the index of the archive name."""

    def __init__(self, path: Path, identifier: UrlIdentifier) -> None:
        """*path*: the data directory."""
        self._path = path
        self._identifier = identifier
        self.unread: list[str] = []  # an index that is damaged, and where

    def keys(self) -> Iterator[int]:
        for url in map(fetch_form, self._urls()):
            if url is not None:
                yield self._identifier.key(url)

    def _urls(self) -> Iterator[str]:
        for outcome in read_outcomes(self._path / OUTCOMES):
            yield outcome.url
        for index in sorted((self._path / WARC).glob("*.cdxj")):
            try:
                yield from indexed_urls(index)
            except DataDirError as error:
                self.unread.append(str(error))


CommandOutput = tuple[object, Iterable[str]]
"""The answer as a value for JSON, and as lines of text."""


@dataclass(frozen=True, slots=True)
class FrontierCheck:
    """The result of counting all again."""

    counters: list[RecountedCounter]
    is_repaired: bool
    uncounted: list[int] = field(default_factory=list)  # shards that changed during each count
    rebuilt: RebuiltSeen | None = None  # None: no run of the seen set was damaged
    unread: list[str] = field(default_factory=list)  # damaged indexes of the archive, and where

    @property
    def is_correct(self) -> bool:
        differs = any(each.differs for each in self.counters) and not self.is_repaired
        return not (differs or self.uncounted)


@dataclass(frozen=True, slots=True)
class SeenUrls:
    """The result of taking over what another crawl has seen."""

    lines: int  # with a URL
    new: int
    unreadable: int  # lines with what is no http or https URL


class FrontierView(Protocol):
    """A frontier for commands. All methods raise CrawlerError if it is missing, foreign or down."""

    def inspection(self) -> AbstractContextManager[Inspection]: ...

    def counts(self) -> CommandOutput: ...

    def workers(self) -> CommandOutput: ...

    def forget(self, worker: str) -> int:
        """Give up the links on the disk of a dead *worker*, and return how many."""

    def take_over(self, index: Path) -> SeenUrls:
        """Count the URLs of *index*, of another crawl, as seen."""

    def snapshot(self, folder: Path) -> Snapshot:
        """Copy the frontier, as it is at one moment, to *folder*."""

    def act(self, request: ActRequest) -> ActAnswer:
        """Do what the operator asks for: by the crawl that runs, or for the next start."""

    def check(self, is_repair: bool) -> FrontierCheck:
        """Read all and count again; with *is_repair* rebuild damaged runs of the seen set, and
        write the counters that differ."""

    @property
    def retried_by(self) -> str:
        """Which crawl or workers will fetch the URLs put back, in words."""

    def advice(self, action: str) -> str:
        """Return the command to type for *action*."""


def frontier_of(settings: BaseSettings, config: Config) -> FrontierView:
    address = redis_address(settings, config)
    if address is not None:
        advice = partial(shared_command, settings=settings)
        # What a worker has here is looked at, too, but no spider needs to be known for the rest.
        path = data_dir(settings, config, SPIDER)
        return RedisFrontierView(lambda: nullcontext(address), path, config, advice)
    path = data_dir(settings, config)
    if has_own_redis(path):
        advice = partial(frontier_command, data_dir=str(path))
        return RedisFrontierView(partial(open_own_redis, path, config.shared), path, config, advice)
    return LocalFrontierView(path, config)


def known_urls(view: FrontierView, config: Config, urls: Sequence[str]) -> list[str]:
    """Return those of *urls* that the crawl of *view* has seen; none before its first start."""
    with suppress(DataDirError), view.inspection() as inspection:
        return seen_among(urls, inspection, config)
    return []


class LocalFrontierView:
    retried_by = "the crawl that is at work, or the next run"

    def __init__(self, path: Path, config: Config, store: OpenedStore | None = None) -> None:
        """*store*: as of LocalInspection."""
        self._path = path
        self._config = config
        self.inspection = partial(LocalInspection, path, store)
        self.advice = partial(frontier_command, data_dir=str(path))

    def counts(self) -> CommandOutput:
        with self.inspection() as inspection:
            overview = FrontierOverview(
                inspection.counts(), lock_owner(self._path), str(self._path), inspection.arguments
            )
        return overview, overview_text(overview)

    def workers(self) -> CommandOutput:
        raise ConfigError(
            f"the frontier of {self._path} has no workers: they share one that is in Redis"
            " (CRAWLER_FRONTIER_URL)"
        )

    def forget(self, worker: str) -> int:
        raise ConfigError(f"the frontier of {self._path} has no workers, nor one called {worker}")

    def take_over(self, index: Path) -> SeenUrls:
        with (
            closing(DataDir(self._path, identity_of_urls(self._config))) as data,
            closing(
                open_frontier(data.path, frontier_limits(self._config), time.time())
            ) as frontier,
        ):
            identifier = UrlIdentifier(self._config, data.format.key_seed)
            urls = new = unreadable = 0
            forms = (fetch_form(url) for url in indexed_urls(index))
            while some := list(islice(forms, _SEEN_AT_ONCE)):
                found = [identifier.key(url) for url in some if url is not None]
                urls, unreadable = urls + len(found), unreadable + len(some) - len(found)
                new += frontier.mark_seen(found, frontier.clock)
        return SeenUrls(urls, new, unreadable)

    def snapshot(self, folder: Path) -> Snapshot:
        return snapshot_local(self._path, folder)

    def act(self, request: ActRequest) -> ActAnswer:
        read_format(self._path)  # else a mistyped directory would be created
        if request.dry_run:
            with self.inspection() as inspection:
                return count_waiting_on_disk(inspection.reader, request).answer()
        try:
            return client.ask(self._path, request)
        except client.NoCrawl:
            if (process := lock_owner(self._path)) is not None:
                raise DataDirError(
                    f"the crawl in {self._path} (process {process}) does not answer: if it is"
                    " starting or ending, try again"
                ) from None
        with closing(DataDir(self._path, identity_of_urls(self._config))) as data:
            return asyncio.run(self._act_alone(request, data))

    async def _act_alone(self, request: ActRequest, data: DataDir) -> ActAnswer:
        """Write what is asked for into the rules and the audit: the next start does the rest."""
        rules_file = RulesFile(rules_path(self._config, self._path))
        store = OperatorFiles(rules_file, Audit(self._path / AUDIT))

        async def at_next_start(act: Act, undone: Act | None) -> None:
            """Do nothing: no crawl runs."""

        async def count(request: ActRequest) -> WaitingCount:
            raise ConfigError("what waits is counted by the command itself")

        async def put_back(request: ActRequest) -> int:
            return put_back_alone(data, self._config, request)

        levels = len(self._config.frontier.level_shares)
        known = partial(known_urls, self, self._config)
        operator = Operator(store, levels, time.time, count, put_back, at_next_start, known)
        return await operator.act(request, getpass.getuser())

    def check(self, is_repair: bool) -> FrontierCheck:
        if not is_repair:
            return FrontierCheck(self._counted(), is_repaired=False)
        read_format(self._path)  # else a mistyped directory would be created
        with (
            closing(DataDir(self._path, identity_of_urls(self._config))) as data,
            closing(RocksStore(data.frontier)) as store,
        ):
            runs = RunFolder(data.seen)
            fetched = FetchedUrls(data.path, UrlIdentifier(self._config, data.format.key_seed))
            held = FrontierReader(store, runs).admitted_keys()
            rebuilt = repair_seen(store, runs, held, fetched.keys())
            counted = count_again(store, runs)
            correct_counters(store, counted)
        return FrontierCheck(counted, is_repaired=True, rebuilt=rebuilt, unread=fetched.unread)

    def _counted(self) -> list[RecountedCounter]:
        for _ in range(_COUNTS - 1):
            with self.inspection() as inspection:
                try:
                    return inspection.count_again()
                except DataDirError:
                    # A crawl at work may have merged the runs, and removed those that were named.
                    if lock_owner(self._path) is None:
                        raise
        with self.inspection() as inspection:
            return inspection.count_again()


class RedisFrontierView:
    retried_by = "workers that are there, or come"

    def __init__(
        self,
        redis: Callable[[], AbstractContextManager[RedisAddress]],
        path: Path,
        config: Config,
        advice: Callable[[str], str],
    ) -> None:
        """*redis* opens the server and yields its address. *path*: data directory, perhaps a
        worker's."""
        self._redis = redis
        self._path = path
        self._config = config
        self.advice = advice

    @contextmanager
    def inspection(self) -> Iterator[Inspection]:
        with self._open_reader() as reader, self._inspection(reader) as inspection:
            yield inspection

    def counts(self) -> CommandOutput:
        with self._open_reader() as reader, self._inspection(reader) as inspection:
            counts, now = inspection.counts(), reader.now()
            overview = SharedOverview(
                counts,
                reader.where,
                workers=sum(is_alive(worker, now) for worker in worker_records(reader)),
                outbox=counts.undecided,
                arguments=inspection.arguments,
            )
        return overview, shared_overview_text(overview)

    def workers(self) -> CommandOutput:
        with self._open_reader() as reader:
            now = reader.now()
            found = worker_rows(worker_records(reader), now)
        return found, workers_text(found, now)

    def forget(self, worker: str) -> int:
        with self._open_reader() as reader:
            return forget(reader, worker).outbox

    def take_over(self, index: Path) -> SeenUrls:
        raise ConfigError(
            f"{index} is not taken over: the frontier is in Redis, and this works only for a crawl"
            " with a frontier of its own"
        )

    def act(self, request: ActRequest) -> ActAnswer:
        with self._open_reader() as reader:
            where, stored = reader.where, reader.format
        refuse_other_identity(where, stored.identity, self._config, is_shared=True)
        # Before the servers are opened to write, which are opened once at a time.
        is_looked_up = request.verb == "add" and not request.again
        looked_up = request.targets[:LOOKED_AT] if is_looked_up else ()
        known = set(known_urls(self, self._config, looked_up))
        # The crawl has as many shards as at its first start, whatever the settings say now.
        shared = replace(self._config.shared, frontier_shards=stored.shards)
        config, name = replace(self._config, shared=shared), shared.frontier_name
        levels, unit = len(config.frontier.level_shares), config.politeness.host_unit
        ops = ShardOperations("", stored.shards, frontier_limits(config), shared.lease_s)
        with self._redis() as opened:

            async def by_workers(act: Act, undone: Act | None) -> None:
                """Do nothing: the workers that run, or that start next, look into the audit."""

            async def acted(nodes: Nodes) -> ActAnswer:
                store = SharedStore(nodes, name)
                queues = SharedQueues(nodes, ops, store)
                count = partial(count_waiting, queues, unit=unit, now=time.time)
                put_back = partial(put_dead_letters_back, queues, config=config, now=time.time)
                operator = Operator(
                    *(store, levels, time.time, count, put_back, by_workers),
                    known=lambda urls: [url for url in urls if url in known],
                )
                return await operator.act(request, getpass.getuser())

            return asked_once(opened, config, acted)

    def snapshot(self, folder: Path) -> Snapshot:
        raise ConfigError(
            f"{folder} is not made: the frontier is in Redis, which makes its own copies. Let it"
            " save one (redis-cli BGSAVE, on each server of a cluster) and copy its dump.rdb; stop"
            " the workers before, if the servers are more than one, for a copy of one moment"
        )

    def check(self, is_repair: bool) -> FrontierCheck:
        with self._open_reader() as reader:
            recount = Recount(reader)
            if is_repair:
                limits, lease_s = frontier_limits(self._config), self._config.shared.lease_s
                recount.repair(ShardOperations("", len(reader.shards), limits, lease_s))
            else:
                recount.count()
        return FrontierCheck(recount.counted, is_repair, recount.uncounted)

    def _inspection(self, reader: RedisCrawlReader) -> RedisInspection:
        return RedisInspection(reader, self._path, self._config.robots.robots_max_bytes)

    @contextmanager
    def _open_reader(self) -> Iterator[RedisCrawlReader]:
        name = self._config.shared.frontier_name
        with self._redis() as opened:
            address = Address.parse(opened.url, opened.params)
            with RedisCrawlReader(address, name, open_args(self._config)) as reader:
                yield reader
