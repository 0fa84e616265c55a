"""The summary of a run as one value, and as text. docs/summary.md names every key of it.

Rule: it is made from memory and the sizes of the archive's files, as the stores are closed then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.archive.delivery import Delivery
from crawler.assembly.crawl import Crawl
from crawler.crawl.seed_fates import fate_words
from crawler.crawl.stats import CrawlStats
from crawler.data.data_dir import REPORT, SUMMARY
from crawler.data.runs import CountedRuns, RunFigures
from crawler.data.seed_table import SeedRow, SeedTable
from crawler.frontier.open import frontier_rules
from crawler.frontier.port import FrontierRules
from crawler.loop.outcome import words_of
from crawler.model.types import VERSION, Counts
from crawler.policy.scope import RULES, Reason
from crawler.report.endings import NOT_BEGUN, ending
from crawler.report.figures import (
    listed,
    many,
    number,
    plain,
    rate,
    size,
    span,
)
from crawler.report.messages import frontier_command

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
    """The links of one host or domain that exceeded its budget of URLs."""

    setting: str
    limit: int
    name: str  # of the host or domain
    links: int


class LinkFigures(msgspec.Struct, frozen=True):
    new: int
    seen: int
    over_budget: int
    refused: dict[str, int]  # by rule; with seeds and redirects
    left: int = 0  # waiting URLs not fetched, as their pattern had brought enough
    top_over_budget: list[OverBudget] = []  # the hosts and domains with the most such links
    refused_waiting: dict[str, int] = {}  # waiting URLs that a rule of this start refused, by rule
    readmitted: int = 0  # URLs that earlier starts refused, and that wait again


class PolitenessFigures(msgspec.Struct, frozen=True):
    rests: dict[str, int]  # by the reason of their length
    hosts_given_up: int


class RobotsFigures(msgspec.Struct, frozen=True):
    fetched: int
    disallowed: int  # URLs
    unreachable: int  # URLs


class ArchiveFiles(msgspec.Struct, frozen=True):
    folder: str
    files: int  # in the folder
    bytes: int
    delivered: int = 0  # files of this run, with index and columns
    store: str = ""  # the object store they were delivered to; empty: none


class FrontierCounts(msgspec.Struct, frozen=True):
    waiting: int
    later: int
    leased: int
    seen: int
    done: int
    dead: int
    put_back_at_open: int
    refused: int = 0  # waiting URLs that a rule refuses; a start without the rule puts them back
    left: int = 0  # URLs that are not finished, those not decided yet among them


class BodyPauses(msgspec.Struct, frozen=True):
    """Downloads, and bodies to be decoded, that waited for memory."""

    times: int = 0
    total_s: float = 0.0


class WholeCrawl(msgspec.Struct, frozen=True):
    """All runs together."""

    runs: int = 0
    duration_s: float = 0.0  # of all runs, without the time between them
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    duplicates: int = 0
    counters: dict[str, int] = {}  # those of CrawlStats


class SeedFigures(msgspec.Struct, frozen=True):
    """What became of the seeds, of all runs together."""

    fates: dict[str, int] = {}  # seeds by their fate
    failed: list[SeedRow] = []  # the first that lead nowhere
    brought_pages: bool = True  # they, or what was found from them; True if that is not known


class Summary(msgspec.Struct, frozen=True):
    format: int
    version: str
    spider: str
    reason: str  # Scrapy's finish reason
    ended: str  # the reason as a sentence
    unfinished: bool  # the same command continues the crawl
    started_at: str  # ISO 8601, UTC
    duration_s: float
    pages: int
    pages_per_s: float
    bytes: int
    duplicates: int
    near_duplicates: int
    not_pages: dict[str, int]  # answers that are no pages, by flaw
    answers: dict[str, int]  # by class of status
    top_hosts: list[HostPages]
    links: LinkFigures
    politeness: PolitenessFigures
    robots: RobotsFigures
    errors: dict[str, int]
    dead_letters: int  # of the whole crawl
    dead_letters_new: list[DeadUrl]  # the first of this run
    archive: ArchiveFiles
    frontier: FrontierCounts
    data_dir: str
    pauses: BodyPauses = BodyPauses()
    truncated: dict[str, int] = {}  # incomplete answers by reason, as in WARC-Truncated
    unreadable: dict[str, int] = {}  # pages stored without their text and links, by parser
    noindex: int = 0  # pages of which their author wants no copy kept
    whole: WholeCrawl = WholeCrawl()
    runs: list[RunFigures] = []  # the oldest first, with this one
    compiling_s: float = 0.0  # of `duration_s`, which `pages_per_s` does not count
    seeds: SeedFigures = SeedFigures()


def summary_of(
    crawl: Crawl,
    spider: str,
    reason: str,
    started_at: float,
    ended_at: float,
    counted: CountedRuns,
) -> Summary:
    """Make the summary of a run. *started_at* and *ended_at* are epoch seconds; *counted* is of all
    runs."""
    stats, counts = crawl.stats, crawl.leases.frontier.counts()
    duration_s = max(ended_at - started_at, 0.001)
    working_s = min(crawl.content.parsers.ready_s, duration_s) or duration_s
    return Summary(
        format=FORMAT,
        version=VERSION,
        spider=spider,
        reason=reason,
        ended=ending(reason, str(crawl.lifecycle.failure or "")),
        unfinished=counts.left > 0,
        started_at=iso_time(started_at),
        duration_s=round(duration_s, 3),
        pages=stats.pages,
        pages_per_s=round(stats.pages / working_s, 3),
        bytes=stats.bytes,
        duplicates=stats.duplicates,
        near_duplicates=stats.counters["near_duplicates"],
        not_pages=below(stats.counters, "flaw/"),
        answers=below(stats.counters, "status/"),
        top_hosts=[HostPages(*each) for each in stats.by_host.most_common(_TOP_HOSTS)],
        links=_links(stats, frontier_rules(crawl.settings.config, crawl.settings.arguments)),
        politeness=PolitenessFigures(
            below(stats.counters, "politeness/rest/"), stats.counters["politeness/given_up"]
        ),
        robots=RobotsFigures(
            fetched=stats.counters["robots/fetched"],
            disallowed=stats.counters["robots/disallowed"],
            unreachable=stats.counters["robots/unreachable"],
        ),
        errors=below(stats.counters, "error/"),
        dead_letters=counts.dead,
        dead_letters_new=[DeadUrl(each.url, each.reason) for each in stats.dead],
        archive=delivered(archive_files(crawl.storage.data.warc), crawl.storage.archive.delivery),
        frontier=frontier_counts(counts, crawl.leases.put_back_count),
        data_dir=str(crawl.storage.data.path),
        pauses=BodyPauses(
            stats.counters["memory/pauses"], stats.counters["memory/paused_ms"] / 1_000
        ),
        truncated=below(stats.counters, "truncated/"),
        unreadable=below(stats.counters, "parse/unreadable/"),
        noindex=stats.counters["noindex"],
        whole=whole_crawl(counted),
        runs=counted.runs,
        compiling_s=round(duration_s - working_s, 3),
        seeds=seed_figures(stats.seeds.table),
    )


def seed_figures(table: SeedTable) -> SeedFigures:
    return SeedFigures(
        {fate: n for fate, n in sorted(table.counts.items()) if n > 0},
        list(table.failed.values()),
        table.brought_pages or not table.is_whole,
    )


def whole_crawl(counted: CountedRuns) -> WholeCrawl:
    counters = counted.counters
    return WholeCrawl(
        runs=counted.number,
        duration_s=round(counted.total_s, 3),
        pages=counters.get("pages", 0),
        bytes=counters.get("bytes", 0),
        errors=sum(below(counters, "error/").values()),
        duplicates=counters.get("duplicates", 0),
        counters=counters,
    )


def iso_time(at: float) -> str:
    """Return *at* (epoch seconds) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def archive_files(folder: Path) -> ArchiveFiles:
    """Count the WARC files in *folder*, with those of earlier runs and unfinished ones."""
    sizes = [file.stat().st_size for file in folder.glob("*.warc.gz*")]
    return ArchiveFiles(str(folder), len(sizes), sum(sizes))


