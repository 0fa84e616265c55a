"""What HTML files of ours are made of: a page that needs nothing else, and tables.

Rule: a page holds no script, asks for nothing, and its Content-Security-Policy forbids both. All
text passes `text`, as hosts, URLs, types and errors were chosen by servers.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from crawler.model.types import VERSION
from crawler.view.formats import plain


def html_page(
    title: str, overview: Iterable[str], parts: Iterable[str], *, is_public: bool = False
) -> str:
    """Return a page. *overview* and *parts* are lines of HTML. *is_public*: it may be indexed."""
    robots = "" if is_public else '<meta name="robots" content="noindex">'
    style = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style}'"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="referrer" content="no-referrer">{robots}',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{text(title)}</title><style>{_STYLE}</style></head><body>",
            f"<header><h1>{text(title)}</h1>",
            *overview,
            "</header><main>",
            *parts,
            f"</main><footer><p>Gossamer {VERSION}</p></footer></body></html>\n",
        ]
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], words: int, *, as_cards: bool = False
) -> Iterator[str]:
    """Yield a table; from column *words* on they hold figures. *as_cards*: on a phone a row is a
    block of lines, each with its head."""
    yield '<div class="wide"><table class="cards">' if as_cards else '<div class="wide"><table>'
    yield "<thead><tr>"
    yield "".join(f"<th{_side(at, words)}>{text(each)}</th>" for at, each in enumerate(head))
    yield "</tr></thead><tbody>"
    names = [f' data-head="{text(each)}"' if as_cards else "" for each in head]
    starts = [f"<td{_side(at, words)}{name}>" for at, name in enumerate(names)]
    for row in rows:
        cells = (f"{start}{text(each)}</td>" for start, each in zip(starts, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _side(column: int, words: int) -> str:
    return ' class="figure"' if column >= words else ""


def figures(shown: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield figures with their names."""
    yield '<dl class="figures">'
    for name, figure in shown:
        yield f"<div><dt>{text(name)}</dt><dd>{text(figure)}</dd></div>"
    yield "</dl>"


def text(shown: str) -> str:
    """Return *shown* as it may stand in an element or a quoted attribute."""
    return html.escape(plain(shown))


_STYLE: Final = """
:root { --back: #fff; --fore: #1d2329; --dim: #5b6570; --edge: #d6dbe0; --ink: #0b64a0; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181c; --fore: #e4e8ec; --dim: #98a3ad; --edge: #343c44; --ink: #62b4ee; }
}
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--back);
  color: var(--fore); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
.note { border-left: 4px solid var(--ink); padding-left: .7rem; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem 1.6rem; margin: 0; }
.figures dt { color: var(--dim); } .figures dd { margin: 0; font-size: 1.25rem; }
.plots, .columns { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); }
figure { margin: 0; } figure svg { width: 100%; height: 7.5rem; }
.axis { fill: none; stroke: var(--edge); vector-effect: non-scaling-stroke; }
.line { fill: none; stroke: var(--ink); stroke-width: 1.5;
  vector-effect: non-scaling-stroke; }
.ends { display: flex; justify-content: space-between; margin: 0; color: var(--dim);
  font-size: .8rem; }
.contents { columns: 15rem; padding: 0; list-style: none; } a { color: var(--ink); }
.wide { overflow-x: auto; } .prose { max-width: 44rem; } dt { color: var(--dim); }
.prose code { overflow-wrap: anywhere; } pre { border: 1px solid var(--edge); padding: .6rem;
  white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--edge); padding: .15rem .6rem .15rem 0;
  text-align: left; vertical-align: top; overflow-wrap: anywhere; }
.cards th { white-space: nowrap; } .cards td { min-width: 4.6rem; }
@media (max-width: 40rem) {
  .cards, .cards tbody, .cards tr, .cards td { display: block; } .cards thead { display: none; }
  .cards tr { border-bottom: 1px solid var(--edge); padding: .4rem 0; }
  .cards td { border: 0; padding: 0 0 0 6rem; text-align: left; white-space: normal; }
  .cards td:empty { display: none; }
  .cards td::before { content: attr(data-head); float: left; margin-left: -6rem;
    color: var(--dim); }
}
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bars { width: 4rem; min-width: 4rem; vertical-align: middle; }
.bars svg { width: 100%; height: .6rem; }
.bar { fill: var(--ink); } footer { color: var(--dim); }
"""
