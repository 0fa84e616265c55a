"""What `scrapy frontier` does: show a crawl, running or not, retry dead letters, copy, repair it.

Rule: showing needs no lock, and changes nothing but the report.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings
from scrapy.utils.conf import arglist_to_dict

from crawler.assembly.build import data_dir
from crawler.cli.frontier_text import (
    FrontierOverview,
    SharedOverview,
    audit_text,
    check_text,
    consumers_text,
    dead_text,
    domains_text,
    fetches_text,
    hosts_text,
    overview_text,
    paces_text,
    plan_text,
    repair_text,
    shared_overview_text,
    snapshot_text,
    workers_text,
)
from crawler.cli.place import client_of, command_for, config_as_started, place_of
from crawler.config.arguments import join_repeated
from crawler.config.settings import (
    Config,
    read_config,
)
from crawler.content.crawl_archive import companions
from crawler.data.changes import Changes, check_name
from crawler.data.data_dir import REPORT, SERVED, DataDir, lock_owner, worker_folders
from crawler.data.files import refuse_existing, write_lines
from crawler.data.operator_files import RulesFile, existing
from crawler.engine.seeds import open_seeds
from crawler.frontier.open import frontier_limits
from crawler.model.program import PROGRAM
from crawler.model.types import (
    ConfigError,
    CrawlerError,
    DataDirError,
    HostKey,
    StoreUnavailable,
)
from crawler.operate.archive import deletion_records, purge_archive, purge_shared_changes
from crawler.operate.client import CrawlClient, FrontierCheck, look
from crawler.operate.verbs import VERBS, ActRequest, read_words
from crawler.policy.rounds import RoundCaps
from crawler.policy.seeds import BadLine
from crawler.policy.targets import read_target
from crawler.report.fresh_text import copies_text, page_text
from crawler.report.html_report import crawl_facts, write_report
from crawler.report.messages import print_error
from crawler.report.summary import frontier_counts
from crawler.report.why_text import why_text
from crawler.urlfrontier.frontier_crawls import latest_time, purge_served
from crawler.view.archive import archive_of, fault_lines
from crawler.view.budgets import DomainQuery, DomainSort
from crawler.view.formats import many
from crawler.view.fresh import fresh_copies, fresh_page
from crawler.view.hosts import HostFilter, HostQuery, HostSort
from crawler.view.place import CrawlPlace
from crawler.view.plan import RoundPlan
from crawler.view.port import CrawlView
from crawler.view.rows import (
    MAX_ROWS,
    FetchRow,
    act_rows,
    dead_letter_rows,
    domain_rows,
    fetch_rows,
    host_rows,
    worker_rows,
)
from crawler.view.why import why

TOP: Final = 20
"""How many rows to show if the user asks for no number."""


CommandOutput = tuple[object, Iterable[str]]
"""The answer as a value for JSON, and as lines of text."""


@dataclass(frozen=True, slots=True)
class FrontierArguments:
    """The crawl, and what one command was given."""

    place: CrawlPlace
    settings: BaseSettings
    words: list[str]
    word: str | None  # the URL or the folder
    opts: argparse.Namespace

    @property
    def config(self) -> Config:
        return self.place.config

    @property
    def client(self) -> CrawlClient:
        return client_of(self.place)


def run(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Do what *args* ask for, print the answer and return the exit status. Raises UsageError."""
    action = _action(args, opts)
    try:
        config = read_config(settings)
        word = args[1] if len(args) > 1 else None
        place = place_of(settings, config)
        value, lines = action(FrontierArguments(place, settings, args, word, opts))
        output = [_json(value)] if opts.json else lines
        for line in output:
            print(line)
    except CrawlerError as error:
        print_error(error)
        return 1
    return int(isinstance(value, FrontierCheck) and not value.is_correct)