def delivered(archive: ArchiveFiles, delivery: Delivery | None) -> ArchiveFiles:
    if delivery is None:
        return archive
    return replace(archive, delivered=delivery.figures.files, store=delivery.destination)


def encoded(summary: Summary) -> bytes:
    """Encode *summary* as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


def _links(stats: CrawlStats, limits: FrontierRules) -> LinkFigures:
    budgets = {
        "host": ("CRAWLER_MAX_URLS_PER_HOST", limits.max_urls_per_host or 0),
        "domain": ("CRAWLER_MAX_URLS_PER_DOMAIN", limits.max_urls_per_domain or 0),
    }
    return LinkFigures(
        new=stats.counters["links/new"],
        seen=stats.counters["links/seen"],
        over_budget=stats.counters["links/over_budget"],
        refused=below(stats.counters, "refused/"),
        left=stats.counters["patterns/unfetched"],
        top_over_budget=[
            OverBudget(*budgets[unit], name, links)
            for (unit, name), links in stats.over_budget_links.most_common(TOP_OVER_BUDGET)
        ],
        refused_waiting=below(stats.counters, "refused_waiting/"),
        readmitted=stats.counters["readmitted"],
    )


def frontier_counts(counts: Counts, put_back_at_open: int) -> FrontierCounts:
    """Return *counts* as they stand in the summary."""
    return FrontierCounts(
        waiting=counts.waiting,
        later=counts.later,
        leased=counts.leased,
        seen=counts.seen,
        done=counts.done,
        dead=counts.dead,
        put_back_at_open=put_back_at_open,
        refused=counts.refused,
        left=counts.left,
    )


def below(counted: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return the counters whose names begin with *prefix*, without it."""
    found = {name.removeprefix(prefix): n for name, n in counted.items() if name.startswith(prefix)}
    return dict(sorted(found.items()))


