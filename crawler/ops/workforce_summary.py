"""The summary of a run of many workers: theirs added up, and the crawl's own counts.

Rule: pure but for reading what the workers wrote. A life that ended without a summary (kill -9)
is counted by what it said last: pages, bytes, errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.core.types import Counts
from crawler.core.version import VERSION
from crawler.ops.endings import FAILED, ending
from crawler.ops.summary import (
    FORMAT,
    TOP_OVER_BUDGET,
    ArchiveFiles,
    BodyPauses,
    DeadUrl,
    FrontierCounts,
    HostPages,
    Links,
    OverBudget,
    Politeness,
    Robots,
    Summary,
)
from crawler.storage.local.datadir import SUMMARY, WARC
from crawler.storage.redis.worker_record import WorkerSaid

KILLED: Final = "killed"  # what errors of lives without a summary are counted as
_TOP_HOSTS: Final = 10
_DEAD: Final = 5
_FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is known when all have ended."""

    spider: str
    data_dir: Path
    began_at: float  # epoch seconds
    ended_at: float
    is_stopped: bool  # somebody asked for it
    failure: str
    counts: Counts  # of the whole crawl
    killed: Sequence[WorkerSaid]  # lives without a summary


def read_summary(folder: Path, began_at: float) -> Summary | None:
    """Of the worker in *folder*. None: in this run, which began then, it has written none."""
    file = folder / SUMMARY
    try:
        if file.stat().st_mtime < began_at:
            return None
        return msgspec.json.decode(file.read_bytes(), type=Summary)
    except (OSError, msgspec.MsgspecError):
        return None


def summary_of_all(run: Run, parts: Sequence[Summary], folders: Iterable[Path]) -> Summary:
    reason, ended = _end(run, parts)
    duration_s = max(run.ended_at - run.began_at, 0.001)
    counts, killed = run.counts, run.killed
    pages = _total(parts, lambda part: part.pages) + sum(said.pages for said in killed)
    return Summary(
        format=FORMAT,
        version=VERSION,
        spider=run.spider,
        reason=reason,
        ended=ended,
        unfinished=counts.waiting + counts.later + counts.leased > 0,
        started_at=datetime.fromtimestamp(run.began_at, UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        pages=pages,
        pages_per_s=round(pages / duration_s, 3),
        bytes=_total(parts, lambda part: part.bytes) + sum(said.bytes for said in killed),
        duplicates=_total(parts, lambda part: part.duplicates),
        near_duplicates=_total(parts, lambda part: part.near_duplicates),
        not_pages=_sum(part.not_pages for part in parts),
        truncated=_sum(part.truncated for part in parts),
        unreadable=_sum(part.unreadable for part in parts),
        answers=_sum(part.answers for part in parts),
        top_hosts=_top(parts),
        links=_links(parts),
        politeness=Politeness(
            _sum(part.politeness.rests for part in parts),
            _total(parts, lambda part: part.politeness.hosts_given_up),
        ),
        robots=_robots(parts),
        errors=_sum([*(part.errors for part in parts), _unnamed(killed)]),
        dead_letters=counts.dead,
        dead_letters_new=_dead(parts),
        archive=_archive(run.data_dir, folders, parts),
        frontier=_frontier(counts, _total(parts, lambda part: part.frontier.put_back_at_open)),
        data_dir=str(run.data_dir),
        pauses=_pauses(parts),
    )


def _end(run: Run, parts: Sequence[Summary]) -> tuple[str, str]:
    """Why it ended, in a word and in words: what failed counts before what did not."""
    told = {part.reason: part.ended for part in parts}
    failed = next((reason for reason in told if reason in FAILED), None)
    if failed is not None:
        return failed, told[failed]
    if run.failure:
        return "store_failed", ending("store_failed", run.failure)
    if run.is_stopped:
        return "shutdown", ending("shutdown")
    others = [reason for reason in told if reason != _FINISHED]
    reason = others[0] if others else _FINISHED
    return reason, told.get(reason, ending(reason))


def _total(parts: Iterable[Summary], figure: Callable[[Summary], int]) -> int:
    return sum(map(figure, parts))


def _sum(counted: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(each)
    return dict(sorted(total.items()))


def _top(parts: Iterable[Summary]) -> list[HostPages]:
    """Of each worker's first ten: a host is nearly always at one, which prefers it."""
    total = _sum({each.host: each.pages for each in part.top_hosts} for part in parts)
    return [HostPages(*each) for each in Counter(total).most_common(_TOP_HOSTS)]


def _links(parts: Sequence[Summary]) -> Links:
    return Links(
        new=_total(parts, lambda part: part.links.new),
        seen=_total(parts, lambda part: part.links.seen),
        over_budget=_total(parts, lambda part: part.links.over_budget),
        refused=_sum(part.links.refused for part in parts),
        left=_total(parts, lambda part: part.links.left),
        top_over_budget=_over_budget(parts),
        refused_waiting=_sum(part.links.refused_waiting for part in parts),
        readmitted=_total(parts, lambda part: part.links.readmitted),
    )


def _over_budget(parts: Iterable[Summary]) -> list[OverBudget]:
    """Of each worker's first."""
    found: dict[tuple[str, str], OverBudget] = {}
    for each in (each for part in parts for each in part.links.top_over_budget):
        known = found.get((each.setting, each.name))
        links = each.links + (known.links if known else 0)
        found[each.setting, each.name] = replace(each, links=links)
    return sorted(found.values(), key=lambda each: -each.links)[:TOP_OVER_BUDGET]


def _robots(parts: Sequence[Summary]) -> Robots:
    return Robots(
        fetched=_total(parts, lambda part: part.robots.fetched),
        disallowed=_total(parts, lambda part: part.robots.disallowed),
        unreachable=_total(parts, lambda part: part.robots.unreachable),
    )


def _pauses(parts: Sequence[Summary]) -> BodyPauses:
    total_s = sum(part.pauses.total_s for part in parts)
    return BodyPauses(_total(parts, lambda part: part.pauses.times), round(total_s, 3))


def _unnamed(killed: Iterable[WorkerSaid]) -> dict[str, int]:
    errors = sum(said.errors for said in killed)
    return {KILLED: errors} if errors else {}


def _dead(parts: Iterable[Summary]) -> list[DeadUrl]:
    return [letter for part in parts for letter in part.dead_letters_new][:_DEAD]


def _archive(data_dir: Path, folders: Iterable[Path], parts: Sequence[Summary]) -> ArchiveFiles:
    sizes = [file.stat().st_size for each in folders for file in (each / WARC).glob("*.warc.gz*")]
    return ArchiveFiles(
        *(str(data_dir / "workers" / "*" / WARC), len(sizes), sum(sizes)),
        delivered=_total(parts, lambda part: part.archive.delivered),
        store=next((part.archive.store for part in parts if part.archive.store), ""),
    )


def _frontier(counts: Counts, put_back: int) -> FrontierCounts:
    return FrontierCounts(
        waiting=counts.waiting,
        later=counts.later,
        leased=counts.leased,
        seen=counts.seen,
        done=counts.done,
        dead=counts.dead,
        put_back_at_open=put_back,
        refused=counts.refused,
    )
