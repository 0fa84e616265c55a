"""The summary of a run as one value, and as text. docs/summary.md names every key of it.

Rule: it is made from memory and the sizes of the archive's files, as the stores are closed then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, starmap
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.assembly.crawl import Crawl
from crawler.data.data_dir import REPORT, SUMMARY
from crawler.data.runs import CountedRuns, RunFigures
from crawler.data.seed_fates import SeedRow, SeedTable, fate_words
from crawler.engine.lifecycle import FINISHED, UNTIL
from crawler.loop.outcome import words_of
from crawler.model.counts import (
    TOP_HOSTS,
    Counts,
    DeadUrl,
    Figures,
    HostChanges,
    HostPages,
    OverBudget,
)
from crawler.model.types import VERSION
from crawler.policy.refusal import RULES, Reason
from crawler.policy.rounds import ROUND_ENDS, RoundEnd
from crawler.report.endings import NOT_BEGUN, ending
from crawler.report.messages import frontier_command
from crawler.view.formats import (
    listed,
    many,
    number,
    plain,
    rate,
    size,
    span,
)

FORMAT: Final = 1


class LinkFigures(msgspec.Struct, frozen=True):
    new: int
    seen: int
    over_budget: int  # that wait, or were not kept
    refused: dict[str, int]  # by rule; with seeds and redirects
    left: int = 0  # waiting URLs not fetched, as their pattern had brought enough
    top_over_budget: list[OverBudget] = []  # the hosts and domains with the most such links
    refused_waiting: dict[str, int] = {}  # waiting URLs that a rule of this start refused, by rule
    readmitted: int = 0  # URLs that earlier starts refused, and that wait again
    released: int = 0  # URLs that waited for a budget, and were queued


class PolitenessFigures(msgspec.Struct, frozen=True):
    rests: dict[str, int]  # by the reason of their length
    hosts_given_up: int
    hosts_left: int = 0  # as they do not welcome us, until an operator puts them back
    challenges: dict[str, int] = {}  # answers in which hosts refused robots, by signature


class RevisitFigures(msgspec.Struct, frozen=True):
    """Of pages that were visited before."""

    not_modified: int = 0  # have not changed, as their hosts said
    # Hosts that are not asked if pages have changed, since they say of some that they have not
    denying_hosts: int = 0
    repeating_hosts: int = 0  # send pages again that have not changed, though they are asked
    results: dict[str, int] = {}  # visits, by what they found
    fresh: float | None = None  # share of copies that were as the page was, as estimated
    top_changes: list[HostChanges] = []  # hosts whose pages have changed most


class RenderFigures(msgspec.Struct, frozen=True):
    """Pages of which a browser has run the scripts."""

    pages: int = 0
    paid: int = 0  # of these, with more text or links than they were sent with
    links: int = 0  # that only their scripts have brought
    chars: int = 0  # of text that only their scripts have brought
    seconds: float = 0.0  # of work at all of them; two at once count twice
    requests: int = 0  # that were sent for them, beside their own
    left_out: dict[str, int] = {}  # that were not, by reason
    failed: int = 0  # pages that could not be rendered, and are kept as they were sent
    less: int = 0  # of the rendered ones, with less than they were sent with: kept as sent, too


class ExternalFigures(msgspec.Struct, frozen=True):
    """Links out of the scope that were checked, and are no pages."""

    ok: int = 0
    moved: int = 0  # redirects, whose targets count by themselves
    broken: int = 0
    unknown: int = 0  # not asked for, as by robots.txt, or their hosts let no robots in

    @property
    def checked(self) -> int:
        return self.ok + self.moved + self.broken


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
    """What is shown of `Counts`, which explains the fields."""

    waiting: int
    later: int
    leased: int
    seen: int
    done: int
    dead: int
    put_back_at_open: int = 0  # leases of the run before
    refused: int = 0
    left: int = 0
    undecided: int = 0
    again: int = 0
    spilled: int = 0
    capped: int = 0
    spilled_domains: int = 0
    sampled_out: int = 0


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


class HostLeft(msgspec.Struct, frozen=True):
    host: str
    urls: int  # that wait


class RoundFigures(msgspec.Struct, frozen=True):
    """The rounds of the run, and what they have left over."""

    number: int = 0  # of the last one; 0: the run had none
    leased: int = 0  # URLs, in that, by all workers
    ended: dict[str, int] = {}  # rounds that are over, by why
    left: list[HostLeft] = []  # hosts with most left to do


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
    disallowed: dict[str, int] = {}  # pages that are not stored as their publisher asks, by use
    whole: WholeCrawl = WholeCrawl()
    runs: list[RunFigures] = []  # the oldest first, with this one
    compiling_s: float = 0.0  # of `duration_s`, which `pages_per_s` does not count
    seeds: SeedFigures = SeedFigures()
    counters: dict[str, int] = {}  # of this run, as in CrawlStats
    revisits: RevisitFigures = RevisitFigures()
    external: ExternalFigures = ExternalFigures()
    rounds: RoundFigures = RoundFigures()
    rendered: RenderFigures = RenderFigures()

    @property
    def figures(self) -> Figures:
        """What was counted in the run."""
        return Figures(
            self.counters,
            self.top_hosts,
            self.links.top_over_budget,
            self.dead_letters_new,
            self.revisits.top_changes,
        )


PUT_BACK, DELIVERED = "put_back_at_open", "delivered_files"
"""Counters that a run gets at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that has ended, of one process or of many workers: what its summary is made of."""

    spider: str
    reason: str  # Scrapy's finish reason
    ended: str  # the same as a sentence
    began_at: float  # epoch seconds
    ended_at: float  # epoch seconds
    compiling_s: float
    figures: Figures
    counts: Counts
    counted: CountedRuns  # of all runs
    seeds: SeedTable
    data_dir: Path
    archive: ArchiveFiles
    rounds: RoundFigures = RoundFigures()


def ended_run(
    crawl: Crawl,
    spider: str,
    reason: str,
    began_at: float,
    ended_at: float,
    counted: CountedRuns,
) -> EndedRun:
    """Return the run of *crawl* that has ended."""
    delivery, data = crawl.storage.archive.delivery, crawl.storage.data
    last = {PUT_BACK: crawl.leases.put_back_count}
    if delivery is not None:
        last[DELIVERED] = delivery.figures.files
    duration_s = ended_at - began_at
    working_s = min(crawl.content.parsers.ready_s, duration_s) or duration_s
    return EndedRun(
        spider=spider,
        reason=reason,
        ended=ending(reason, str(crawl.lifecycle.failure or "")),
        began_at=began_at,
        ended_at=ended_at,
        compiling_s=duration_s - working_s,
        figures=crawl.stats.figures_with_names() + Figures(last),
        counts=crawl.leases.frontier.counts(),
        counted=counted,
        seeds=crawl.stats.seeds.table,
        data_dir=data.path,
        archive=archive_files(data.warc, delivery.destination if delivery else ""),
        rounds=_rounds_of(crawl),
    )


def _rounds_of(crawl: Crawl) -> RoundFigures:
    frontier = crawl.leases.frontier
    progress = frontier.round_progress()
    if progress is None:
        return RoundFigures()
    left = [HostLeft(each.host, each.waiting) for each in frontier.longest_hosts(TOP_HOSTS)]
    left.sort(key=lambda each: (-each.urls, each.host))
    return RoundFigures(progress.number, progress.of_all, dict(Counter(progress.ended)), left)


def rounds_of_all(parts: Sequence[RoundFigures]) -> RoundFigures:
    """Return the rounds of workers who were in them together. One that was started again knows
    those since then."""
    if not parts:
        return RoundFigures()
    last = max(parts, key=lambda each: (sum(each.ended.values()), each.number, each.leased))
    leased = max(each.leased for each in parts if each.number == last.number)
    urls: dict[str, int] = {}
    for host in chain.from_iterable(each.left for each in parts):  # a shard may have moved
        urls[host.host] = max(host.urls, urls.get(host.host, 0))
    left = sorted(starmap(HostLeft, urls.items()), key=lambda each: (-each.urls, each.host))
    return RoundFigures(last.number, leased, last.ended, left[:TOP_HOSTS])


def summary_of(run: EndedRun) -> Summary:
    figures, counts = run.figures, run.counts
    duration_s = max(run.ended_at - run.began_at, 0.001)
    return Summary(
        format=FORMAT,
        version=VERSION,
        spider=run.spider,
        reason=run.reason,
        ended=run.ended,
        unfinished=counts.left > 0,
        started_at=iso_time(run.began_at),
        duration_s=round(duration_s, 3),
        pages=figures.pages,
        pages_per_s=round(figures.pages / max(duration_s - run.compiling_s, 0.001), 3),
        bytes=figures.bytes,
        duplicates=figures.duplicates,
        near_duplicates=figures["near_duplicates"],
        not_pages=figures.below("flaw/"),
        answers=figures.below("status/"),
        top_hosts=figures.top_hosts,
        links=LinkFigures(
            new=figures["links/new"],
            seen=figures["links/seen"],
            over_budget=figures["links/over_budget"],
            refused=figures.below("refused/"),
            left=figures["patterns/unfetched"],
            top_over_budget=figures.over_budget,
            refused_waiting=figures.below("refused_waiting/"),
            readmitted=figures["readmitted"],
            released=figures["links/released"],
        ),
        politeness=PolitenessFigures(
            figures.below("politeness/rest/"),
            figures["politeness/given_up"],
            figures["politeness/left"],
            figures.below("challenge/"),
        ),
        robots=RobotsFigures(
            fetched=figures["robots/fetched"],
            disallowed=figures["robots/disallowed"],
            unreachable=figures["robots/unreachable"],
        ),
        errors=figures.below("error/"),
        dead_letters=counts.dead,
        dead_letters_new=figures.dead,
        archive=replace(run.archive, delivered=figures[DELIVERED]),
        frontier=frontier_counts(counts, figures[PUT_BACK]),
        data_dir=str(run.data_dir),
        pauses=BodyPauses(figures["memory/pauses"], figures["memory/paused_ms"] / 1_000),
        truncated=figures.below("truncated/"),
        unreadable=figures.below("parse/unreadable/"),
        noindex=figures["noindex"],
        disallowed=figures.below("disallowed/"),
        whole=WholeCrawl(
            runs=run.counted.number,
            duration_s=round(run.counted.total_s, 3),
            counters=run.counted.figures.counters,
            **run.counted.figures.totals,
        ),
        runs=run.counted.runs,
        compiling_s=round(run.compiling_s, 3),
        seeds=SeedFigures(
            {fate: n for fate, n in sorted(run.seeds.counts.items()) if n > 0},
            list(run.seeds.failed.values()),
            run.seeds.brought_pages or not run.seeds.is_whole,
        ),
        counters=dict(sorted(figures.counters.items())),
        revisits=RevisitFigures(
            not_modified=figures["revisits/not_modified"],
            denying_hosts=figures["revisits/denies"],
            repeating_hosts=figures["revisits/repeats"],
            results=figures.below("revisits/result/"),
            fresh=fresh_share(figures),
            top_changes=figures.top_changes,
        ),
        external=ExternalFigures(**figures.below("external/")),
        rounds=run.rounds,
        rendered=render_figures(figures),
    )


def render_figures(figures: Figures) -> RenderFigures:
    return RenderFigures(
        pages=figures["render/pages"],
        paid=figures["render/paid"],
        links=figures["render/links"],
        chars=figures["render/chars"],
        seconds=figures["render/ms"] / 1_000,
        requests=figures["render/requests"],
        left_out=figures.below("render/left_out/"),
        failed=figures["render/failed"],
        less=figures["render/less"],
    )


def fresh_share(figures: Figures) -> float | None:
    """Return the share of copies that were as the page was, as later visits have shown; None if
    there were none."""
    interval_s = figures["revisits/interval_s"]
    return round(1.0 - figures["revisits/stale_s"] / interval_s, 4) if interval_s else None


def frontier_counts(counts: Counts, put_back_at_open: int = 0) -> FrontierCounts:
    """Return *counts* as they stand in the summary."""
    shown = msgspec.convert(counts, FrontierCounts, from_attributes=True)
    return replace(shown, put_back_at_open=put_back_at_open)


def iso_time(at: float) -> str:
    """Return *at* (epoch seconds) as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def archive_files(place: Path, store: str = "", folders: Iterable[Path] = ()) -> ArchiveFiles:
    """Count the WARC files in *place*, those of earlier runs and unfinished ones among them. It may
    be a name for *folders*. *store*: where they are delivered to; empty: nowhere."""
    found = (file for each in folders or [place] for file in each.glob("*.warc.gz*"))
    sizes = [file.stat().st_size for file in found]
    return ArchiveFiles(str(place), len(sizes), sum(sizes), store=store)