def _action(args: list[str], opts: argparse.Namespace) -> Action:
    """Return the action. Raises UsageError for words and options that it does not take."""
    unknown = next((each for each in args if each.startswith("-")), None)
    if unknown:
        raise UsageError(f"unknown option {unknown}")
    if not args or args[0] not in {*_ACTIONS, *VERBS}:
        raise UsageError(f"say what: {', '.join({**_ACTIONS, **VERBS})}", print_help=False)
    action, wanted, options = _ACTIONS.get(args[0], (_act, "", _OPTIONS_OF_VERBS))
    foreign = [name for name in _OPTIONS - options if getattr(opts, name) is not None]
    if foreign:
        name = _OTHER_NAMES.get(foreign[0], f"--{foreign[0].replace('_', '-')}")
        raise UsageError(f"{args[0]} takes no {name}")
    if action is _act:
        return action
    if wanted == _MAY_TAKE and len(args) == 1:
        return action
    if len(args) != 1 + (bool(wanted) and not opts.all):
        raise UsageError(f"{args[0]} takes {wanted or 'nothing more'}")
    return action


def _counts(args: FrontierArguments) -> CommandOutput:
    with args.place.view() as view:
        counts, arguments = view.counts(), view.last_start().arguments or {}
        if args.place.is_shared:
            now, workers = view.now(), view.workers()
            alive = sum(worker.is_alive(now) for worker in workers)
            outbox = sum(worker.outbox for worker in workers)
            shared = SharedOverview(counts, view.crawl.where, alive, outbox, arguments)
            return shared, shared_overview_text(shared)
    path = args.place.path
    overview = FrontierOverview(counts, lock_owner(path), str(path), arguments)
    return overview, overview_text(overview)


def _hosts(args: FrontierArguments) -> CommandOutput:
    query = _host_query(args.opts)
    with _view_as_started(args) as (view, config):
        found, now = host_rows(view, query, config), view.now()
    return found, (paces_text if args.opts.pace else hosts_text)(found, now)


def _now(args: FrontierArguments) -> CommandOutput:
    top = TOP if args.opts.top is None else args.opts.top
    if top < 1:
        raise UsageError("now takes a --top of 1 or more")
    found = _fetches(args, (args.opts.host or "").lower())
    return found[:top], fetches_text(found, top)


def _fetches(args: FrontierArguments, host: str) -> list[FetchRow]:
    """Return what is fetched now. Only the process of a crawl knows how far each fetch is; it is
    not asked about where its console is off, or none runs."""
    if not args.place.is_shared:
        with suppress(ConfigError, DataDirError):
            rows = look(args.place.path, "/api/now", {"top": str(MAX_ROWS), "host": host})
            return msgspec.json.decode(rows, type=list[FetchRow])
    with args.place.view() as view:
        return fetch_rows(view, args.config, host=host)


def _domains(args: FrontierArguments) -> CommandOutput:
    query = _domain_query(args.opts)
    with _view_as_started(args) as (view, config):
        found, now = domain_rows(view, query, config), view.now()
    return found, domains_text(found, now)


def _domain_query(opts: argparse.Namespace) -> DomainQuery:
    top, offset = TOP if opts.top is None else opts.top, opts.offset or 0
    if top < 1 or offset < 0:
        raise UsageError("domains takes a --top of 1 or more, and an --offset of 0 or more")
    sort = _sort(DomainSort, opts.sort or DomainSort.SPILLED, "domains")
    return DomainQuery(top, sort, (opts.match or "").lower(), offset)


_Sort = TypeVar("_Sort", HostSort, DomainSort)


def _sort(kind: type[_Sort], given: str, of: str) -> _Sort:
    """Return what orders the rows. Raises UsageError."""
    try:
        return kind(given)
    except ValueError:
        raise UsageError(f"{of} takes a --sort by {', '.join(kind)}, not {given}") from None