# The summary as text: zero figures are left out, and problems have the command to type beside them.

_INDENT: Final = 14
_REFUSALS_SHOWN: Final = 6
_SEEDS_SHOWN: Final = 5
_TRUNCATED: Final = MappingProxyType(
    {
        "length": "at the cap of their type",
        "time": "out of time",
        "disconnect": "ended early by their servers",
        "unspecified": "ended by bad chunks",
    }
)
_PAUSE: Final = "pause"
_RETRY_AFTER: Final = "retry-after"
_OTHER_RULES: Final = MappingProxyType({"unstorable": "it holds what cannot be stored"})

Row = tuple[str, str]  # with an empty left column the row above continues


def text(summary: Summary) -> str:
    """Return the summary as lines of text, with a newline at the end."""
    shown = ["", f"{plain(summary.ended, 1000)}."]
    if summary.reason in NOT_BEGUN and not summary.pages:
        return "\n".join([*shown, ""])
    if summary.unfinished:
        left = many(summary.frontier.left, "URL")
        shown.append(f"Still to do: {left}. Run the same command again to continue.")
    shown += ["", *(f"{left:{_INDENT}}{right}" for left, right in _rows(summary)), ""]
    return "\n".join(shown)


def nothing_fetched(summary: Summary) -> str:
    """Return why a finished crawl has no page, in one sentence; empty if it has, or is not over."""
    robots, links = summary.robots, summary.links
    if summary.reason == "finished" and summary.pages and not summary.seeds.brought_pages:
        return _no_seed_brought_a_page(summary)
    unfetched = robots.disallowed + links.left
    if summary.reason != "finished" or summary.pages or summary.frontier.done > unfetched:
        return ""
    errors = {kind: n for kind, n in summary.errors.items() if kind != "robots_failed"}
    causes = {
        **{words_of(kind): n for kind, n in (errors or summary.errors).items()},
        **{rule_words(rule): n for rule, n in links.refused.items()},
        **({"robots.txt forbids it": robots.disallowed} if robots.disallowed else {}),
    }
    if not causes and not summary.frontier.seen:
        return (
            f"the spider {summary.spider} made no request: its `async def start` has to yield one"
            " (Scrapy calls no `start_requests` any more), or its `start_urls` to name one"
        )
    if not causes and summary.dead_letters:
        return "no page was fetched: every URL was given up in an earlier run"
    if not causes:
        return ""
    first = "".join(f"; {plain(each.url)}: {each.reason}" for each in summary.dead_letters_new[:1])
    return f"no page was fetched: {listed(causes)}{first}"


