"""What a comparison of two archives says: an HTML file, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crawler.archive.compare import ComparedPage, PageDifference
from crawler.report.html_parts import figures, html_page, table
from crawler.view.compare import ArchiveComparison, PatternDifferences
from crawler.view.formats import many, number, plain
from crawler.view.formats import table as columns

_HEADS: Final = {
    PageDifference.NEW: "New pages",
    PageDifference.CHANGED: "Changed pages",
    PageDifference.GONE: "Pages that are gone",
}
_TOLD: Final = 20  # patterns, on a terminal


def comparison_html(found: ArchiveComparison) -> str:
    """Return an HTML file, which needs nothing else."""
    return html_page(
        f"From {found.old} to {found.new}",
        figures(_counts(found).items()),
        [*_patterns(found), *(line for kind in PageDifference for line in _pages(found, kind))],
    )


def comparison_text(found: ArchiveComparison) -> Iterator[str]:
    """Yield lines for a terminal."""
    yield f"From {plain(found.old)} to {plain(found.new)}"
    yield ", ".join(f"{count} {name}" for name, count in _counts(found).items())
    head = ("pages", *PageDifference)
    rows = [(plain(each.pattern), *_figures(each)) for each in found.patterns[:_TOLD]]
    if rows:
        yield from columns([head, *rows], right={1, 2, 3})
    if left := len(found.patterns) - len(rows) + found.more_patterns:
        yield f"and {many(left, 'other pattern')}"


def _counts(found: ArchiveComparison) -> dict[str, str]:
    totals = found.totals
    counts = {
        "pages before": found.old_pages,
        "now": found.new_pages,
        "the same": found.same,
        "new": totals.new,
        "changed": totals.changed,
        "of these with nearly the same text": found.nearly,
        "gone": totals.gone,
        "of these not fetched now": found.not_fetched,
    }
    return {name: number(count) for name, count in counts.items()}


def _figures(each: PatternDifferences) -> Iterator[str]:
    return map(number, (each.new, each.changed, each.gone))


def _patterns(found: ArchiveComparison) -> Iterator[str]:
    yield "<section><h2>By pattern</h2>"
    rows = ((each.pattern, *_figures(each)) for each in found.patterns)
    yield from table(("pages", *PageDifference), rows, 1)
    if found.more_patterns:
        yield f"<p>And {many(found.more_patterns, 'other pattern')}.</p>"
    yield "</section>"


def _pages(found: ArchiveComparison, kind: PageDifference) -> Iterator[str]:
    listed = [each for each in found.pages if each.kind is kind]
    of_kind = getattr(found.totals, kind)
    yield f"<section><h2>{_HEADS[kind]}</h2>"
    if not of_kind:
        yield "<p>None.</p></section>"
        return
    if len(listed) < of_kind:
        yield f"<p>The first {number(len(listed))} of {number(of_kind)}.</p>"
    yield from table(("page", "title", "how"), ((e.url, e.title, _how(e)) for e in listed), 3)
    yield "</section>"


def _how(page: ComparedPage) -> str:
    if page.kind is PageDifference.GONE:
        return "not fetched" if page.status is None else f"answered {page.status}"
    return "" if page.bits is None else f"{many(page.bits, 'bit')} of 64 of its text"
