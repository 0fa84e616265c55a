"""What an owner asks of a crawled site: faults of its links, titles and canonical URLs, and more.

Rule: what is kept of an answer is bounded; files of rows (CSV) have all of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from crawler.archive.cdxj import SUFFIX as INDEX
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery import OUTCOMES
from crawler.archive.site_queries import FINDINGS, MISSING, NEEDS, REQUISITES, Finding
from crawler.archive.site_tables import Row, SiteTables, open_site_tables
from crawler.archive.warc_file import companion_path
from crawler.data.data_dir import FORMAT_FILE, lock_owner, read_format
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable
from crawler.model.url import CanonicalRules, UrlRule, canonical
from crawler.view.archive import ArchivePlace
from crawler.view.formats import many

LISTED: Final = 1000  # rows of each finding
_HOSTS: Final = 3  # named in the title
# What a spreadsheet takes for the begin of a formula (OWASP, "CSV Injection").
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_HINT: Final = (
    "-a check_external=yes asks each external link once that no rule refuses;"
    f" {PROGRAM} frontier why URL names the rule"
)


class SiteFinding(msgspec.Struct, frozen=True):
    """The answer to one question."""

    name: str
    title: str
    question: str
    heads: list[str]
    rows: list[list[str | int | float | bool | None]]  # the first
    total: int
    figures: int  # the column from which on there are figures
    is_fault: bool
    untold: str = ""  # why it cannot be told


class SiteReport(msgspec.Struct, frozen=True):
    """The answers to all."""

    hosts: list[str]  # the first, by their pages
    folders: list[str]
    pages: int
    html_pages: int
    links: int
    all_hosts: int
    not_fetched: int  # URLs on these hosts that are linked to
    findings: list[SiteFinding]
    notes: list[str]


def site_report(places: Sequence[ArchivePlace], csv_folder: Path | None = None) -> SiteReport:
    """Ask all of the crawl that *places* hold together. Into *csv_folder*, if given, go all rows, a
    new file for each finding. Raises DataDirError, StoreUnavailable."""
    with opened_site(places) as (tables, notes):
        if csv_folder is not None:
            _refuse_existing(csv_folder)
        has_sitemap = tables.first("SELECT url FROM targets WHERE listed > 0", 1)
        lacks = tables.lacks if has_sitemap else tables.lacks | {"sitemap"}
        findings = [_answer(tables, each, lacks, csv_folder) for each in FINDINGS]
        ((pages, html_pages),) = tables.first(_PAGES, 1)
        if not html_pages:
            notes.append("there is no HTML page in it, so there is little to tell")
        is_checked = tables.first("SELECT url FROM fates WHERE external IS NOT NULL", 1)
        if not is_checked and tables.first(_UNCHECKED, 1):
            notes.append(f"external links are not checked: {_HINT}")
        return SiteReport(
            hosts=[host for (host,) in tables.first(_BY_PAGES, _HOSTS)],
            folders=[str(place.path) for place in places],
            pages=pages,
            html_pages=html_pages,
            links=tables.first("SELECT coalesce(sum(links), 0)::BIGINT FROM targets", 1)[0][0],
            all_hosts=tables.count("SELECT * FROM hosts"),
            not_fetched=tables.count(_NOT_FETCHED),
            findings=findings,
            notes=notes,
        )


_PAGES: Final = "SELECT count(*), count(*) FILTER (is_html) FROM pages"
_BY_PAGES: Final = (
    "SELECT split_part(url, '/', 3) AS host FROM pages WHERE is_html AND host IN (FROM hosts)"
    " GROUP BY host ORDER BY count(*) DESC, host"
)
_NOT_FETCHED: Final = (
    "SELECT url FROM targets ANTI JOIN fates USING (url)"
    " WHERE split_part(url, '/', 3) IN (FROM hosts) AND url NOT IN (SELECT url FROM pages)"
)
_UNCHECKED: Final = (
    "SELECT url FROM targets ANTI JOIN fates USING (url)"
    " WHERE split_part(url, '/', 3) NOT IN (FROM hosts)"
)


class MissingReport(msgspec.Struct, frozen=True):
    """What pages lack that they need to be shown."""

    pages: int  # that lack something
    html_pages: int
    files: int  # that are missing
    failed: int  # of these, whose fetch has failed
    reasons: list[tuple[str, int]]  # with the files of each, the most frequent first
    finding: SiteFinding
    notes: list[str]


def missing_report(places: Sequence[ArchivePlace], csv_file: Path | None = None) -> MissingReport:
    """Tell what is missing of whole pages; all rows go into the new *csv_file*, if given. Raises
    DataDirError, StoreUnavailable."""
    with opened_site(places) as (tables, notes):
        if "outcomes" in tables.lacks:
            raise DataDirError(f"it cannot be told what is missing: {NEEDS['outcomes']}")
        tables.make(REQUISITES)
        if csv_file is not None:
            for _ in _written(csv_file, tables.heads(MISSING.sql), tables.rows(MISSING.sql)):
                pass
        found = _answer(tables, MISSING, tables.lacks, None)
        lines = f"SELECT * FROM ({MISSING.sql.strip().removesuffix(';')})"
        ((html_pages,),) = [tables.first(_SHOWN, 1)[0]]
        if not tables.first(_REQUISITE, 1):
            notes.append("nothing was fetched that pages need to be shown: -a requisites=yes does")
        files = f"SELECT DISTINCT missing, why, has_failed FROM ({lines})"
        by_reason = f"SELECT why, count(*) FROM ({files}) GROUP BY why ORDER BY 2 DESC, 1"
        return MissingReport(
            pages=tables.count(f"SELECT DISTINCT page FROM ({lines})"),
            html_pages=html_pages,
            files=tables.count(files),
            failed=tables.count(f"SELECT * FROM ({files}) WHERE has_failed"),
            reasons=[(why, count) for why, count in tables.first(by_reason, LISTED)],
            finding=found,
            notes=notes,
        )


_SHOWN: Final = "SELECT count(*) FROM pages WHERE is_html AND NOT is_hidden"
_REQUISITE: Final = "SELECT url FROM targets JOIN fates USING (url) WHERE embedded > 0"


@contextmanager
def opened_site(places: Sequence[ArchivePlace]) -> Iterator[tuple[SiteTables, list[str]]]:
    """Yield the tables of the crawl that *places* hold together, and what a user should know of
    them. Raises DataDirError."""
    homes = list(dict.fromkeys(home.resolve() for place in places for home in place.homes))
    captures = [file for home in homes for file in sorted((home / "warc").glob(f"*{COLUMNS}"))]
    outcomes = [file for home in homes for file in sorted((home / OUTCOMES).glob("*.parquet"))]
    indexes = [file for home in homes for file in sorted((home / "warc").glob(f"*{INDEX}"))]
    notes = list(_notes(places))
    if not captures:
        words = "; ".join([f"{places[0].path} has no columns to ask", *notes])
        raise DataDirError(
            f"{words}. They are written with each finished file of the archive, unless"
            f" CRAWLER_COLUMNS is off; {PROGRAM} archive parse makes them"
        )
    rules = _rules(homes)
    with open_site_tables(
        captures, outcomes, lambda url: canonical(url, rules), indexes=indexes
    ) as tables:
        yield tables, notes


def _notes(places: Sequence[ArchivePlace]) -> Iterator[str]:
    yield from dict.fromkeys(note for place in places for note in place.missing_notes())
    homes = [home for place in places for home in place.homes]
    if any(lock_owner(home) is not None for home in homes):
        yield "the crawl is running, and files that it still writes are not looked at"
    finished = [file for place in places for file in place.finished()]
    if without := sum(not companion_path(file, COLUMNS).exists() for file in finished):
        yield f"{many(without, 'finished file')} without columns: {PROGRAM} archive parse"


def _rules(homes: Iterable[Path]) -> CanonicalRules:
    """Return by which rules the crawl counts URLs as one, those by default if that is not known."""
    for home in homes:
        if (home / FORMAT_FILE).exists():
            identity = set(read_format(home).identity)
            return CanonicalRules(frozenset(rule for rule in UrlRule if rule.value in identity))
    return CanonicalRules()


def _answer(
    tables: SiteTables, finding: Finding, lacks: frozenset[str], folder: Path | None
) -> SiteFinding:
    heads = tables.heads(finding.sql)
    untold = "; ".join(NEEDS[each] for each in sorted(finding.needs & lacks))
    rows: list[Row] = []
    total = 0
    if untold:
        pass
    elif folder is not None:
        for row in _written(folder / f"{finding.name}.csv", heads, tables.rows(finding.sql)):
            total += 1
            if total <= LISTED:
                rows.append(row)
    else:
        total = tables.count(finding.sql)
        rows = tables.first(finding.sql, LISTED)
    return SiteFinding(
        name=finding.name,
        title=finding.title,
        question=finding.question,
        heads=heads,
        rows=[list(row) for row in rows],
        total=total,
        figures=finding.figures,
        is_fault=finding.is_fault,
        untold=untold,
    )


def _refuse_existing(folder: Path) -> None:
    for finding in FINDINGS:
        file = folder / f"{finding.name}.csv"
        if file.exists():
            raise DataDirError(f"{file} exists: remove it, or name another folder with --csv")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {folder}: {error.strerror or error}") from error


def _written(file: Path, heads: Sequence[str], rows: Iterable[Row]) -> Iterator[Row]:
    """Write a new CSV file, and yield each row of it when it is written. Raises
    StoreUnavailable."""
    try:
        # With a mark of order: Excel reads it as UTF-8 only so.
        with file.open("x", encoding="utf-8-sig", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(heads)
            for row in rows:
                writer.writerow(map(_cell, row))
                yield row
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}") from error


def _cell(value: object) -> object:
    """Return what is written for *value*: a text that a spreadsheet would compute, behind a "'"."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return str(value).lower() if isinstance(value, bool) else value