def _no_seed_brought_a_page(summary: Summary) -> str:
    named = {fate_words(fate): n for fate, n in summary.seeds.fates.items()}
    first = "".join(f"; {plain(row.seed)}: {plain(row.why)}" for row in summary.seeds.failed[:1])
    return f"no seed brought a page: {listed(named)}{first}"


def _rows(summary: Summary) -> Iterator[Row]:
    yield from _seeds(summary)
    yield from _pages(summary)
    yield from _links_rows(summary)
    yield from _politeness(summary)
    yield from _pauses(summary)
    yield from _failures(summary)
    yield from _kept(summary)


def _seeds(summary: Summary) -> Iterator[Row]:
    seeds = summary.seeds
    if not seeds.fates:
        return
    yield "seeds", listed({fate_words(fate): n for fate, n in seeds.fates.items()})
    for each in seeds.failed[:_SEEDS_SHOWN]:
        led = f" (redirects to {plain(each.url)})" if each.url else ""
        yield "", f"{plain(each.seed)}{led}: {plain(each.why, 1000)}"
    if len(seeds.failed) > _SEEDS_SHOWN:
        yield "", f"further ones: {summary.data_dir}/{REPORT}"


def _pages(summary: Summary) -> Iterator[Row]:
    without = f", without {span(summary.compiling_s)} of compiling" if summary.compiling_s else ""
    took = f"in {span(summary.duration_s)} ({rate(summary.pages_per_s)} a second{without})"
    yield "pages", f"{number(summary.pages)} {took}, {size(summary.bytes)}"
    if summary.answers:
        by_class = [f"{name} {number(n)}" for name, n in sorted(summary.answers.items())]
        yield "answers", ", ".join(by_class)
    yield from _copies(summary)
    width = max((len(number(each.pages)) for each in summary.top_hosts), default=0)
    for index, each in enumerate(summary.top_hosts):
        yield "" if index else "hosts", f"{number(each.pages):>{width}}  {plain(each.host)}"


def _copies(summary: Summary) -> Iterator[Row]:
    if summary.duplicates:
        yield "duplicates", f"{many(summary.duplicates, 'page')} whose content is stored already"
    if summary.near_duplicates:
        near = many(summary.near_duplicates, "page")
        yield "" if summary.duplicates else "duplicates", f"{near} with nearly the same text"
    if summary.not_pages:
        flaws = [f"{number(n)} {flaw.replace('_', ' ')}" for flaw, n in summary.not_pages.items()]
        yield "no pages", ", ".join(flaws)
    if summary.noindex:
        pages = f"{many(summary.noindex, 'page')} marked noindex: only their links are stored"
        yield "not stored", f"{pages} (CRAWLER_RESPECT_NOINDEX)"
    if summary.truncated:
        cut = [f"{number(n)} {_TRUNCATED.get(why, why)}" for why, n in summary.truncated.items()]
        yield "not whole", ", ".join(cut)
    if summary.unreadable:
        by_parser = [f"{number(n)} by {name}" for name, n in summary.unreadable.items()]
        yield "unreadable", f"{', '.join(by_parser)}: stored without their text and links"


