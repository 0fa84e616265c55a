"""What a report on a site says: an HTML file, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crawler.report.html_parts import figures, html_page, table, text
from crawler.view.formats import many, number, plain
from crawler.view.formats import table as columns
from crawler.view.site import MissingReport, SiteFinding, SiteReport


def site_html(found: SiteReport) -> str:
    """Return an HTML file, which needs nothing else."""
    return html_page(
        f"Report on {_name(found)}",
        [
            *figures(_counts(found).items()),
            *(f"<p class=note>{text(note)}.</p>" for note in found.notes),
        ],
        [*_contents(found), *(line for each in found.findings for line in _section(each))],
    )


def site_text(found: SiteReport) -> Iterator[str]:
    """Yield lines for a terminal."""
    yield f"Report on {plain(_name(found))}"
    yield ", ".join(f"{count} {name}" for name, count in _counts(found).items())
    yield ""
    yield from columns([(each.title, _total(each)) for each in found.findings], right={1})


_TOLD: Final = 20  # rows, on a terminal


def missing_text(found: MissingReport) -> Iterator[str]:
    """Yield lines for a terminal."""
    if not found.files:
        yield f"Nothing is missing of {many(found.html_pages, 'page')}"
        return
    lacking = f"{number(found.pages)} of {many(found.html_pages, 'page')}"
    yield f"{lacking} lack {many(found.files, 'file')} that they need to be shown"
    yield ""
    yield from columns([(why, number(count)) for why, count in found.reasons[:_TOLD]], right={1})
    yield ""
    rows = [tuple(map(_cell, row)) for row in found.finding.rows[:_TOLD]]
    for page, missing, kind, why, _, by_way_of in rows:
        by = f", by {plain(by_way_of)}" if by_way_of else ""
        yield f"{plain(page)} lacks {plain(missing)} ({kind}{by}): {plain(why)}"
    if (more := found.finding.total - len(rows)) > 0:
        yield f"and {number(more)} more: -o FILE.csv writes all"
    if found.failed:
        yield f"-a only=failed fetches again what has failed, {many(found.failed, 'file')}"


def _name(found: SiteReport) -> str:
    more = found.all_hosts - len(found.hosts)
    names = ", ".join(found.hosts) or ", ".join(found.folders)
    return f"{names} and {many(more, 'other host')}" if more > 0 else names


def _counts(found: SiteReport) -> dict[str, str]:
    counts = {
        "pages of HTML": found.html_pages,
        "pages of all types": found.pages,
        "links": found.links,
        "linked to and not fetched": found.not_fetched,
    }
    return {name: number(count) for name, count in counts.items()}


def _total(each: SiteFinding) -> str:
    return "not known" if each.untold else number(each.total)


def _contents(found: SiteReport) -> Iterator[str]:
    """Yield the findings with how many there are of each, and where they stand."""
    yield '<nav><ul class="contents">'
    for each in found.findings:
        yield f'<li><a href="#{each.name}">{each.title}</a> {_total(each)}</li>'
    yield "</ul></nav>"


def _section(each: SiteFinding) -> Iterator[str]:
    yield f'<section id="{each.name}"><h2>{each.title}</h2><p>{each.question}</p>'
    if each.untold:
        yield f"<p>Not known: {text(each.untold)}.</p></section>"
        return
    if not each.total:
        yield "<p>None.</p></section>"
        return
    heads = [head.replace("_", " ") for head in each.heads]
    rows = ([_cell(value) for value in row] for row in each.rows)
    yield from table(heads, rows, each.figures, as_cards=True)
    if (more := each.total - len(each.rows)) > 0:
        yield f"<p>And {number(more)} more: --csv FOLDER writes all.</p>"
    yield "</section>"


def _cell(value: object) -> str:
    if value is None or value is False:
        return ""
    return "yes" if value is True else number(value) if isinstance(value, int) else str(value)
