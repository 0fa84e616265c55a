"""What the console shows of a crawl: one table, from which the HTTP API and its description are
made.

Rule: a view reads what the commands read, in a thread, one view at a time; nothing is changed.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import merge
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_type_hints

import msgspec
from scrapy.settings import BaseSettings

from crawler.config.settings import Config
from crawler.data.data_dir import HISTORY, OUTCOMES, WARC, folders_of_crawl
from crawler.data.history import CHANGES, CLASSES, HistorySpan, read_history, sum_histories
from crawler.loop.life import OpenFetch
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, DataDirError, HostKey, Outcome, decode_outcome
from crawler.policy.operator_rules import read_rules
from crawler.report.why_text import why_text
from crawler.view.archive import NewestFile, archive_of, newest_files
from crawler.view.budgets import DomainQuery, DomainRow, DomainSort
from crawler.view.fresh import CopiesFreshness, PageVisits, fresh_copies, fresh_page
from crawler.view.hosts import HostFilter, HostQuery, HostSort
from crawler.view.place import CrawlPlace
from crawler.view.rows import (
    MAX_ROWS,
    ActRow,
    DeadLetterRow,
    FetchRow,
    HostRow,
    WorkerRow,
    act_rows,
    dead_letter_rows,
    domain_rows,
    fetch_rows,
    host_rows,
    worker_rows,
)
from crawler.view.why import Why, why

_OUTCOME_BYTES: Final = 4 << 20  # of the log's end that are searched: some 15,000 outcomes


@dataclass(frozen=True, slots=True)
class Shown:
    """The crawl that views are of."""

    place: CrawlPlace
    settings: BaseSettings
    open_fetches: Callable[[], list[OpenFetch]] = list
    """How far each fetch of this process is. May be called in any thread."""

    @property
    def config(self) -> Config:
        return self.place.config


class Paging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    top: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.top <= MAX_ROWS:
            raise ValueError(f"top is a number from 1 to {MAX_ROWS:,}")


class HostsAsked(Paging, frozen=True):
    sort: HostSort = HostSort.WAITING
    match: str = ""  # a part of the name
    offset: int = 0
    host: str = ""  # this one only
    address: str = ""  # those that were fetched from there only
    state: HostFilter = HostFilter.ALL  # those in this state only
    failure: str = ""  # those whose last failure was of this kind only; any: that have one

    def __post_init__(self) -> None:
        Paging.__post_init__(self)
        if self.offset < 0:
            raise ValueError("offset is a number from 0")
        if self.sort is not HostSort.NAME and self.offset + self.top > MAX_ROWS:
            raise ValueError(
                f"only the first {MAX_ROWS:,} hosts are put in order by {self.sort}: look for the "
                "others with match, or by name (sort=name), or list them with "
                f"`{PROGRAM} frontier hosts`"
            )


class NowAsked(Paging, frozen=True):
    host: str = ""  # those of this one only


class DomainsAsked(Paging, frozen=True):
    sort: DomainSort = DomainSort.SPILLED
    match: str = ""  # a part of the name
    offset: int = 0

    def __post_init__(self) -> None:
        Paging.__post_init__(self)
        if not 0 <= self.offset <= MAX_ROWS - self.top:
            raise ValueError(f"only the first {MAX_ROWS:,} domains are listed")


FATES: Final = ("done", "retry", "moved", "put_back", "dead", "refused")  # as Outcome.fate


class OutcomesAsked(Paging, frozen=True):
    match: str = ""  # a part of the URL
    fate: str = ""  # one of FATES
    status: str = ""  # 200, or 4xx
    reason: str = ""  # a part of it
    failure: str = ""  # the kind of failure, as the counters name it

    def __post_init__(self) -> None:
        Paging.__post_init__(self)
        if self.fate and self.fate not in FATES:
            raise ValueError(f"fate is {self.fate!r}; want one of {', '.join(FATES)}")


class UrlAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str


class NothingAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Explained(msgspec.Struct, frozen=True):
    """What is known of a URL."""

    known: Why
    text: list[str]  # the same in sentences


class FreshAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = ""  # empty: all


class HistoryAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    span: HistorySpan = HistorySpan.HOUR


class HistoryShown(msgspec.Struct, frozen=True):
    """The crawl over time, as columns for a plot: all lists have the same length."""

    at: list[float]  # epoch seconds, the oldest first
    pages_per_s: list[float | None]  # None: between two runs
    bytes_per_s: list[float | None]
    errors_per_s: list[float | None]
    waiting: list[float]  # URLs
    hosts_active: list[float]
    changes_per_s: list[float | None] = []  # found on pages that were visited before
    fresh: list[float | None] = []  # the share of copies that are so, as estimated
    answers_per_s: dict[str, list[float | None]] = {}  # by class of status: 2xx, 3xx...
    fetch_s: list[float | None] = []  # how long a fetch took in the mean; None: none ended


class RulesText(msgspec.Struct, frozen=True):
    text: str
    rules: int
    error: str  # why the text cannot be read, with its line; empty: it can


Rows = list[Any] | msgspec.Struct


@dataclass(frozen=True, slots=True)
class View:
    """One row of the table. *show* returns a list of *row*, or one if the view is no table."""

    name: str
    asked: type[msgspec.Struct]
    row: type[msgspec.Struct]
    meaning: str
    show: Callable[[Shown, Any], Rows]
    is_table: bool = True


def _hosts(shown: Shown, asked: HostsAsked) -> Rows:
    match = asked.match.lower()
    query = HostQuery(
        *(asked.top, asked.sort, match, asked.offset),
        address=asked.address,
        state=asked.state,
        failure=asked.failure,
    )
    if asked.host:
        query = HostQuery(host=HostKey(asked.host.lower()))
    with shown.place.view() as view:
        return host_rows(view, query, shown.config)


def _domains(shown: Shown, asked: DomainsAsked) -> Rows:
    query = DomainQuery(asked.top, asked.sort, asked.match.lower(), asked.offset)
    with shown.place.view() as view:
        return domain_rows(view, query, shown.config)


def _now(shown: Shown, asked: NowAsked) -> Rows:
    with shown.place.view() as view:
        own = shown.open_fetches()
        return fetch_rows(view, shown.config, own, asked.host.lower())[: asked.top]


def _dead(shown: Shown, asked: Paging) -> Rows:
    with shown.place.view() as view:
        return dead_letter_rows(view.dead(asked.top))


def _why(shown: Shown, asked: UrlAsked) -> Rows:
    with shown.place.view() as view:
        found = why(asked.url, view, shown.config, {})
        return Explained(found, list(why_text(found, view.now())))


def _fresh(shown: Shown, asked: FreshAsked) -> Rows:
    with shown.place.view() as view:
        return fresh_copies(view, shown.config, asked.host.lower())


def _visits(shown: Shown, asked: UrlAsked) -> Rows:
    with shown.place.view() as view:
        return fresh_page(asked.url, view, shown.config)


def _workers(shown: Shown, _: NothingAsked) -> Rows:
    with shown.place.view() as view:
        return worker_rows(view.workers(), view.now())


def _rules(shown: Shown, _: NothingAsked) -> Rows:
    with shown.place.view() as view:
        text = view.rules()
    try:
        rules = read_rules(text, len(shown.config.frontier.level_shares))
    except ConfigError as wrong:
        return RulesText(text, 0, str(wrong))
    return RulesText(text, len(rules.rules), "")


def _audit(shown: Shown, asked: Paging) -> Rows:
    with shown.place.view() as view:
        return act_rows(view.audit())[: asked.top]


def _outcomes(shown: Shown, asked: OutcomesAsked) -> Rows:
    logs = [
        latest_outcomes(folder / OUTCOMES, asked) for folder in folders_of_crawl(shown.place.path)
    ]
    return list(islice(merge(*logs, key=lambda outcome: -outcome.at), asked.top))


def latest_outcomes(log: Path, asked: OutcomesAsked) -> Iterator[Outcome]:
    """Yield outcomes of the last 4 MiB of *log* that are as *asked*, the latest first."""
    try:
        with log.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - _OUTCOME_BYTES)
            file.seek(begin)
            lines = file.read(_OUTCOME_BYTES).split(b"\n")
    except FileNotFoundError:
        return
    for line in reversed(lines[1:] if begin else lines):
        try:
            outcome = decode_outcome(line)
        except msgspec.MsgspecError:
            continue  # empty, or still being written
        if is_asked(outcome, asked):
            yield outcome


def is_asked(outcome: Outcome, asked: OutcomesAsked) -> bool:
    status = "" if outcome.status is None else str(outcome.status)
    return (
        asked.match in outcome.url
        and asked.fate in ("", outcome.fate)
        and asked.status in ("", status, f"{status[:1]}xx")
        and asked.reason in outcome.reason
        and asked.failure in ("", outcome.failure)
    )


def _history(shown: Shown, asked: HistoryAsked) -> Rows:
    folders = folders_of_crawl(shown.place.path)
    found = sum_histories([read_history(folder / HISTORY, asked.span) for folder in folders])
    return HistoryShown(
        at=found.at,
        pages_per_s=found.rates("pages"),
        bytes_per_s=found.rates("bytes"),
        errors_per_s=found.rates("errors"),
        waiting=found.columns["waiting"],
        hosts_active=found.columns["hosts_active"],
        changes_per_s=found.rates(CHANGES),
        fresh=found.fresh(),
        answers_per_s={name: found.rates(name) for name in CLASSES},
        fetch_s=found.mean_fetch_s(),
    )


def _archive(shown: Shown, asked: Paging) -> Rows:
    try:
        place = archive_of(shown.settings, shown.config)
    except DataDirError:  # nothing is archived yet, or at all
        return []
    folders = tuple(folder / WARC for folder in folders_of_crawl(shown.place.path))
    return newest_files(replace(place, folders=folders), asked.top)


VIEWS: Final[Mapping[str, View]] = MappingProxyType(
    {
        view.name: view
        for view in (
            View(
                "hosts",
                HostsAsked,
                HostRow,
                "Hosts: how many URLs wait, when each may be contacted, and why not before. All by "
                f"name, the first {MAX_ROWS:,} in another order.",
                _hosts,
            ),
            View(
                "domains",
                DomainsAsked,
                DomainRow,
                "Registered domains: rank, budget a round, and the URLs that wait for it.",
                _domains,
            ),
            View(
                "now",
                NowAsked,
                FetchRow,
                "What is fetched now, by all workers, the longest first: since when, how much has "
                "come, and whether it hangs.",
                _now,
            ),
            View("dead", Paging, DeadLetterRow, "Dead letters, oldest first.", _dead),
            View("why", UrlAsked, Explained, "What is known of a URL.", _why, is_table=False),
            View(
                "visits",
                UrlAsked,
                PageVisits,
                "The visits of a page, and when and why it is visited next.",
                _visits,
                is_table=False,
            ),
            View(
                "fresh",
                FreshAsked,
                CopiesFreshness,
                "How fresh the copies are, all or of a host: each is read, in 6 s for a million.",
                _fresh,
                is_table=False,
            ),
            View(
                "outcomes",
                OutcomesAsked,
                Outcome,
                "What became of the latest URLs, of the workers on this machine.",
                _outcomes,
            ),
            View(
                "history",
                HistoryAsked,
                HistoryShown,
                "The last hour, the last day or the whole crawl, for a plot.",
                _history,
                is_table=False,
            ),
            View(
                "archive",
                Paging,
                NewestFile,
                "The newest files of the archive.",
                _archive,
            ),
            View(
                "workers",
                NothingAsked,
                WorkerRow,
                "The workers of a shared crawl.",
                _workers,
            ),
            View(
                "rules",
                NothingAsked,
                RulesText,
                "The operator's rules, as written.",
                _rules,
                is_table=False,
            ),
            View(
                "audit",
                Paging,
                ActRow,
                "What operators have done, latest first.",
                _audit,
            ),
        )
    }
)


_SWITCH_S: Final = 0.001


def shown_of(view: View, shown: Shown, asked: msgspec.Struct) -> Rows:
    """Return what *view* shows, in a thread beside the event loop, which gets the interpreter back
    within a millisecond whenever it has something to do (else within five, several times in each of
    its turns)."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return view.show(shown, asked)
    finally:
        sys.setswitchinterval(before)


def asked_of(view: View, query: Mapping[str, str]) -> msgspec.Struct:
    """Return the parameters of *view* in a query. Raises ConfigError."""
    try:
        return msgspec.convert(dict(query), view.asked, strict=False)
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"{view.name}: {_no_choice(view.asked, query) or wrong}") from None


def _no_choice(asked: type[msgspec.Struct], query: Mapping[str, str]) -> str:
    """Say which parameter is none of those there are, which msgspec does not name; or nothing."""
    for name, kind in get_type_hints(asked).items():
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            choices = [choice.value for choice in kind]
            if query.get(name, choices[0]) not in choices:
                return f"{name} is {query[name]!r}; want one of {', '.join(filter(None, choices))}"
    return ""


def as_csv(row: type[msgspec.Struct], rows: Iterable[Any]) -> str:
    """Return *rows* as CSV (RFC 4180) with a head. A cell that a spreadsheet would run as a formula
    begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(row.__struct_fields__)
    for each in rows:
        writer.writerow([_cell(getattr(each, name)) for name in row.__struct_fields__])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