def encoded(summary: Summary) -> bytes:
    """Encode *summary* as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


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
_CHANGES_SHOWN: Final = 3
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
    elif over := over_budgets_in_all(summary.frontier):
        shown.append(f"{over}.")
    elif summary.frontier.again and summary.reason != "finished":
        pages = many(summary.frontier.again, "page")
        shown.append(f"Visited again when it goes on: {pages}. Run the same command again.")
    shown += ["", *(f"{left:{_INDENT}}{right}" for left, right in _rows(summary)), ""]
    return "\n".join(shown)


def over_budgets_in_all(frontier: FrontierCounts) -> str:
    """Return what waits at the end of a crawl that is over, in a sentence; empty if nothing
    does."""
    if not frontier.capped or frontier.left:
        return ""
    urls, domains = many(frontier.spilled, "URL"), many(frontier.spilled_domains, "domain")
    return (
        f"{urls} of {domains} over their budgets in all: a start with a larger"
        " CRAWLER_MAX_URLS_PER_DOMAIN, CRAWLER_MAX_URLS_PER_HOST or max_urls of a rule fetches them"
    )


def nothing_fetched(summary: Summary) -> str:
    """Return why a finished crawl has no page, in one sentence; empty if it has, or is not over."""
    robots, links = summary.robots, summary.links
    is_over = summary.reason in FINISHED and not (summary.reason == UNTIL and summary.unfinished)
    if is_over and summary.pages and not summary.seeds.brought_pages:
        return _no_seed_brought_a_page(summary)
    unfetched = robots.disallowed + links.left
    if not is_over or summary.pages or summary.frontier.done > unfetched:
        return ""
    errors = {kind: n for kind, n in summary.errors.items() if kind != "robots_failed"}
    causes = {
        **{words_of(kind): n for kind, n in (errors or summary.errors).items()},
        **{rule_words(rule): n for rule, n in links.refused.items()},
        **({"robots.txt forbids it": robots.disallowed} if robots.disallowed else {}),
    }
    if summary.reason == UNTIL and not causes and not summary.frontier.seen:
        return "the time was over before a seed was read: give a later -a until= or -a max_time="
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
    yield from _round_rows(summary.rounds, summary.frontier)
    yield from _links_rows(summary)
    yield from _external(summary.external)
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
    yield from _rendered(summary.rendered)
    width = max((len(number(each.pages)) for each in summary.top_hosts), default=0)
    for index, each in enumerate(summary.top_hosts):
        yield "" if index else "hosts", f"{number(each.pages):>{width}}  {plain(each.host)}"


def _copies(summary: Summary) -> Iterator[Row]:
    if summary.duplicates:
        yield "duplicates", f"{many(summary.duplicates, 'page')} whose content is stored already"
    if summary.near_duplicates:
        near = many(summary.near_duplicates, "page")
        yield "" if summary.duplicates else "duplicates", f"{near} with nearly the same text"
    yield from _visited_again(summary.revisits)
    if summary.not_pages:
        flaws = [f"{number(n)} {flaw.replace('_', ' ')}" for flaw, n in summary.not_pages.items()]
        yield "no pages", ", ".join(flaws)
    if summary.noindex:
        pages = f"{many(summary.noindex, 'page')} marked noindex: only their links are stored"
        yield "not stored", f"{pages} (CRAWLER_RESPECT_NOINDEX)"
    if summary.disallowed:
        by_use = [f"{many(n, 'page')} for {use}" for use, n in summary.disallowed.items()]
        said = f"disallowed by their publishers: {', '.join(by_use)} (CRAWLER_REQUIRE_PREFERENCE)"
        yield "" if summary.noindex else "not stored", said
    if summary.truncated:
        cut = [f"{number(n)} {_TRUNCATED.get(why, why)}" for why, n in summary.truncated.items()]
        yield "not whole", ", ".join(cut)
    if summary.unreadable:
        by_parser = [f"{number(n)} by {name}" for name, n in summary.unreadable.items()]
        yield "unreadable", f"{', '.join(by_parser)}: stored without their text and links"


def _rendered(rendered: RenderFigures) -> Iterator[Row]:
    if rendered.pages:
        took = f"{many(rendered.pages, 'page')} in {span(rendered.seconds)} of a browser"
        brought = f"{many(rendered.links, 'link')} and {many(rendered.chars, 'letter')} of text"
        yield "rendered", f"{took}; {number(rendered.paid)} had more then: {brought}"
        if rendered.left_out:
            sent = f"{many(rendered.requests, 'request')} sent for them"
            yield "", f"{sent}; left out: {listed(rendered.left_out)}"
        if rendered.less:
            yield "", f"{many(rendered.less, 'page')} had less then: kept as fetched"
    if rendered.failed:
        failed = many(rendered.failed, "page")
        label = "" if rendered.pages else "rendered"
        yield label, f"{failed} could not be: kept as fetched (the log says why)"


def _visited_again(revisits: RevisitFigures) -> Iterator[Row]:
    visits, changed = sum(revisits.results.values()), revisits.results.get("changed", 0)
    if visits:
        others = ", ".join(f"{number(n)} {name}" for name, n in _others(revisits.results))
        of = f": {number(changed)} changed{f', {others}' if others else ''}"
        yield "visited again", f"{many(visits, 'visit')}{of}"
    if revisits.fresh is not None:
        yield "", f"{100 * revisits.fresh:.1f} % of the copies were fresh, as estimated"
    for each in revisits.top_changes[:_CHANGES_SHOWN]:
        yield "", f"{many(each.changes, 'change')} on {plain(each.host)}"
    label = "not modified"
    if revisits.not_modified:
        yield label, f"{many(revisits.not_modified, 'visit')}, as the hosts said (status 304)"
        label = ""
    if revisits.denying_hosts:
        hosts = many(revisits.denying_hosts, "host")
        yield label, f"{hosts} said so of pages that had changed: they are not asked"
        label = ""
    if revisits.repeating_hosts:
        hosts = many(revisits.repeating_hosts, "host")
        yield label, f"{hosts} sent pages again that had not changed"


def _round_rows(rounds: RoundFigures, counts: FrontierCounts) -> Iterator[Row]:
    if not rounds.number:
        return
    yield "rounds", rounds_text(rounds)
    for why, n in rounds.ended.items():
        yield "", f"{number(n)}: {ROUND_ENDS[RoundEnd(why)]}"
    for index, (host, urls) in enumerate(left_over(rounds, counts)):
        yield "" if index else "left over", f"{urls}  {host}"


def rounds_text(rounds: RoundFigures) -> str:
    """Return how many rounds are over, and how large the last one was."""
    of_last = f"{many(rounds.leased, 'URL')} in the last one, number {number(rounds.number)}"
    return f"{number(sum(rounds.ended.values()))} over; {of_last}"


def left_over(rounds: RoundFigures, counts: FrontierCounts) -> Iterator[tuple[str, str]]:
    """Yield the hosts with most URLs left over for the next round, each with their number, and the
    sum of all others."""
    for each in rounds.left:
        yield plain(each.host), number(each.urls)
    others = counts.waiting - sum(each.urls for each in rounds.left)
    if others > 0:
        yield "other hosts", number(others)


def _others(results: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(((name, n) for name, n in results.items() if name != "changed"), key=_by_number)


def _by_number(pair: tuple[str, int]) -> int:
    return -pair[1]


def _links_rows(summary: Summary) -> Iterator[Row]:
    links = summary.links
    budget = f", {number(links.over_budget)} over budget" if links.over_budget else ""
    yield "links", f"{number(links.new)} new, {number(links.seen)} seen before{budget}"
    rows = [*_spilled(summary.frontier, links.released), *map(_over_budget, links.top_over_budget)]
    for index, row in enumerate(rows):
        yield "" if index else "over budget", row
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


def _external(external: ExternalFigures) -> Iterator[Row]:
    if external.checked or external.unknown:
        moved = f", {number(external.moved)} moved" if external.moved else ""
        closed = f"; not known: {number(external.unknown)}" if external.unknown else ""
        checked = many(external.checked, "link")
        yield "external", f"{checked} checked, {number(external.broken)} broken{moved}{closed}"


def _spilled(frontier: FrontierCounts, released: int) -> Iterator[str]:
    if not (frontier.spilled or frontier.sampled_out or released):
        return
    domains = many(frontier.spilled_domains, "domain")
    spilled = f"{many(frontier.spilled, 'URL')} of {domains} spilled"
    yield f"{spilled}, {number(frontier.sampled_out)} sampled out, {number(released)} released"


def _over_budget(each: OverBudget) -> str:
    over, limit = f"{many(each.links, 'link')} of {plain(each.name)}", many(each.limit, "URL")
    if each.is_of_round:
        return f"{over}, beyond its {limit} a round (rank {number(each.rank)}; {each.setting})"
    return f"{over}, which has its {limit} ({each.setting})"


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
    if polite.challenges:
        yield "not welcome", f"answers in which hosts refused robots: {listed(polite.challenges)}"
    if polite.hosts_left:
        back = f"put back: {frontier_command('retry --all', summary.data_dir)}"
        yield "", f"{many(polite.hosts_left, 'host')} left for it; {back}"
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
    if frontier.again:
        later += f" ({number(frontier.again)} of them are visited again)"
    ended = f"{number(frontier.done)} done, {number(frontier.dead)} dead"
    if frontier.refused:
        ended += f", {number(frontier.refused)} kept out by rules"
    yield "frontier", f"{number(frontier.waiting)} waiting{later}, {ended}"
    if frontier.put_back_at_open:
        left = number(frontier.put_back_at_open)
        yield "", f"{left} put back at the start: the run before did not finish them"
    yield "as JSON", f"{summary.data_dir}/{SUMMARY}"
    yield "as a page", f"{summary.data_dir}/{REPORT}"
