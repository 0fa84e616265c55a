"""What can be seen of a frontier, as tables a person reads. Rule: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from crawler.core.types import Counts
from crawler.ops.figures import many, number, plain, rate, since, span, until
from crawler.ops.looks import DeadLook, FrontierLook, HostLook, SharedLook, WorkerLook
from crawler.scheduler.recount import Counter


def whole_text(look: FrontierLook) -> Iterator[str]:
    at_work = f"process {look.process} crawls now" if look.process else "no crawl is running"
    yield f"{plain(look.data_dir)}: {at_work}"
    hosts = ("hosts", look.counts.hosts_active, "hosts in memory")
    yield from _counted([*_figures(look.counts), hosts])
    yield from _arguments(look.arguments)


def checked_text(
    counters: Sequence[Counter], is_repaired: bool, uncounted: Sequence[int]
) -> Iterator[str]:
    differing = [each for each in counters if each.differs]
    for each in differing:
        where = "" if each.shard is None else f"shard {each.shard}: "
        yield f"{where}{each.name}: the counter says {each.said:,}, counted {each.counted:,}"
    if differing and is_repaired:
        yield f"{many(len(differing), 'counter')} repaired"
    elif differing:
        yield f"{many(len(differing), 'counter')} differ; scrapy frontier check --repair mends it"
    elif counters:
        yield f"{many(len(counters), 'counter')} counted again: all are right"
    if uncounted:
        shards = ", ".join(map(str, uncounted[:20]))
        yield (
            f"{many(len(uncounted), 'shard')} not counted, because workers changed them all the"
            f" time: {shards}. Stop the workers, and check again"
        )


def shared_text(look: SharedLook) -> Iterator[str]:
    at_work = f"{many(look.workers, 'worker')} at work" if look.workers else "no worker is at work"
    yield f"{plain(look.where)}: {at_work}"
    outbox = ("outbox", look.outbox, "links on workers' disks, until Redis can take them")
    yield from _counted([*_figures(look.counts), outbox])
    yield from _arguments(look.arguments)


def hosts_text(looks: Sequence[HostLook], now: float) -> Iterator[str]:
    head = ("host", "waiting", "next", "last gap", "crawl-delay", "failures", "pauses", "place")
    rows = [_host_row(look, now) for look in looks]
    yield from table([head, *rows], right=set(range(1, 7)))


def workers_text(looks: Sequence[WorkerLook], now: float) -> Iterator[str]:
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
    yield from table([head, *(_worker_row(look, now) for look in looks)], right={2, *range(4, 9)})
    for look in looks:
        if look.state == "silent" and look.outbox:
            yield (
                f"{plain(look.name)} is not heard of, and the crawl does not end while"
                f" {many(look.outbox, 'link')} on its disk may come. Start it again with its data"
                f" directory; if that is lost: scrapy frontier workers --forget {plain(look.name)}"
            )


def dead_text(
    looks: Sequence[DeadLook], total: int, advice: Callable[[str], str], now: float
) -> Iterator[str]:
    """*advice*: what to type for an action."""
    for look in looks:
        yield f"{since(look.at, now):>18}  {plain(look.url)}"
        yield f"{'':18}  {plain(look.reason)}"
    yield f"{number(len(looks))} of {many(total, 'dead letter')}"
    if looks:
        yield f"put one back: {advice('retry URL')}"
        yield f"put all back: {advice('retry --all')}"


def table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    """*rows* in columns; those numbered in *right* end flush."""
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
        ("later", counts.later, "URLs with a date: to be tried again"),
        ("leased", counts.leased, "URLs under way, or cut off by the end of a process"),
        ("seen", counts.seen, "URLs ever admitted"),
        ("done", counts.done, "URLs finished"),
        ("dead", counts.dead, "URLs given up"),
        ("refused", counts.refused, "URLs that waited, and that a rule of the last start refuses"),
    ]


def _arguments(given: Mapping[str, str]) -> Iterator[str]:
    if given:
        told = " ".join(f"-a {plain(name)}={plain(value)}" for name, value in given.items())
        yield f"arguments of the last start: {told}"


def _counted(rows: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    yield from table([(name, number(value), meaning) for name, value, meaning in rows], right={1})


def _worker_row(look: WorkerLook, now: float) -> tuple[str, ...]:
    return (
        plain(look.name, 64),
        plain(look.host, 40),
        str(look.pid),
        plain(look.state, 20),
        number(look.pages),
        rate(look.pages_per_s) if look.pages_per_s else "-",
        number(look.leases),
        number(look.outbox),
        since(look.heard_at, now),
    )


def _host_row(look: HostLook, now: float) -> tuple[str, ...]:
    return (
        plain(look.host, 60),
        number(look.waiting),
        until(look.next_at, now),
        span(look.gap_s),
        span(look.crawl_delay_s) if look.crawl_delay_s else "-",
        number(look.failures),
        number(look.pauses),
        look.place,
    )
