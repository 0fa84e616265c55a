"""How much of the main text of pages is found, and how much else: ours beside trafilatura's and
resiliparse's. `python -m bench.text_quality --folder DIR`, two minutes; it downloads packages of
Debian with apt-get, once.

Rule: the truth comes from the source that a page was made of, which Debian ships too, never from
its HTML: reStructuredText, AsciiDoc, DocBook (KDE's handbooks, with the HTML made of them) and roff
(manuals that are also shipped as HTML; groff formats them). Half of the pages, chosen by a hash of
their names, is held back: only its figures are to be looked at, or they mean nothing.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from html.entities import html5
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

import resiliparse.extract.html2text as resiliparse
import trafilatura
from selectolax.lexbor import LexborHTMLParser

from bench.debian_packages import download
from crawler.content.parsers.html import HtmlParser
from crawler.model.page import Source

RST: Final = (
    *("python3.11-doc", "sphinx-doc", "python-pytest-doc", "python-celery-doc"),
    *("python-tornado-doc", "python-flask-doc", "python-werkzeug-doc", "debian-policy"),
    *("developers-reference", "python-click-doc", "python-babel-doc", "docutils-doc"),
    *("python-requests-doc", "python-attr-doc", "python-jinja2-doc"),
)
ASCIIDOC: Final = ("git-doc",)
DOCBOOK: Final = (
    *(
        "akregator",
        "ark",
        "dolphin",
        "gwenview",
        "k3b-data",
        "kate5-data",
        "kdenlive-data",
        "kmail",
    ),
    *("konqueror", "konsole", "kstars-data", "okular"),
)
ROFF: Final = {"ncurses-doc": ("ncurses-bin", "libncurses-dev"), "postfix-doc": ("postfix",)}
"""Packages of HTML, and those that have the manuals which it was made of."""

MOST_OF_A_PACKAGE: Final = 60
MIN_WORDS: Final = 60
# What puts text on the page that its source does not have, or leaves some out.
_PULLS = re.compile(
    r"^\s*\.\. +(auto\w+|include|literalinclude|toctree|contents|only|raw|module\w*|click|jinja\w*"
    r"|autoprogram|program-output|plot|graphviz|image|figure|math|ifconfig|index|glossary"
    r"|csv-table|list-table|productionlist|highlightlang|tabularcolumns|command-output)::"
    r"|^include::|^ifdef::|^ifndef::",
    re.MULTILINE,
)
_MANUAL = re.compile(r"(?<=\.\d)[a-z]*\.(?:html|gz)$")
_words = re.compile(r"[^\W_]+").findall
_LEAST_SHARED: Final = 0.97
"""Of the words of the truth, on the page: else the converter or the pairing is wrong."""

_ALTERNATIVES: Final = ("textobject", "screeninfo")
_APART: Final = ("keycap", "guimenu", "guisubmenu", "guimenuitem")
"""Elements of DocBook between which its style sheets put signs: Ctrl+Q, File -> Quit."""

Words = Counter[str]


class Document(NamedTuple):
    """A page and the words of its source."""

    package: str
    path: Path
    html: bytes
    truth: Words

    @property
    def is_held_back(self) -> bool:
        name = f"{self.package}/{self.path.name}"
        return sha256(name.encode()).digest()[0] % 2 == 1


def from_rst(text: str) -> str:
    """Return the words of reStructuredText: without marks, options, comments and targets."""
    text = re.sub(
        r"^ *\.\. +[\w:+-]+:: *(?:python3?|sh|bash|console|none|text|\w+)?$", "", text, flags=re.M
    )
    text = re.sub(r"^( *)\.\. +_[^\n]*:[^\n]*$", "", text, flags=re.M)
    text = re.sub(r"^( *)\.\. +\|[^\n]*$", "", text, flags=re.M)
    text = re.sub(r"^( *)\.\.(?: +(?!\[)[^:\n]*(?:\n\1 +[^\n]*)*)?$", "", text, flags=re.M)
    text = re.sub(r"^ +:(?:[\w-]+):[^\n]*$", "", text, flags=re.M)
    text = re.sub(r"^ *\.\. +(?:c:|py:|js:|cpp:|std:)?\w+:: *", "", text, flags=re.M)
    text = re.sub(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`", r" \1 ", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`]*>`__?", r" \1 ", text)
    return re.sub(r"[`*|]+|_\b", "", text)


def from_asciidoc(text: str) -> str:
    """Return the words of AsciiDoc as Git uses it."""
    text = re.sub(r"^(?:\[.*\]|:[\w-]+:.*|//.*|(?:-|=|~|\^|\.|\+|_|\*){4,})$", "", text, flags=re.M)
    text = re.sub(r"linkgit:([\w.-]+)\[(\w+)\]", r"\1(\2)", text)
    text = re.sub(r"<<[^>,]*,([^>]*)>>", r"\1", text)
    text = re.sub(r"(?:link|https?):\S+?\[([^\]]*)\]", r"\1", text)
    return re.sub(r"[`*+'_{}]+", " ", text)


def docbook(source: str) -> ElementTree.Element:
    """Return the root. Entities that only KDE knows become what their names say: &LMB; is LMB."""
    source = re.sub(r"<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", "", source, count=1, flags=re.DOTALL)
    return ElementTree.fromstring(re.sub(r"&(\w[\w.-]*);", _entity, source))  # noqa: S314  # without entities


def _entity(written: re.Match[str]) -> str:
    if written[0] in ("&amp;", "&lt;", "&gt;"):
        return written[0]
    return html5.get(written[0][1:], written[1].replace(".", " ") + " ")


def from_docbook(element: ElementTree.Element) -> str:
    """Return the words of an element, without what stands for its pictures."""
    if element.tag in _ALTERNATIVES:
        return ""
    inside = [text for child in element for text in (from_docbook(child), child.tail or "")]
    return "".join([element.text or "", *inside, " " if element.tag in _APART else ""])


def from_roff(manual: Path) -> str:
    """Return the words of a manual, without its first and its last line, which name it."""
    text = subprocess.run(
        ["groff", "-mandoc", "-t", "-Tutf8", "-P-c", "-P-b", "-P-u", "-rHY=0", "-rLL=1000n"],
        input=gzip.decompress(manual.read_bytes()),
        capture_output=True,
        check=True,
    ).stdout.decode()
    return "\n".join([line for line in text.splitlines() if line.strip()][1:-1])


def words(text: str) -> Words:
    return Counter(_words(text.lower()))


def whole(html: bytes) -> str:
    tree = LexborHTMLParser(html)
    tree.strip_tags(["script", "style", "title"])
    return tree.body.text(separator=" ") if tree.body else ""


def ours(html: bytes) -> str:
    return HtmlParser().parse(Source("", "text/html", html)).text


def by_trafilatura(html: bytes) -> str:
    return trafilatura.extract(html, include_comments=False) or ""


def by_resiliparse(html: bytes) -> str:
    return str(resiliparse.extract_plain_text(html.decode(errors="replace"), main_content=True))


EXTRACTORS: Final[Mapping[str, Callable[[bytes], str]]] = {
    "this crawler": ours,
    "trafilatura": by_trafilatura,
    "resiliparse": by_resiliparse,
    "all text": whole,
}


PACKAGES: Final = (*RST, *ASCIIDOC, *DOCBOOK, *ROFF, *(p for each in ROFF.values() for p in each))


def documents(folder: Path) -> Iterator[Document]:
    """Yield pages with their truths, at most MOST_OF_A_PACKAGE of each package."""
    for package, candidates in {
        **{package: from_text(folder / package, from_rst) for package in RST},
        **{package: from_text(folder / package, from_asciidoc) for package in ASCIIDOC},
        **{package: from_handbooks(folder / package) for package in DOCBOOK},
        **{
            package: from_manuals(folder / package, [folder / each for each in shipped_in])
            for package, shipped_in in ROFF.items()
        },
    }.items():
        taken = 0
        for path, html, text in sorted(
            candidates, key=lambda each: sha256(each[0].name.encode()).digest()
        ):
            truth = words(text)
            shared = (truth & words(whole(html))).total()
            if truth.total() < MIN_WORDS or shared < _LEAST_SHARED * truth.total():
                continue
            taken += 1
            yield Document(package, path, html, truth)
            if taken == MOST_OF_A_PACKAGE:
                break


Candidate = tuple[Path, bytes, str]
"""The path of a page, its HTML, and the text of its source."""


def from_text(package: Path, plain: Callable[[str], str]) -> Iterator[Candidate]:
    """Yield the pages whose sources lie beside them or, as Sphinx puts them, in `_sources`."""
    for source in package.rglob("*.txt"):
        if "_sources" in source.parts:
            root = Path(*source.parts[: source.parts.index("_sources")])
            name = source.relative_to(root / "_sources").as_posix()
            page = root / f"{name.removesuffix('.txt').removesuffix('.rst')}.html"
        else:
            page = source.with_suffix(".html")
        text = source.read_text(errors="replace")
        if page.exists() and not page.is_symlink() and not _PULLS.search(text):
            yield page, page.read_bytes(), plain(text)


def from_handbooks(package: Path) -> Iterator[Candidate]:
    """Yield the pages of KDE's handbooks: the element with the name of a page as its id, without
    those that are pages themselves."""
    for made in (package / "usr/share/doc/HTML/en").rglob("index.cache.bz2"):
        pages = re.split(
            r'<FILENAME filename="([^"]+)\.html">', bz2.decompress(made.read_bytes()).decode()
        )
        htmls = dict(zip(pages[1::2], pages[2::2], strict=True))
        del htmls["index"]  # of it a table of contents
        book = docbook(made.with_name("index.docbook").read_text())
        elements = {name: book.find(f".//*[@id='{name}']") for name in htmls}
        texts = {}
        for name, element in reversed(elements.items()):  # children come after their parents
            if element is not None:
                texts[name] = from_docbook(element)
                element.clear()
        for name, text in texts.items():
            yield made.with_name(f"{name}.html"), htmls[name].encode(), text


def from_manuals(package: Path, shipped_in: Sequence[Path]) -> Iterator[Candidate]:
    """Yield the pages that are manuals: curs_addch.3x.html is made of curs_addch.3ncurses."""
    manuals = {
        _MANUAL.sub("", manual.name): manual
        for each in (package, *shipped_in)
        for manual in each.glob("usr/share/man/man*/*.gz")
        if not manual.is_symlink()
    }
    for page in package.rglob("*.html"):
        manual = manuals.get(_MANUAL.sub("", page.name))
        if manual is not None:
            yield page, page.read_bytes(), from_roff(manual)


class Score(NamedTuple):
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / ((self.precision + self.recall) or 1.0)


def score(found: Words, truth: Words) -> Score:
    shared = (found & truth).total()
    return Score(shared / (found.total() or 1), shared / truth.total())


def mean(scores: list[Score]) -> tuple[float, float, float]:
    """Return F1, precision and recall, each as the mean of the pages."""
    count = len(scores)
    return (
        sum(each.f1 for each in scores) / count,
        sum(each.precision for each in scores) / count,
        sum(each.recall for each in scores) / count,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the packages; kept")
    parser.add_argument("--half", choices=("seen", "held"), default="seen")
    parser.add_argument("--worst", type=int, default=0, help="print so many pages with their words")
    options = parser.parse_args()
    download(options.folder, PACKAGES)
    is_held_back = options.half == "held"
    pages = [each for each in documents(options.folder) if each.is_held_back == is_held_back]
    by_package = Counter(page.package for page in pages)
    print(f"{len(pages)} pages: {', '.join(f'{n} {name}' for name, n in by_package.items())}")
    print(f"{'':14} {'F1':>6} {'precision':>10} {'recall':>7}")
    scores: dict[str, list[Score]] = {}
    for name, extract in EXTRACTORS.items():
        scores[name] = [score(words(extract(page.html)), page.truth) for page in pages]
        f1, precision, recall = mean(scores[name])
        print(f"{name:14} {f1:6.3f} {precision:10.3f} {recall:7.3f}", flush=True)
    if options.worst and not is_held_back:
        print_worst(pages, scores["this crawler"], options.worst)


def print_worst(pages: list[Document], scores: list[Score], count: int) -> None:
    ordered = sorted(zip(scores, pages, strict=True), key=lambda pair: pair[0].f1)
    for found, page in ordered[:count]:
        text = words(ours(page.html))
        missing, extra = page.truth - text, text - page.truth
        print(f"\n{page.path}: F1 {found.f1:.3f}, {page.truth.total()} words")
        print(f"  {missing.total()} missing: {' '.join(list(missing)[:30])}")
        print(f"  {extra.total()} too many: {' '.join(list(extra)[:30])}")


if __name__ == "__main__":
    main()
