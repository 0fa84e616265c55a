"""The summary of a run as a person reads it.

Rule: pure; what did not happen is left out, and what can be done about it stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from crawler.failures import words_of
from crawler.ops.advice import frontier_command
from crawler.ops.endings import NOT_BEGUN
from crawler.ops.figures import listed, many, number, plain, rate, size, span
from crawler.ops.summary import Summary
from crawler.policy.refusal import RULES, Reason
from crawler.storage.local.datadir import SUMMARY

_INDENT: Final = 14
_REFUSALS_SHOWN: Final = 6
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

Row = tuple[str, str]  # the left column may be empty: the row above goes on


def text(summary: Summary) -> str:
    """Many lines, the last one ended."""
    shown = ["", f"{plain(summary.ended, 1000)}."]
    if summary.reason in NOT_BEGUN and not summary.pages:
        return "\n".join([*shown, ""])
    if summary.unfinished:
        left = summary.frontier.waiting + summary.frontier.later + summary.frontier.leased
        shown.append(f"Still to do: {many(left, 'URL')}. Run the same command again to continue.")
    shown += ["", *(f"{left:{_INDENT}}{right}" for left, right in _rows(summary)), ""]
    return "\n".join(shown)


def nothing_fetched(summary: Summary) -> str:
    """Why the whole crawl is over without a page, in one sentence; empty: it is not, or it has."""
    robots, links = summary.robots, summary.links
    unfetched = robots.disallowed + links.left
    if summary.reason != "finished" or summary.pages or summary.frontier.done > unfetched:
        return ""
    causes = {
        **{words_of(kind): n for kind, n in summary.errors.items()},
        **{_rule(rule): n for rule, n in links.refused.items()},
        **({"robots.txt forbids it": robots.disallowed} if robots.disallowed else {}),
    }
    if not causes and summary.dead_letters:
        return "no page was fetched: every URL was given up in an earlier run"
    if not causes:
        return ""
    first = "".join(f"; {plain(each.url)}: {each.reason}" for each in summary.dead_letters_new[:1])
    return f"no page was fetched: {listed(causes)}{first}"


def _rows(summary: Summary) -> Iterator[Row]:
    yield from _pages(summary)
    yield from _links(summary)
    yield from _politeness(summary)
    yield from _pauses(summary)
    yield from _failures(summary)
    yield from _kept(summary)


def _pages(summary: Summary) -> Iterator[Row]:
    took = f"in {span(summary.duration_s)} ({rate(summary.pages_per_s)} a second)"
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
    if summary.truncated:
        cut = [f"{number(n)} {_TRUNCATED.get(why, why)}" for why, n in summary.truncated.items()]
        yield "not whole", ", ".join(cut)
    if summary.unreadable:
        by_parser = [f"{number(n)} by {name}" for name, n in summary.unreadable.items()]
        yield "unreadable", f"{', '.join(by_parser)}: stored without their text and links"


def _links(summary: Summary) -> Iterator[Row]:
    links = summary.links
    budget = f", {number(links.over_budget)} over budget" if links.over_budget else ""
    yield "links", f"{number(links.new)} new, {number(links.seen)} seen before{budget}"
    for index, each in enumerate(links.top_over_budget):
        told = f"{many(each.links, 'link')} of {plain(each.name)}, which has its"
        limit = f"{many(each.limit, 'URL')} ({each.setting})"
        yield "" if index else "over budget", f"{told} {limit}"
    ordered = sorted(links.refused.items(), key=lambda pair: -pair[1])
    for index, (rule, n) in enumerate(ordered[:_REFUSALS_SHOWN]):
        yield "" if index else "refused", f"{number(n)}: {_rule(rule)}"
    if len(ordered) > _REFUSALS_SHOWN:
        yield "", f"{number(sum(n for _, n in ordered[_REFUSALS_SHOWN:]))} by other rules"
    ordered = sorted(links.refused_waiting.items(), key=lambda pair: -pair[1])
    for index, (rule, n) in enumerate(ordered):
        yield "" if index else "kept out", f"{number(n)} that waited: {_rule(rule)}"
    if ordered:
        yield "", "they wait again from a start on, whose rules admit them"
    if links.readmitted:
        yield "readmitted", f"{many(links.readmitted, 'URL')} that rules of earlier starts refused"
    if links.left:
        yield "left", f"{many(links.left, 'URL')} unfetched, of patterns that have brought enough"


def _rule(rule: str) -> str:
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
    told = [f"{what}: {number(n)}" for what, n in troubles.items() if n]
    if told:
        yield "", ", ".join(told)
    left = f", {number(robots.unreachable)} not to be had" if robots.unreachable else ""
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