def _links_rows(summary: Summary) -> Iterator[Row]:
    links = summary.links
    budget = f", {number(links.over_budget)} over budget" if links.over_budget else ""
    yield "links", f"{number(links.new)} new, {number(links.seen)} seen before{budget}"
    for index, each in enumerate(links.top_over_budget):
        over = f"{many(each.links, 'link')} of {plain(each.name)}, which has its"
        limit = f"{many(each.limit, 'URL')} ({each.setting})"
        yield "" if index else "over budget", f"{over} {limit}"
    ordered = sorted(links.refused.items(), key=lambda pair: -pair[1])
    for index, (rule, n) in enumerate(ordered[:_REFUSALS_SHOWN]):
        yield "" if index else "refused", f"{number(n)}: {rule_words(rule)}"
    if len(ordered) > _REFUSALS_SHOWN:
        yield "", f"{number(sum(n for _, n in ordered[_REFUSALS_SHOWN:]))} by other rules"
    ordered = sorted(links.refused_waiting.items(), key=lambda pair: -pair[1])
    for index, (rule, n) in enumerate(ordered):
        yield "" if index else "kept out", f"{number(n)} that waited: {rule_words(rule)}"
    if ordered:
        yield "", "a start whose rules admit them puts them back"
    if links.readmitted:
        yield "readmitted", f"{many(links.readmitted, 'URL')} that rules of earlier starts refused"
    if links.left:
        yield "left", f"{many(links.left, 'URL')} unfetched, of patterns that have brought enough"


def rule_words(rule: str) -> str:
    """Return *rule*, the name of a counter, with what it means."""
    words = RULES[Reason(rule)] if rule in set(Reason) else _OTHER_RULES.get(rule, "")
    return f"{words} ({rule})" if words else rule


def _politeness(summary: Summary) -> Iterator[Row]:
    polite, robots = summary.politeness, summary.robots
    if polite.rests:
        rests = sum(polite.rests.values())
        yield "politeness", f"{many(rests, 'rest')} of hosts: {listed(polite.rests)}"
    troubles = {
        "hosts paused": polite.rests.get(_PAUSE, 0),
        "hosts given up": polite.hosts_given_up,
        "Retry-After obeyed": polite.rests.get(_RETRY_AFTER, 0),
    }
    notes = [f"{what}: {number(n)}" for what, n in troubles.items() if n]
    if notes:
        yield "", ", ".join(notes)
    left = f", {number(robots.unreachable)} unreachable" if robots.unreachable else ""
    forbidden = f"{many(robots.disallowed, 'URL')} disallowed{left}"
    yield "robots.txt", f"{number(robots.fetched)} fetched; {forbidden}"


def _pauses(summary: Summary) -> Iterator[Row]:
    pauses = summary.pauses
    if pauses.times:
        took = f"{span(pauses.total_s)} in all (CRAWLER_BODIES_MAX_BYTES)"
        yield "pauses", f"{many(pauses.times, 'time')} a body waited for memory, {took}"


def _failures(summary: Summary) -> Iterator[Row]:
    if summary.errors:
        named = {words_of(kind): n for kind, n in summary.errors.items()}
        yield "errors", f"{listed(named)} (each try)"
    if not summary.dead_letters:
        return
    yield "dead letters", f"{many(summary.dead_letters, 'URL')} given up"
    for each in summary.dead_letters_new:
        yield "", f"{plain(each.url)}: {plain(each.reason)}"
    yield "", f"all of them: {frontier_command('dead', summary.data_dir)}"


def _kept(summary: Summary) -> Iterator[Row]:
    archive, frontier = summary.archive, summary.frontier
    yield "archive", f"{many(archive.files, 'file')}, {size(archive.bytes)}, in {archive.folder}"
    if archive.store:
        yield "", f"{many(archive.delivered, 'file')} brought to {plain(archive.store)}"
    later = f", {number(frontier.later)} later" if frontier.later else ""
    ended = f"{number(frontier.done)} done, {number(frontier.dead)} dead"
    if frontier.refused:
        ended += f", {number(frontier.refused)} kept out by rules"
    yield "frontier", f"{number(frontier.waiting)} waiting{later}, {ended}"
    if frontier.put_back_at_open:
        left = number(frontier.put_back_at_open)
        yield "", f"{left} put back at the start: the run before did not finish them"
    yield "as JSON", f"{summary.data_dir}/{SUMMARY}"
    yield "as a page", f"{summary.data_dir}/{REPORT}"