def _host_query(opts: argparse.Namespace) -> HostQuery:
    top, offset = TOP if opts.top is None else opts.top, opts.offset or 0
    if top < 1 or offset < 0:
        raise UsageError("hosts takes a --top of 1 or more, and an --offset of 0 or more")
    if opts.host is not None:
        return HostQuery(host=HostKey(opts.host.lower()))
    sort = _sort(HostSort, opts.sort or HostSort.WAITING, "hosts")
    match = (opts.match or "").lower()
    return HostQuery(
        *(top, sort, match, offset),
        address=_address(opts.address),
        state=HostFilter(opts.state or HostFilter.ALL),
        failure=opts.failure or "",
    )


def _address(given: str | None) -> str:
    """Return the address as records have it. Raises UsageError."""
    if given is None:
        return ""
    try:
        return str(ip_address(given.strip("[]")))
    except ValueError:
        raise UsageError(f"--address takes an IP address, not {given!r}") from None


def _dead(args: FrontierArguments) -> CommandOutput:
    limit = TOP if args.opts.limit is None else args.opts.limit
    with args.place.view() as view:
        found = dead_letter_rows(view.dead(limit))
        total, now = view.counts().dead, view.now()
    advice = partial(command_for, settings=args.settings, place=args.place)
    return found, dead_text(found, total, advice, now)


def _audit(args: FrontierArguments) -> CommandOutput:
    with args.place.view() as view:
        acts, now = act_rows(view.audit()), view.now()
    shown = acts[: TOP if args.opts.limit is None else args.opts.limit]
    return shown, audit_text(shown, now)


def _retry(args: FrontierArguments) -> CommandOutput:
    words = () if args.word is None else (args.word,)
    answer = args.client.act(ActRequest("retry", words, all=not words))
    total = answer.touched
    if total is None:
        return {"put_back": None}, [answer.said]
    if args.word is not None and not total:
        raise ConfigError(f"{args.word} is no dead letter; {PROGRAM} frontier why shows its state")
    by = ("the crawl that is at work, or the next run", "workers that are there, or come")
    text = f"{many(total, 'URL')} put back, to be tried by {by[args.place.is_shared]}"
    return {"put_back": total}, [text]


def _why(args: FrontierArguments) -> CommandOutput:
    given = _spider_arguments(args.opts)
    with _view_as_started(args) as (view, config):
        answer, now = why(args.word or "", view, config, given), view.now()
    return answer, why_text(answer, now)


def _fresh(args: FrontierArguments) -> CommandOutput:
    word = args.word or ""
    with _view_as_started(args) as (view, config):
        if "/" in word:
            page, now = fresh_page(word, view, config), view.now()
            return page, page_text(page, now)
        copies = fresh_copies(view, config, word.lower())
    return copies, copies_text(copies)


@contextmanager
def _view_as_started(args: FrontierArguments) -> Iterator[tuple[CrawlView, Config]]:
    """Yield the crawl with the settings by which its last start decided, and so with the rules of
    its operator that are in force."""
    with args.place.view() as view:
        config = config_as_started(args.settings, args.config, view)
        if args.place.is_shared or config.operator.rules == args.config.operator.rules:
            yield view, config
            return
    with replace(args.place, config=config).view() as view:
        yield view, config


def _plan(args: FrontierArguments) -> CommandOutput:
    opts, top = args.opts, args.opts.top
    for name in ("top", "per_host", "per_domain"):
        if (given := getattr(opts, name)) is not None and given < 1:
            raise UsageError(f"plan takes a --{name.replace('_', '-')} of 1 or more")
    if top is None and opts.output is None:
        top = TOP
    refuse_existing(opts.output)
    bounds = RoundCaps(urls=top, per_host=opts.per_host, per_domain=opts.per_domain)
    with TemporaryDirectory() as folder, _view_as_started(args) as (view, config):
        planner = RoundPlan(view, config, _spider_arguments(opts), bounds, Path(folder))
        if opts.output is None:
            urls = list(planner.urls())
            found, now = planner.figures(), view.now()
            return {"urls": urls, **msgspec.to_builtins(found)}, plan_text(urls, found, now)
        write_lines(Path(opts.output), map(msgspec.json.encode, planner.urls()))
        found = planner.figures()
    return found, plan_text([], found, found.began_at)


