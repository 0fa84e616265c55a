"""What can be seen of a frontier, as tables a person reads. Rule: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crawler.ops.advice import frontier_command
from crawler.ops.figures import many, number, plain, since, span, until
from crawler.ops.looks import DeadLook, FrontierLook, HostLook


def whole_text(look: FrontierLook) -> Iterator[str]:
    counts = look.counts
    at_work = f"process {look.process} crawls now" if look.process else "no crawl is running"
    yield f"{plain(look.data_dir)}: {at_work}"
    rows = (
        ("waiting", counts.waiting, "URLs that wait for their host's turn"),
        ("later", counts.later, "URLs with a date: to be tried again"),
        ("leased", counts.leased, "URLs under way, or cut off by the end of a process"),
        ("seen", counts.seen, "URLs ever admitted"),
        ("done", counts.done, "URLs finished"),
        ("dead", counts.dead, "URLs given up"),
        ("hosts", counts.hosts_active, "hosts in memory"),
    )
    yield from table([(name, number(value), meaning) for name, value, meaning in rows], right={1})


def hosts_text(looks: Sequence[HostLook], now: float) -> Iterator[str]:
    head = ("host", "waiting", "next", "last gap", "crawl-delay", "failures", "pauses", "place")
    rows = [_host_row(look, now) for look in looks]
    yield from table([head, *rows], right=set(range(1, 7)))


def dead_text(looks: Sequence[DeadLook], total: int, path: str, now: float) -> Iterator[str]:
    for look in looks:
        yield f"{since(look.at, now):>18}  {plain(look.url)}"
        yield f"{'':18}  {plain(look.reason)}"
    yield f"{number(len(looks))} of {many(total, 'dead letter')}"
    if looks:
        yield f"put one back: {frontier_command('retry URL', path)}"
        yield f"put all back: {frontier_command('retry --all', path)}"


def table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    """*rows* in columns; those numbered in *right* end flush."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


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
