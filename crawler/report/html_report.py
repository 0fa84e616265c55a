"""The report of a whole crawl: one HTML file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from crawler.data.data_dir import HISTORY, OUTCOMES, RUNS, SUMMARY, WARC
from crawler.data.files import replace_file
from crawler.data.history import CHANGES, History, HistorySpan, read_history, sum_histories
from crawler.data.runs import CountedRuns, read_runs
from crawler.data.seed_fates import SeedFates, SeedTable, fate_words
from crawler.engine.stats import GAP_BOUNDS_S, GAP_OVER_DUE, LANGUAGES, TYPES
from crawler.loop.outcome import words_of
from crawler.model.counts import Figures, OverBudget
from crawler.model.program import PROGRAM
from crawler.policy.refusal import Reason
from crawler.report.endings import ending
from crawler.report.html_parts import figures, html_page, table, text
from crawler.report.outcome_figures import (
    SECONDS,
    SIZES,
    OutcomeFigures,
    figures_of_logs,
)
from crawler.report.summary import (
    ArchiveFiles,
    FrontierCounts,
    RenderFigures,
    RoundFigures,
    Summary,
    archive_files,
    fresh_share,
    left_over,
    render_figures,
    rounds_of_all,
    rounds_text,
    rule_words,
)
from crawler.view.formats import many, number, rate, size, span

READ_AT_END_BYTES: Final = 64_000_000
"""How much of the outcome logs is read for the report that each crawl writes at its end: 280,000
outcomes, in 0.6 s. All of 1e7 outcomes would take 20 s; `scrapy frontier report` reads them."""
_TOP_HOSTS: Final = 1_000
_ROWS: Final = 100  # of the other tables
_TRAPS: Final = (
    Reason.URL_TOO_LONG,
    Reason.PATH_TOO_DEEP,
    Reason.REPEATED_SEGMENTS,
    Reason.REPEATED_QUERY,
    Reason.QUERY_TOO_LONG,
    Reason.REPEATED_SESSION,
    Reason.CALENDAR,
    Reason.PATTERN,
)
_COPIES: Final = MappingProxyType(
    {
        "duplicate": "the same bytes as an earlier page",
        "near-duplicate": "nearly the same text as an earlier page",
        "alias": "another URL is named as the canonical one",
    }
)
_FATES: Final = MappingProxyType(
    {
        "done": "done",
        "moved": "redirected",
        "retry": "failed, to be tried again",
        "dead": "given up",
        "refused": "waited, and refused by a rule",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlFacts:
    """What the report shows."""

    place: str  # the data directory, for people
    at: float  # epoch seconds
    is_running: bool
    counts: FrontierCounts
    counted: CountedRuns
    histories: Mapping[HistorySpan, History]
    outcomes: OutcomeFigures
    seeds: SeedTable
    archives: Sequence[ArchiveFiles]
    over_budget: Sequence[OverBudget] = ()  # the hosts and domains with most links, last run
    rounds: RoundFigures = RoundFigures()  # of the last run that is over


def crawl_facts(
    place: Path,
    folders: Sequence[Path],
    counts: FrontierCounts,
    *,
    is_running: bool,
    most_bytes: int | None = None,
) -> CrawlFacts:
    """Read what the data directories *folders* hold: that of a crawl, or those of its workers.
    *counts* are of its frontier; *most_bytes*: of the outcome logs, None for all. Raises OSError
    or DataDirError."""
    last = [each for each in map(_last_summary, folders) if each is not None]
    return CrawlFacts(
        place=str(place),
        at=time.time(),
        is_running=is_running,
        counts=counts,
        counted=sum((read_runs(folder / RUNS) for folder in folders), CountedRuns()),
        histories={
            each: sum_histories([read_history(folder / HISTORY, each) for folder in folders])
            for each in (HistorySpan.ALL, HistorySpan.HOUR)
        },
        outcomes=figures_of_logs([folder / OUTCOMES for folder in folders], most_bytes),
        seeds=sum(map(SeedFates.table_in, folders), SeedTable()),
        archives=[archive_files(folder / WARC, _store(folder)) for folder in folders],
        over_budget=sum(map(_over_budget_in, folders), Figures()).over_budget,
        rounds=rounds_of_all([each.rounds for each in last]),
    )


def _last_summary(folder: Path) -> Summary | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary)
    return None


def _store(folder: Path) -> str:
    """Return the object store that the last summary in *folder* names; empty if it names none."""
    summary = _last_summary(folder)
    return summary.archive.store if summary is not None else ""


def _over_budget_in(folder: Path) -> Figures:
    summary = _last_summary(folder)
    rows = summary.links.top_over_budget if summary is not None else []
    return Figures(over_budget=rows)


def write_report(file: Path, facts: CrawlFacts) -> None:
    """Replace *file* by the report. Raises OSError."""
    replace_file(file, html_report(facts).encode("utf-8", "replace"))


def html_report(facts: CrawlFacts) -> str:
    return html_page(
        f"Crawl in {facts.place}",
        _overview(facts),
        [
            *_over_time(facts.histories),
            *_runs(facts),
            *_seeds(facts.seeds),
            *_answers(facts),
            *_politeness(facts.counted.figures),
            *_left_out(facts),
            *_hosts(facts.outcomes),
            *_archive(facts),
        ],
    )


def _overview(facts: CrawlFacts) -> Iterator[str]:
    fetched, counts, outcomes = facts.counted.figures, facts.counts, facts.outcomes
    last = facts.counted.runs[-1].reason if facts.counted.runs else ""
    ended = "No run has ended in good order yet" if not last else ending(last)
    yield f"<p>{text('It is running' if facts.is_running else ended)}. {_when(facts.at)}.</p>"
    if outcomes.skipped_bytes:
        yield (
            f'<p class="note">Answers, duplicates, dead letters and hosts are counted from the last'
            f" {many(outcomes.lines, 'outcome')}, as this was written at the end of a run."
            f" <code>{PROGRAM} frontier report</code> reads all of them.</p>"
        )
    seconds = facts.counted.total_s
    shown = {
        "pages": number(fetched.pages),
        "a second": rate(fetched.pages / seconds) if seconds else "-",
        "bytes": size(fetched.bytes),
        "of fetching": span(seconds),
        "runs": number(facts.counted.number),
        "hosts": number(outcomes.hosts),
        "URLs seen": number(counts.seen),
        "left to fetch": number(counts.left),
        "done": number(counts.done),
        "dead letters": number(counts.dead),
        "kept out by rules": number(counts.refused),
        **({"over budget": number(counts.spilled)} if counts.spilled else {}),
        **({"sampled out": number(counts.sampled_out)} if counts.sampled_out else {}),
        "tries failed": number(fetched.errors),
    }
    yield from figures(shown.items())


def _over_time(histories: Mapping[HistorySpan, History]) -> Iterator[str]:
    for spell, title in ((HistorySpan.ALL, "Over time"), (HistorySpan.HOUR, "The last hour")):
        history = histories[spell]
        yield f"<section><h2>{title}</h2>"
        if len(history.at) < 2:
            yield "<p>Too short to plot.</p></section>"
            continue
        yield '<div class="plots">'
        yield _plot("pages a second", history.at, history.rates("pages"))
        yield _plot("bytes a second", history.at, history.rates("bytes"), is_size=True)
        yield _plot("failed tries a second", history.at, history.rates("errors"))
        yield _plot("answers 4xx a second", history.at, history.rates("4xx"))
        yield _plot("answers 5xx a second", history.at, history.rates("5xx"))
        yield _plot("seconds a fetch, in the mean", history.at, history.mean_fetch_s())
        yield _plot("URLs waiting", history.at, _states(history, "waiting"))
        yield _plot("hosts in memory", history.at, _states(history, "hosts_active"))
        yield _plot("URLs under way", history.at, _states(history, "leased"))
        if any(each is not None for each in history.fresh()):
            yield _plot("changes found a second", history.at, history.rates(CHANGES))
            yield _plot("share of fresh copies, as estimated", history.at, history.fresh())
        yield "</div></section>"


def _states(history: History, column: str) -> list[float | None]:
    """Return a state as a line that is broken between two runs."""
    runs = history.columns["run"]
    breaks = [False, *(before != after for before, after in pairwise(runs))]
    values = history.columns[column]
    return [None if cut else value for value, cut in zip(values, breaks, strict=True)]


_WIDTH, _HEIGHT = 600, 120


def _plot(
    title: str, at: Sequence[float], values: Sequence[float | None], *, is_size: bool = False
) -> str:
    """Draw *values* over the times *at* as a line, broken where a value is None."""
    known = [value for value in values if value is not None]
    most, begin, end = max(known, default=0.0) or 1.0, at[0], at[-1]
    steps, pen = [], "M"
    for when, value in zip(at, values, strict=True):
        if value is None:
            pen = "M"
            continue
        x = _WIDTH * (when - begin) / max(end - begin, 1e-9)
        steps.append(f"{pen}{x:.1f} {_HEIGHT * (1 - value / most):.1f}")
        pen = "L"
    top = size(round(most)) if is_size else rate(most) if most < 100 else number(round(most))
    return (
        f"<figure><figcaption>{text(title)}, up to {text(top)}</figcaption>"
        f'<svg viewBox="-1 -2 {_WIDTH + 2} {_HEIGHT + 4}" role="img"'
        f' aria-label="{text(title)}" preserveAspectRatio="none">'
        f'<path class="axis" d="M0 0V{_HEIGHT}H{_WIDTH}"/>'
        f'<path class="line" d="{"".join(steps)}"/></svg>'
        f'<p class="ends"><span>{_when(begin)}</span><span>{_when(end)}</span></p></figure>'
    )


def _runs(facts: CrawlFacts) -> Iterator[str]:
    runs = facts.counted.runs
    rows = []
    for place, run in enumerate(runs, 1):
        is_last = facts.is_running and place == len(runs)
        killed = "goes on" if is_last else "killed"
        rows.append(
            (
                run.started_at,
                span(run.duration_s),
                ending(run.reason) if run.reason else killed,
                number(run.pages),
                size(run.bytes),
                number(run.errors),
                number(run.duplicates),
            )
        )
    head = ("started", "took", "end", "pages", "bytes", "failed tries", "duplicates")
    yield "<section><h2>Runs</h2>"
    if facts.counted.number > len(runs):
        yield f"<p>The last {number(len(runs))} of {number(facts.counted.number)}.</p>"
    yield from table(head, rows, words=3)
    if facts.rounds.number and not facts.is_running:
        yield f"<h3>Rounds of the last run</h3><p>{text(rounds_text(facts.rounds))}.</p>"
        if left := list(left_over(facts.rounds, facts.counts)):
            yield from table(("left over at", "URLs"), left, words=1)
    yield "</section>"


def _seeds(seeds: SeedTable) -> Iterator[str]:
    if not seeds.counts:
        return
    yield '<section><h2>Seeds</h2><div class="columns">'
    fates = {fate_words(fate): n for fate, n in seeds.counts.items() if n > 0}
    yield from _bars("What became of them", _greatest(fates))
    yield "</div>"
    if seeds.failed:
        yield f"<h3>That lead nowhere, the first of {number(seeds.failures)}</h3>"
        rows = [(row.seed, row.url or "-", row.why) for row in seeds.failed.values()]
        yield from table(("seed", "redirects to", "why"), rows, words=3)
    yield "</section>"


def _answers(facts: CrawlFacts) -> Iterator[str]:
    outcomes, fetched = facts.outcomes, facts.counted.figures
    yield '<section><h2>Answers</h2><div class="columns">'
    yield from _bars("Status", sorted((str(one), n) for one, n in outcomes.statuses.items()))
    yield from _bars("Type of the pages", _greatest(fetched.below(f"{TYPES}/")))
    yield from _bars("Language, as declared", _greatest(fetched.below(f"{LANGUAGES}/")))
    yield from _bars("Body", zip(_classes(SIZES, _size), outcomes.sizes, strict=True))
    yield from _bars("Fetch time", zip(_classes(SECONDS, _seconds), outcomes.seconds, strict=True))
    failed = {words_of(kind): n for kind, n in fetched.below("error/").items()}
    yield from _bars("Failed tries", _greatest(failed))
    fates = {_FATES.get(fate, fate): n for fate, n in outcomes.fates.items()}
    yield from _bars("What became of URLs, try by try", _greatest(fates))
    copies = {_COPIES[kind]: n for kind, n in outcomes.duplicates.items()}
    yield from _bars("Duplicates", _greatest(copies))
    if found := fetched.below("revisits/result/"):
        share = fresh_share(fetched)
        fresh = "" if share is None else f"; {share:.1%} of the copies were fresh, as estimated"
        yield from _bars(f"What visits of known pages found{fresh}", _greatest(found))
        changed = {each.host: each.changes for each in fetched.top_changes}
        yield from _bars("Hosts whose pages changed most", _greatest(changed))
    again = {
        "not modified (304)": fetched["revisits/not_modified"],
        "hosts that said so falsely, by run": fetched["revisits/denies"],
        "hosts that sent such pages again, by run": fetched["revisits/repeats"],
    }
    if any(again.values()):
        yield from _bars("Asked if they have changed", again.items())
    if (rendered := render_figures(fetched)).pages:
        yield from _rendered(rendered)
        if rendered.left_out:
            yield from _bars("What rendered pages were not given", _greatest(rendered.left_out))
    if outcomes.external:
        yield from _bars("External links that were checked", outcomes.external.most_common())
    unstored = {"marked noindex: only its links are": outcomes.noindex} if outcomes.noindex else {}
    for use, pages in outcomes.disallowed.items():
        unstored[f"its publisher disallows {use}"] = pages
    if unstored:
        yield from _bars("Not stored", unstored.items())
    yield "</div></section>"


def _rendered(rendered: RenderFigures) -> Iterator[str]:
    shown = {
        "pages": number(rendered.pages),
        "with more text or links than sent": number(rendered.paid),
        "with less than sent, kept as sent": number(rendered.less),
        "could not be, kept as sent": number(rendered.failed),
        "requests for what they need": number(rendered.requests),
        "work of the browser": span(rendered.seconds),
    }
    yield "<div><h3>Rendered by a browser</h3>"
    yield from figures(shown.items())
    yield "</div>"


def _politeness(fetched: Figures) -> Iterator[str]:
    yield '<section><h2>Politeness</h2><div class="columns">'
    gaps = fetched.below(f"{GAP_OVER_DUE}/")
    names = ["early", *(f"{bound:g}" for bound in GAP_BOUNDS_S), "more"]
    titles = ["before it was over", *_classes(GAP_BOUNDS_S, _seconds)]
    counts = [gaps.get(name, 0) for name in names]
    yield from _bars(
        "From the end of a host's rest to its next request", zip(titles, counts, strict=True)
    )
    yield from _bars(
        "Rests, by what made them so long", _greatest(fetched.below("politeness/rest/"))
    )
    yield from _bars(
        "Changes of pace, by the answers of servers", _greatest(fetched.below("politeness/pace/"))
    )
    robots = {
        "robots.txt requested": fetched["robots/fetched"],
        "URLs that robots.txt forbids": fetched["robots/disallowed"],
        "URLs without a robots.txt to be had": fetched["robots/unreachable"],
        "hosts given up": fetched["politeness/given_up"],
    }
    yield from _bars("robots.txt", robots.items())
    yield from _bars("Challenges and blocks, by signature", _greatest(fetched.below("challenge/")))
    if left := fetched["politeness/left"]:
        yield from _bars(f"Left until `{PROGRAM} frontier retry` puts them back", [("hosts", left)])
    yield "</div></section>"


def _left_out(facts: CrawlFacts) -> Iterator[str]:
    outcomes, fetched = facts.outcomes, facts.counted.figures
    refused = fetched.below("refused/")
    yield '<section><h2>Left out</h2><div class="columns">'
    yield from _bars(
        "Refused by rule", _greatest({rule_words(rule): n for rule, n in refused.items()})
    )
    waited = {rule_words(rule): n for rule, n in outcomes.refused.items()}
    yield from _bars("Refused when their turn came", _greatest(waited))
    traps = {rule_words(rule): refused.get(rule, 0) for rule in _TRAPS if refused.get(rule)}
    yield from _bars("Traps", _greatest(traps))
    yield from _bars("Given up, by reason", _greatest(outcomes.dead_reasons))
    yield "</div>"
    if facts.over_budget:
        yield from _over_budgets(facts)
    if outcomes.traps:
        yield "<h3>Patterns that had brought enough</h3>"
        found = [(*names, number(n)) for names, n in outcomes.traps.most_common(_ROWS)]
        yield from table(("host", "pattern", "URLs not fetched"), found, words=2)
    if outcomes.dead:
        yield f"<h3>Dead letters, the latest of {number(facts.counts.dead)}</h3>"
        yield from table(("URL", "reason"), list(reversed(outcomes.dead.items()))[:_ROWS], words=2)
    yield "</section>"


def _over_budgets(facts: CrawlFacts) -> Iterator[str]:
    counts = facts.counts
    yield "<h3>Over budget, most links of the last run</h3>"
    spilled = f"{many(counts.spilled, 'URL')} of {many(counts.spilled_domains, 'domain')} spilled"
    capped = f", {number(counts.capped)} of them over a budget in all" if counts.capped else ""
    yield f"<p>{spilled}{capped}; {number(counts.sampled_out)} sampled out.</p>"
    rows = [
        (
            each.name,
            f"{number(each.limit)} a round" if each.is_of_round else f"{number(each.limit)} in all",
            each.setting,
            number(each.rank) if each.rank else "-",
            number(each.links),
        )
        for each in facts.over_budget
    ]
    yield from table(("domain or host", "budget", "setting", "rank", "links"), rows, words=3)


def _hosts(outcomes: OutcomeFigures) -> Iterator[str]:
    top = outcomes.top_hosts(_TOP_HOSTS)
    rows = [
        (
            each.host,
            number(each.pages),
            size(each.bytes),
            span(each.seconds),
            number(each.errors),
            number(each.dead),
        )
        for each in top
    ]
    head = ("host", "pages", "bytes", "fetch time", "failed tries", "given up")
    yield f"<section><h2>Hosts</h2><p>{number(len(rows))} of {number(outcomes.hosts)}.</p>"
    yield from table(head, rows, words=1)
    yield "</section>"


def _archive(facts: CrawlFacts) -> Iterator[str]:
    rows = [
        (each.folder, each.store or "-", number(each.files), size(each.bytes))
        for each in facts.archives
    ]
    yield "<section><h2>Archive</h2>"
    yield from table(("folder", "brought to", "WARC files here", "bytes"), rows, words=2)
    yield "</section>"


def _greatest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return *counts*, the greatest first."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_ROWS]


def _classes(bounds: Sequence[float], shown: Callable[[float], str]) -> list[str]:
    """Return the names of the classes between *bounds*, and of what is above them."""
    return [*(f"up to {shown(each)}" for each in bounds), f"more than {shown(bounds[-1])}"]


def _size(bound: float) -> str:
    return size(round(bound))


def _seconds(bound: float) -> str:
    return f"{bound:g} s" if bound < 60 else f"{bound / 60:g} min"


def _bars(title: str, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield a table of counts with a bar for each."""
    rows = list(counts)
    total, most = sum(n for _, n in rows), max((n for _, n in rows), default=0)
    yield f"<div><h3>{text(title)}</h3>"
    if not most:
        yield "<p>None.</p></div>"
        return
    yield "<table>"
    for name, n in rows:
        bar = '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        bar += f'<rect class="bar" width="{100 * n / most:.1f}" height="10"/></svg>'
        yield f'<tr><td>{text(name)}</td><td class="figure">{number(n)}</td>'
        yield f'<td class="figure">{n / total:.1%}</td><td class="bars">{bar}</td></tr>'
    yield "</table></div>"


def _when(at: float) -> str:
    return time.strftime("<time>%Y-%m-%d %H:%M:%S UTC</time>", time.gmtime(at))
