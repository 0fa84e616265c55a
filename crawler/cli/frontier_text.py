"""What `scrapy frontier` prints of a crawl, as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from crawler.data.changes import ConsumerPosition
from crawler.data.data_dir import OUTCOMES
from crawler.data.snapshots import Snapshot
from crawler.frontier.port import SEEN
from crawler.frontier.reader import RecountedCounter
from crawler.frontier.seen_repair import RebuiltSeen
from crawler.model.counts import Counts
from crawler.model.program import PROGRAM
from crawler.view.budgets import DomainRow
from crawler.view.formats import many, number, plain, rate, since, size, span, table, until
from crawler.view.plan import WHY_NOT, PlanFigures, PlannedUrl
from crawler.view.rows import ActRow, DeadLetterRow, FetchRow, HostRow, WorkerRow


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


def overview_text(overview: FrontierOverview) -> Iterator[str]:
    at_work = (
        f"process {overview.process} crawls now" if overview.process else "no crawl is running"
    )
    yield f"{plain(overview.data_dir)}: {at_work}"
    hosts = ("hosts", overview.counts.hosts_active, "hosts in memory")
    yield from _counted([*_figures(overview.counts), hosts])
    yield from _arguments(overview.arguments)


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


def _figures(counts: Counts) -> list[tuple[str, int, str]]:
    return [
        ("waiting", counts.waiting, "URLs that wait for their host's turn"),
        ("undecided", counts.undecided, "URLs found of which it is not known yet if they are new"),
        ("later", counts.later, "URLs with a date: to be tried again"),
        ("leased", counts.leased, "URLs under way, or cut off by the end of a process"),
        ("spilled", counts.spilled - counts.capped, "URLs over their domains' budgets of a round"),
        ("left", counts.left, "URLs that are not finished: the five above"),
        ("capped", counts.capped, "URLs that wait for a start with larger budgets in all"),
        ("sampled out", counts.sampled_out, "URLs over a budget that were not kept, ever"),
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


def hosts_text(hosts: Sequence[HostRow], now: float) -> Iterator[str]:
    """Yield how *hosts* answer."""
    head = (
        *("host", "waiting", "left", "next", "rest", "fetch", "pages", "bytes", "ok", "failures"),
        *("last failure", "when", "place", "address"),
    )
    rows = [
        (
            plain(row.host, 60),
            number(row.waiting),
            "-" if row.left_s is None else span(row.left_s),
            until(row.next_at, now),
            span(max(row.gap_s, row.crawl_delay_s)),
            span(row.fetch_s) if row.fetch_s else "-",
            number(row.pages),
            size(row.bytes),
            "-" if row.success is None else f"{row.success:.0%}",
            number(row.failures),
            row.last_failure or "-",
            since(row.failed_at, now) if row.last_failure else "-",
            row.place,
            row.address or "-",
        )
        for row in hosts
    ]
    yield from table([head, *rows], right={*range(1, 10), 11})


def plan_text(urls: Sequence[PlannedUrl], found: PlanFigures, now: float) -> Iterator[str]:
    """Yield *urls*, and why others are not planned."""
    if urls:
        head = ("level", "weight", "due", "URL")
        rows = [
            (str(each.level), number(each.cash), until(each.due, now), plain(each.url))
            for each in urls
        ]
        yield from table([head, *rows], right={0, 1})
        yield ""
    of_round = f" of round {found.round}" if found.round else ""
    yield f"{many(found.planned, 'URL')} planned{of_round}{'; not planned:' if found.left else ''}"
    if found.left:
        left = [(why, number(n), WHY_NOT[why]) for why, n in found.left.items()]
        yield from table(left, right={1})
    if found.under_way:
        yield (
            f"round {found.under_way} is under way, and this is a plan of a new one: its rest is"
            " planned with the -a round... of its run"
        )


def paces_text(hosts: Sequence[HostRow], now: float) -> Iterator[str]:
    """Yield how often *hosts* may be asked."""
    head = (
        *("host", "waiting", "admitted", "next", "last gap", "crawl-delay", "pauses", "base"),
        *("factor", "at once", "share", "refused", "stage", "place"),
    )
    rows = [
        (
            plain(row.host, 60),
            number(row.waiting),
            number(row.admitted),
            until(row.next_at, now),
            span(row.gap_s),
            span(row.crawl_delay_s) if row.crawl_delay_s else "-",
            number(row.pauses),
            span(row.base_s) if row.base_s else "-",
            f"{row.factor:g}" if row.stage else "-",
            number(row.at_once),
            f"{row.share:.1%}" if row.share else "-",
            f"{span(row.refused_interval_s)} apart" if row.refused_interval_s else "-",
            row.stage or "-",
            row.place,
        )
        for row in hosts
    ]
    yield from table([head, *rows], right=set(range(1, 12)))


def fetches_text(fetches: Sequence[FetchRow], top: int) -> Iterator[str]:
    """Yield the first *top* of all *fetches*."""
    if not fetches:
        yield "nothing is fetched now"
        return
    rows = [
        (
            plain(each.host, 60),
            span(each.seconds),
            "-" if each.bytes is None else size(each.bytes),
            span(each.usual_s) if each.usual_s else "-",
            "hung" if each.is_hung else each.stage or "-",
            plain(each.worker, 64) or "-",
            plain(each.url),
        )
        for each in fetches[:top]
    ]
    head = ("host", "for", "bytes", "usual", "state", "worker", "URL")
    yield from table([head, *rows], right={1, 2, 3})
    hung, cut_off = (
        sum(each.is_hung for each in fetches),
        sum(each.stage == "cut off" for each in fetches),
    )
    more = f", {number(hung)} of them hung" if hung else ""
    yield f"{many(len(fetches), 'URL')} under way{more}"
    if cut_off:
        yield f"cut off: {many(cut_off, 'URL')} of processes that ended; they are fetched again"


def domains_text(domains: Sequence[DomainRow], now: float) -> Iterator[str]:
    head = (
        *("domain", "rank", "linked by", "budget", "used", "next round"),
        *("admitted", "most", "spilled", "sampled out", "kept"),
    )
    yield from table([head, *(_domain_row(row, now) for row in domains)], right=set(range(1, 11)))


def _domain_row(row: DomainRow, now: float) -> tuple[str, ...]:
    return (
        plain(row.domain, 60),
        number(row.rank),
        number(row.linked_by),
        "-" if row.budget is None else number(row.budget),
        number(row.used),
        "-" if row.budget is None else until(row.next_round_at, now),
        number(row.admitted),
        "-" if row.most is None else number(row.most),
        number(row.spilled),
        number(row.sampled_out),
        f"{row.kept_share:.3g}",
    )


def workers_text(records: Sequence[WorkerRow], unowned: int, now: float) -> Iterator[str]:
    """*unowned*: shards without an owner."""
    head = (
        "worker",
        "machine",
        "process",
        "state",
        "pages",
        "pages/s",
        "shards",
        "leases",
        "outbox",
        "last seen",
    )
    yield from table(
        [head, *(_worker_row(record, now) for record in records)], right={2, *range(4, 10)}
    )
    for record in records:
        if record.state == "silent" and record.outbox:
            yield (
                f"{plain(record.name)} is silent, and the crawl does not end while"
                f" {many(record.outbox, 'link')} on its disk may come. Start it again with its data"
                f" directory; if that is lost: {PROGRAM} frontier workers --forget"
                f" {plain(record.name)}"
            )
    if unowned:
        yield (
            f"{many(unowned, 'shard')} without an owner: none of their hosts is contacted until a"
            " worker has taken them over"
        )


def _worker_row(row: WorkerRow, now: float) -> tuple[str, ...]:
    return (
        plain(row.name, 64),
        plain(row.host, 40),
        str(row.pid),
        plain(row.state, 20),
        number(row.pages),
        rate(row.pages_per_s) if row.pages_per_s else "-",
        number(row.shards),
        number(row.leases),
        number(row.outbox),
        since(row.heard_at, now),
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


def consumers_text(
    found: Sequence[tuple[ConsumerPosition, int]], last: int, now: float
) -> Iterator[str]:
    """*found*: each with how many entries it is behind. *last*: the number of the last entry of the
    change feed."""
    rows = [
        (each.name, number(each.taken), number(behind), since(each.at, now))
        for each, behind in found
    ]
    yield from table([("consumer", "taken", "behind", "said"), *rows], right={1, 2})
    yield f"{many(len(found), 'consumer')}; the change feed ends at entry {number(last)}"


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


_REPAIR: Final = f"; {PROGRAM} frontier check --repair corrects them"
_SHARED_REPAIR: Final = (
    ". A worker counts again when it takes a shard over: stop all workers, start them again, and"
    " check again"
)


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
        is_shared = any(each.shard is not None for each in differing)
        yield f"{many(len(differing), 'counter')} differ{_SHARED_REPAIR if is_shared else _REPAIR}"
    elif counters:
        yield f"{many(len(counters), 'counter')} counted again: all are right"
    if uncounted:
        shards = ", ".join(map(str, uncounted[:20]))
        yield (
            f"{many(len(uncounted), 'shard')} not counted, because workers changed them all the"
            f" time: {shards}. Stop the workers, and check again"
        )


def repair_text(repaired: RebuiltSeen, unread: Sequence[str]) -> Iterator[str]:
    for name in repaired.set_aside:
        yield f"{SEEN}/{name} is set aside; nothing reads it any more"
    yield f"{many(repaired.damaged, 'key')} of seen URLs were in what is damaged. Found again:"
    yield f"  {number(repaired.held)} of URLs that wait, or that the frontier keeps"
    yield f"  {number(repaired.fetched)} of URLs in {OUTCOMES} and in the archive's index"
    yield (
        f"  {number(repaired.lost)} of no URL that is known: at most so many pages may be fetched"
        f" again. An index that is elsewhere: {PROGRAM} frontier seen --from FILE.cdxj"
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
