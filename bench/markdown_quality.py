"""How much of the structure of pages is in their Markdown, beside trafilatura and, where it is
installed, pandoc: `python -m bench.markdown_quality FOLDER...`, of pages that mark their content.

Rule: the truth is what selectolax finds in the marked content; what a CommonMark parser reads in
the Markdown is compared with it. F1, mean of the pages. Links within the page count for none.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import trafilatura
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser

from crawler.content.parsers.html import HtmlParser
from crawler.model.choices import ColumnGroup
from crawler.model.page import Source

KINDS: Final = ("text", "links", "headings", "tables", "code")
_CONTENT: Final = ("[role=main]", "main", "article", ".body", ".chapter", ".section")
_SIZES: Final = range(8_000, 120_000)
_LEAST_WORDS: Final = 100
_ASKED: Final = frozenset((ColumnGroup.MARKDOWN,))
_parse: Final = MarkdownIt("commonmark").enable("table").parse
Parts = dict[str, Counter[str]]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def nothing() -> Parts:
    return {kind: Counter() for kind in KINDS}


def read_back(markdown: str) -> Parts:
    found = nothing()
    for before, token in pairwise(_parse(markdown)):
        if token.type in ("fence", "code_block"):
            found["text"].update(words(token.content))
            found["code"].update(words(token.content))
        children = token.children or [] if token.type == "inline" else []
        said = words(
            "".join(each.content for each in children if each.type in ("text", "code_inline"))
        )
        found["text"].update(said)
        kind = {"heading_open": "headings", "td_open": "tables", "th_open": "tables"}.get(
            before.type
        )
        if kind and said:
            found[kind][" ".join(said)] += 1
        for each in children:
            if each.type == "link_open" and not str(each.attrs["href"]).startswith("#"):
                found["links"][str(each.attrs["href"])] += 1
            elif each.type == "code_inline":
                found["code"].update(words(each.content))
    return found


def truth(html: bytes) -> Parts | None:
    page, found = LexborHTMLParser(html), nothing()
    content = next((node for css in _CONTENT if (node := page.css_first(css))), None)
    if content is None:
        return None
    found["text"].update(words(content.text(deep=True, separator=" ")))
    for kind, css in (("headings", "h1,h2,h3,h4,h5,h6"), ("tables", "td,th")):
        for node in content.css(css):
            if said := words(node.text(deep=True, separator="")):
                found[kind][" ".join(said)] += 1
    for node in content.css("a[href]"):
        url = node.attributes.get("href") or "#"
        if not url.startswith("#") and words(node.text(deep=True, separator="")):
            found["links"][url] += 1
    for node in content.css("pre,code"):
        if node.tag == "pre" or node.parent is None or node.parent.tag != "pre":
            found["code"].update(words(node.text(deep=True, separator="")))
    return found


def ours(html: bytes) -> str:
    return HtmlParser().parse(Source("", "text/html", html, asked=_ASKED)).markdown


def by_trafilatura(html: bytes) -> str:
    found = trafilatura.extract(
        html, output_format="markdown", include_links=True, include_comments=False
    )
    return found or ""


def by_pandoc(html: bytes) -> str:
    command = ["pandoc", "-f", "html", "-t", "gfm-raw_html", "--wrap=none"]
    return subprocess.run(command, input=html, capture_output=True, check=True).stdout.decode()


def f1(found: Counter[str], true: Counter[str]) -> float:
    return 2 * (found & true).total() / (found.total() + true.total())


def pages(folders: list[Path], most: int) -> Iterator[bytes]:
    for folder in folders:
        paths = [path for path in sorted(folder.rglob("*.html")) if path.stat().st_size in _SIZES]
        random.Random(1).shuffle(paths)
        yield from (path.read_bytes() for path in paths[:most])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--most", type=int, default=30, help="pages of a folder")
    options = parser.parse_args()
    writers: dict[str, Callable[[bytes], str]] = {
        "this crawler": ours,
        "trafilatura": by_trafilatura,
    }
    if shutil.which("pandoc"):
        writers["pandoc, whole pages"] = by_pandoc
    known = [(html, truth(html)) for html in pages(options.folders, options.most)]
    judged = [(html, true) for html, true in known if true and true["text"].total() > _LEAST_WORDS]
    print(f"| {len(judged)} pages | {' | '.join(KINDS)} |")
    for name, write in writers.items():
        scores: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for html, true in judged:
            found = read_back(write(html))
            for kind in KINDS:
                if true[kind]:
                    scores[kind].append(f1(found[kind], true[kind]))
        means = [f"{sum(each) / (len(each) or 1):.3f}" for each in scores.values()]
        print(f"| {name} | {' | '.join(means)} |")


if __name__ == "__main__":
    main()