def _spider_arguments(opts: argparse.Namespace) -> dict[str, str]:
    """Return the arguments that were typed. Raises ConfigError."""
    try:
        return arglist_to_dict(join_repeated(opts.spargs or []))
    except ValueError:
        raise ConfigError("want -a NAME=VALUE") from None


def _check(args: FrontierArguments) -> CommandOutput:
    checked = args.client.check(bool(args.opts.repair))
    rebuilt = checked.rebuilt
    text = [] if rebuilt is None else repair_text(rebuilt, checked.unread)
    lines = check_text(checked.counters, checked.is_repaired, checked.uncounted)
    return checked, chain(text, lines)


def _seen(args: FrontierArguments) -> CommandOutput:
    if args.opts.begin is None:
        raise UsageError("seen needs --from FILE, an index (CDXJ) of another crawl")
    taken = args.client.take_over(Path(args.opts.begin))
    lines = [f"{many(taken.lines, 'URL')} read, {many(taken.new, 'URL')} of them not seen before"]
    if taken.unreadable:
        lines.append(f"{many(taken.unreadable, 'line')} left out: no http or https URL")
    return taken, lines


def _snapshot(args: FrontierArguments) -> CommandOutput:
    made = args.client.snapshot(Path(args.word or ""))
    return made, snapshot_text(made)


def _report(args: FrontierArguments) -> CommandOutput:
    path = data_dir(args.settings, args.config)
    with args.place.view() as view:
        counts = frontier_counts(view.counts())
    folders = worker_folders(path) or [path]
    file = Path(args.opts.output or path / REPORT)
    is_running = any(lock_owner(folder) is not None for folder in folders)
    try:
        write_report(file, crawl_facts(path, folders, counts, is_running=is_running))
    except OSError as refused:
        raise ConfigError(f"the report {file} cannot be written: {refused}") from refused
    return {"report": str(file)}, [f"{file}: the whole crawl, for a browser"]


def _act(args: FrontierArguments) -> CommandOutput:
    given, opts = args.words, args.opts
    words = _urls_of(given[1:]) if given[0] == "add" else given[1:]
    if given[0] == "rules":
        if len(words) != 1:
            raise UsageError("rules takes one FILE")
        words = [RulesFile(existing(Path(words[0]))).read()]
    if opts.archive and given[0] != "purge":
        raise UsageError(f"{given[0]} takes no --archive")
    if opts.archive:
        _refuse_while_crawling(args)
    request = msgspec.structs.replace(
        read_words(given[0], words),
        level=opts.level,
        again=bool(opts.again),
        dry_run=bool(opts.dry_run),
    )
    if (data_dir(args.settings, args.config) / SERVED).exists():
        return _act_on_served(args, request)
    answer = args.client.act(request)
    if request.verb != "purge" or request.dry_run:
        return answer, [answer.said]
    place = archive_of(args.settings, args.config)
    targets = list(map(read_target, request.targets))
    print(answer.said, file=sys.stderr)
    if opts.archive:
        done = list(purge_archive(place, companions(args.config), targets))
        done += purge_shared_changes(args.place, targets)
        return done, chain.from_iterable((each.line, *fault_lines(each.faults)) for each in done)
    found = list(deletion_records(place, targets))
    for note in place.missing_notes():
        print(note, file=sys.stderr)
    return found, [msgspec.json.encode(each).decode() for each in found]


