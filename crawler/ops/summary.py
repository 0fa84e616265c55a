"""The summary of a run, as one value. docs/summary.md names every key of it.

Rule: taken from what is in memory and from the names of the archive's files; by the time it
is made, the stores are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler import rules
from crawler.core.types import Counts
from crawler.core.version import VERSION
from crawler.ops.endings import ending
from crawler.parts import Parts
from crawler.scheduler.rules import FrontierRules
from crawler.storage.delivery.delivery import Delivery
from crawler.tally import Tally

FORMAT: Final = 1
_TOP_HOSTS: Final = 10
TOP_OVER_BUDGET: Final = 5


class HostPages(msgspec.Struct, frozen=True):
    host: str
    pages: int


class DeadUrl(msgspec.Struct, frozen=True):
    url: str
    reason: str


class OverBudget(msgspec.Struct, frozen=True):
    """Links that one host or domain had beyond its budget of URLs."""

    setting: str
    limit: int
    name: str  # of the host or domain
    links: int


class Links(msgspec.Struct, frozen=True):
    new: int
    seen: int
    over_budget: int
    refused: dict[str, int]  # by rule; seeds and redirects among them
    left: int = 0  # waiting ones, unfetched: their pattern had brought enough
    top_over_budget: list[OverBudget] = []  # those with most links beyond their budget
    refused_waiting: dict[str, int] = {}  # waiting ones, unfetched: by rule of this start
    readmitted: int = 0  # that earlier starts refused, and that wait again


class Politeness(msgspec.Struct, frozen=True):
    rests: dict[str, int]  # by what made them as long as they were
    hosts_given_up: int


class Robots(msgspec.Struct, frozen=True):
    fetched: int
    disallowed: int  # URLs
    unreachable: int  # URLs


class ArchiveFiles(msgspec.Struct, frozen=True):
    folder: str
    files: int  # that are there
    bytes: int
    delivered: int = 0  # files of this run, index and columns among them
    store: str = ""  # where they were brought; empty: nowhere


class FrontierCounts(msgspec.Struct, frozen=True):
    waiting: int
    later: int
    leased: int
    seen: int
    done: int
    dead: int
    put_back_at_open: int
    refused: int = 0  # that waited, and that a rule keeps out; put back by a start without it


class BodyPauses(msgspec.Struct, frozen=True):
    """Of downloads, and of bodies to be decoded, that waited for memory."""

    times: int = 0
    total_s: float = 0.0


class Summary(msgspec.Struct, frozen=True):
    format: int
    version: str
    spider: str
    reason: str  # Scrapy's finish reason
    ended: str  # the same in words
    unfinished: bool  # the same command, run again, goes on
    started_at: str  # ISO 8601, UTC
    duration_s: float
    pages: int
    pages_per_s: float
    bytes: int
    duplicates: int
    near_duplicates: int
    not_pages: dict[str, int]  # answers that are none, by what is wrong with them
    answers: dict[str, int]  # by class of status
    top_hosts: list[HostPages]
    links: Links
    politeness: Politeness
    robots: Robots
    errors: dict[str, int]
    dead_letters: int  # of the whole crawl
    dead_letters_new: list[DeadUrl]  # the first of this run
    archive: ArchiveFiles
    frontier: FrontierCounts
    data_dir: str
    pauses: BodyPauses = BodyPauses()
    truncated: dict[str, int] = {}  # answers that are not whole, by why, as WARC-Truncated
    unreadable: dict[str, int] = {}  # pages stored without their text and links, by parser


def summary_of(
    parts: Parts, spider: str, reason: str, started_at: float, ended_at: float
) -> Summary:
    """*started_at* and *ended_at*: epoch seconds."""
    tally, counts = parts.tally, parts.frontier.counts()
    duration_s = max(ended_at - started_at, 0.001)
    return Summary(
        format=FORMAT,
        version=VERSION,
        spider=spider,
        reason=reason,
        ended=ending(reason, str(parts.failure or "")),
        unfinished=counts.waiting + counts.later + counts.leased > 0,
        started_at=datetime.fromtimestamp(started_at, UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        pages=tally.pages,
        pages_per_s=round(tally.pages / duration_s, 3),
        bytes=tally.bytes,
        duplicates=tally.duplicates,
        near_duplicates=tally.counted["near_duplicates"],
        not_pages=_below(tally.counted, "flaw/"),
        answers=_below(tally.counted, "status/"),
        top_hosts=[HostPages(*each) for each in tally.by_host.most_common(_TOP_HOSTS)],
        links=_links(tally, rules.frontier_rules(parts.config, parts.arguments)),
        politeness=Politeness(
            _below(tally.counted, "politeness/rest/"), tally.counted["politeness/given_up"]
        ),
        robots=Robots(
            fetched=tally.counted["robots/fetched"],
            disallowed=tally.counted["robots/disallowed"],
            unreachable=tally.counted["robots/unreachable"],
        ),
        errors=_below(tally.counted, "error/"),
        dead_letters=counts.dead,
        dead_letters_new=[DeadUrl(each.url, each.reason) for each in tally.dead],
        archive=delivered(archive_files(parts.data.warc), parts.keeping.delivery),
        frontier=_frontier(counts, parts.put_back_at_open),
        data_dir=str(parts.data.path),
        pauses=BodyPauses(
            tally.counted["memory/pauses"], tally.counted["memory/paused_ms"] / 1_000
        ),
        truncated=_below(tally.counted, "truncated/"),
        unreadable=_below(tally.counted, "parse/unreadable/"),
    )


def archive_files(folder: Path) -> ArchiveFiles:
    """Those of earlier runs among them, and any that could not be finished."""
    sizes = [file.stat().st_size for file in folder.glob("*.warc.gz*")]
    return ArchiveFiles(str(folder), len(sizes), sum(sizes))


def delivered(archive: ArchiveFiles, delivery: Delivery | None) -> ArchiveFiles:
    if delivery is None:
        return archive
    return replace(archive, delivered=delivery.figures.files, store=delivery.destination)


def encoded(summary: Summary) -> bytes:
    """As indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def _links(tally: Tally, limits: FrontierRules) -> Links:
    budgets = {
        "host": ("CRAWLER_MAX_URLS_PER_HOST", limits.max_urls_per_host or 0),
        "domain": ("CRAWLER_MAX_URLS_PER_DOMAIN", limits.max_urls_per_domain or 0),
    }
    return Links(
        new=tally.counted["links/new"],
        seen=tally.counted["links/seen"],
        over_budget=tally.counted["links/over_budget"],
        refused=_below(tally.counted, "refused/"),
        left=tally.counted["patterns/unfetched"],
        top_over_budget=[
            OverBudget(*budgets[unit], name, links)
            for (unit, name), links in tally.kept_out.most_common(TOP_OVER_BUDGET)
        ],
        refused_waiting=_below(tally.counted, "refused_waiting/"),
        readmitted=tally.counted["readmitted"],
    )


def _frontier(counts: Counts, put_back_at_open: int) -> FrontierCounts:
    return FrontierCounts(
        waiting=counts.waiting,
        later=counts.later,
        leased=counts.leased,
        seen=counts.seen,
        done=counts.done,
        dead=counts.dead,
        put_back_at_open=put_back_at_open,
        refused=counts.refused,
    )


def _below(counted: Mapping[str, int], prefix: str) -> dict[str, int]:
    found = {name.removeprefix(prefix): n for name, n in counted.items() if name.startswith(prefix)}
    return dict(sorted(found.items()))