def _act_on_served(args: FrontierArguments, request: ActRequest) -> CommandOutput:
    """Purge URLs of what is served to other crawlers."""
    if request.verb != "purge" or request.dry_run:
        raise ConfigError(
            f"{args.place.path} holds what is served to other crawlers, who steer it by the URL"
            " Frontier protocol: here its URLs can be purged only, when it is not served"
        )
    targets, limits = list(map(read_target, request.targets)), frontier_limits(args.config)
    with closing(DataDir(args.place.path)) as data:
        now = max(time.time(), latest_time(data))
        urls = purge_served(
            data, limits, lambda url: any(each.matches(url) for each in targets), now
        )
    return {"urls": urls}, [f"purged {many(urls, 'URL')}"]


def _refuse_while_crawling(args: FrontierArguments) -> None:
    """Raise ConfigError if the archive is being written: nothing is done by halves."""
    path = data_dir(args.settings, args.config)
    for folder in (path, *worker_folders(path)):
        if (process := lock_owner(folder)) is not None:
            raise ConfigError(
                f"the crawl in {folder} (process {process}) writes the archive: purge without"
                " --archive now, and with it when the crawl has ended"
            )


def _urls_of(words: Sequence[str]) -> list[str]:
    """Return the URLs of *words*, of which each is a URL or a file of them."""
    urls: list[str] = []
    for word in words:
        with closing(open_seeds(word)) as seeds:
            for line in seeds.read():
                if isinstance(line, BadLine):
                    raise ConfigError(f"{seeds.source} line {line.number}: {line.reason}")
                urls.append(line if isinstance(line, str) else line.url)
    return urls


def _workers(args: FrontierArguments) -> CommandOutput:
    name = args.opts.forget
    if name is not None:
        links = args.client.forget(name)
        return {"forgotten": name, "links": links}, [
            f"{name} is forgotten, and with it {many(links, 'link')} on its disk"
        ]
    if not args.place.is_shared:
        raise ConfigError(
            f"the frontier of {args.place.path} has no workers: they share one that is in Redis"
            " (CRAWLER_FRONTIER_URL)"
        )
    with args.place.view() as view:
        now = view.now()
        found, unowned = worker_rows(view.workers(), now), view.unowned_shards()
    return found, workers_text(found, unowned, now)


_FOLLOW_S: Final = 0.5  # between two looks for new entries


def _changes(args: FrontierArguments) -> CommandOutput:
    opts, now = args.opts, time.time()
    if opts.forget is not None:
        with args.place.changes() as feed:
            feed.forget(opts.forget)
        return {"forgotten": opts.forget}, [f"{opts.forget} is no consumer any more"]
    if opts.consumers:
        with args.place.changes() as feed:
            found, last = feed.consumers(), feed.last()
            rows = [(each, feed.lag_of(each)) for each in found]
        return found, consumers_text(rows, last, now)
    begin = None if opts.begin is None else _entry_number("--from", opts.begin)
    if opts.consumer is not None:
        check_name(opts.consumer)
    if opts.taken is not None:
        if opts.consumer is None:
            raise UsageError("--taken needs --consumer NAME")
        with args.place.changes() as feed:
            return _note_taken(feed, opts.consumer, _entry_number("--taken", opts.taken), now)
    if opts.limit is not None and opts.limit < 1:
        raise UsageError("--limit takes a number of entries, from 1")
    if opts.json:
        raise UsageError("changes are JSON lines already: leave out --json")
    return None, _entries(args.place, begin, opts, now)


def _entry_number(option: str, given: str | int) -> int:
    if not str(given).isdecimal() or not int(given):
        raise UsageError(f"{option} takes the number of an entry, from 1")
    return int(given)


def _note_taken(feed: Changes, name: str, taken: int, now: float) -> CommandOutput:
    known, last = feed.consumer(name), feed.last()
    if known is None:
        raise ConfigError(f"no consumer is called {name}: it begins with --consumer {name}")
    if taken > last:
        raise ConfigError(f"{feed.where} ends at entry {last:,}, before {taken:,}")
    taken = max(taken, known.taken)
    feed.move(name, taken, now)
    return {"name": name, "taken": taken}, [f"{name} has taken {taken:,} of {last:,} entries"]


def _entries(
    place: CrawlPlace, begin: int | None, opts: argparse.Namespace, now: float
) -> Iterator[str]:
    """Yield the entries that are asked for, and remember a new consumer before the first."""
    with place.changes() as feed, suppress(KeyboardInterrupt):
        known = feed.consumer(opts.consumer) if opts.consumer is not None else None
        after = begin - 1 if begin is not None else known.taken if known is not None else 0
        reader, left = feed.reader(after), opts.limit
        if opts.consumer is not None and (known is None or begin is not None):
            feed.move(opts.consumer, after, now)
        waits_for = ""
        while True:
            try:
                for entry in islice(reader.read(), left):
                    yield entry.line.decode()
                    left = None if left is None else left - 1
            except StoreUnavailable as fault:
                if not opts.follow:
                    raise
                if waits_for != str(fault):
                    print(f"Waiting: {fault}", file=sys.stderr)
                waits_for = str(fault)
            if not opts.follow or left == 0:
                return
            sys.stdout.flush()
            time.sleep(_FOLLOW_S)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


Action = Callable[[FrontierArguments], CommandOutput]

_MAY_TAKE: Final = "one HOST or URL, or nothing"
_OPTIONS_OF_VERBS: Final = frozenset({"level", "again", "dry_run", "archive"})


def _serve(args: FrontierArguments) -> CommandOutput:
    try:
        from crawler.cli import serve  # noqa: PLC0415  # grpc is not installed with the rest
    except ModuleNotFoundError as missing:
        if missing.name not in ("grpc", "google"):
            raise
        raise ConfigError(
            f"serve needs the package {missing.name}: pip install 'gossamer-crawler[urlfrontier]'"
        ) from None
    opts = args.opts
    options = serve.ServeOptions(
        args.word or serve.ADDRESS,
        Path(opts.certificate) if opts.certificate else None,
        Path(opts.key) if opts.key else None,
        opts.metrics,
    )
    status = serve.serve(args.settings, args.config, options, opts.spargs or ())
    if status:
        sys.exit(status)
    return None, ()


_ACTIONS: Final = MappingProxyType(
    {  # function, what it takes, options
        "counts": (_counts, "", frozenset[str]()),
        "now": (_now, "", frozenset({"top", "host"})),
        "hosts": (
            _hosts,
            "",
            frozenset(
                {"top", "host", "sort", "match", "offset", "address", "state", "failure", "pace"}
            ),
        ),
        "domains": (_domains, "", frozenset({"top", "sort", "match", "offset"})),
        "dead": (_dead, "", frozenset({"limit"})),
        "audit": (_audit, "", frozenset({"limit"})),
        "retry": (_retry, "one URL", frozenset({"all"})),
        "why": (_why, "one URL", frozenset({"spargs"})),
        "fresh": (_fresh, _MAY_TAKE, frozenset[str]()),
        "plan": (_plan, "", frozenset({"top", "per_host", "per_domain", "output", "spargs"})),
        "check": (_check, "", frozenset({"repair"})),
        "seen": (_seen, "", frozenset({"begin"})),
        "snapshot": (_snapshot, "one FOLDER", frozenset[str]()),
        "report": (_report, "", frozenset({"output"})),
        "changes": (
            _changes,
            "",
            frozenset({"begin", "limit", "consumer", "taken", "follow", "consumers", "forget"}),
        ),
        "workers": (_workers, "", frozenset({"forget"})),
        "serve": (_serve, _MAY_TAKE, frozenset({"certificate", "key", "metrics", "spargs"})),
    }
)
_OPTIONS: Final = _OPTIONS_OF_VERBS.union(*(options for _, _, options in _ACTIONS.values()))
_OTHER_NAMES: Final = {"spargs": "-a", "begin": "--from", "output": "-o"}
