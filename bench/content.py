"""What a page of 30 KB costs beyond its fetch, part by part: CPU, of all threads of the process.
`python -m bench.content`; with `--folder DIR`, of bench.text_quality's packages, also for the pages
of documentation in it.

Rule: the crawl's own parts, over pages each another one; a part is timed by itself, in rounds, and
the least round counts, as everything else on the machine only adds to it. What is indented is
within the part above it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha1, sha256
from ipaddress import IPv4Network
from math import inf
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from isal.igzip_lib import COMP_GZIP, compress

from bench.pages import KINDS, ORIGIN
from crawler.archive.capture import Capture, StoredCapture
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.columns_companion import ColumnsCompanion
from crawler.archive.reader import ArchivedCapture
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.config.settings import Config, ContentSettings
from crawler.content.parsers import html_scan
from crawler.content.parsers.html import MAX_LINKS, HtmlParser
from crawler.content.parsing import rebuild_settings
from crawler.content.to_capture import ArchivedBodies, AskedColumns, archive_page
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    Exchange,
    Link,
    Page,
    Parsed,
    Source,
    head_fields,
)
from crawler.page.links import (
    base_of,
    link_headers,
    resolve_links,
    robots_header,
    with_headers,
)
from crawler.page.media_type import actual_type
from crawler.page.simhash import fingerprint
from crawler.policy.addresses import AllowedAddresses
from crawler.policy.admission import Admission, AdmissionSettings, links_to_follow
from crawler.policy.scope import Scope

PAGES: Final = 400  # a round
ROUNDS: Final = 5
KNOWN: Final = 200_000  # fingerprints that are there before
TYPE: Final = "text/html; charset=utf-8"
HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\nContent-Length: 30000\r\n"
    b'Connection: keep-alive\r\nVary: Accept-Encoding\r\nETag: "5f3c-5e1b"\r\n\r\n'
)
REQUEST: Final = (
    b"GET /a/1.html HTTP/1.1\r\nHost: 127.3.0.1:8000\r\nUser-Agent: Gossamer/0 (+mailto:a@b.c)\r\n"
    b"Accept: text/html\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\r\n"
)

BUDGET_MS: Final = {
    "parse, text and links": 0.08,
    "fingerprint and look-up": 0.08,
    "digests": 0.03,
    "archive and index": 0.14,
    "columns": 0.05,
}


class Line:
    """The content line of a crawl, without its loop: each stage takes what the one before made."""

    def __init__(
        self,
        folder: Path,
        nearest: FingerprintIndex,
        groups: Sequence[ColumnGroup] = ContentSettings().column_groups,
    ) -> None:
        self._folder = folder
        self._nearest = nearest
        self._config = Config(content=ContentSettings(column_groups=tuple(groups)))
        self._asked = AskedColumns(frozenset(groups), "0123456789abcdef")
        self._archived = ArchivedBodies(None, lambda record: False)
        self._parser = HtmlParser()
        self._bodies: list[tuple[str, bytes]] = []
        self._digests: list[bytes] = []
        self._scanned: list[tuple[Any, int, list[int]]] = []
        self._parsed: list[Parsed] = []
        self._outlinks: list[tuple[Link, ...]] = []
        self._admission = Admission(
            AdmissionSettings(
                addresses=AllowedAddresses(allow_public=True, inside=(IPv4Network("127.0.0.0/8"),)),
                key_seed=1,
                scope=Scope(denied_types=frozenset(self._config.limits.deny_extensions)),
            )
        )
        self._simhashes: list[int | None] = []
        self._captures: list[Capture] = []
        self._written: list[StoredCapture] = []

    def begin(self, bodies: Sequence[tuple[str, bytes]]) -> None:
        self._bodies = list(bodies)

    def digests(self) -> None:
        """Of the payload; once, as every other use of it takes this one."""
        self._digests = [sha1(body, usedforsecurity=False).digest() for _, body in self._bodies]

    def parse(self) -> None:
        self._parsed, self._outlinks = [], []
        for url, body in self._bodies:
            actual_type(TYPE, url, body)
            headers = head_fields(HEAD)
            source = Source(url, TYPE, body, tuple(headers), asked=self._asked.groups)
            parsed = self._parser.parse(source)
            parsed = with_headers(parsed, link_headers(headers, url), robots_header(headers))
            outlinks, _ = resolve_links(parsed.links, base_of(url, parsed))
            links_to_follow(outlinks, parsed.robots, self._config.links)
            self._parsed.append(parsed)
            self._outlinks.append(tuple(outlinks))

    def scan(self) -> None:
        self._scanned = [html_scan.scanned(body, False, MAX_LINKS) for _, body in self._bodies]

    def choose_lines(self) -> None:
        for out, end, _ in self._scanned:
            html_scan.content(out, end, is_all=False)

    def judge_links(self) -> None:
        for (url, _), parsed in zip(self._bodies, self._parsed, strict=True):
            outlinks, _ = resolve_links(parsed.links, base_of(url, parsed))
            links_to_follow(outlinks, parsed.robots, self._config.links)

    def admit_links(self) -> None:
        for outlinks in self._outlinks:
            self._admission.select([link.url for link in outlinks], None, depth=2)

    def compare(self) -> None:
        self._simhashes = []
        for parsed in self._parsed:
            simhash = fingerprint(parsed.text)
            if simhash is not None:
                self._nearest.near(simhash, 3)
                self._nearest.add(simhash)
            self._simhashes.append(simhash)

    def fingerprint(self) -> None:
        for parsed in self._parsed:
            fingerprint(parsed.text)

    def pack(self) -> None:
        for _, body in self._bodies:
            compress(HEAD + body, 1, COMP_GZIP)

    def archive(self) -> None:
        """Its captures, records and index; columns are timed by themselves."""
        taken = Taken()
        asyncio.run(self._hand_over(taken))
        kept = Kept()
        rules = WarcSettings(folder=self._folder, origin="bench")
        index = CdxjCompanion()
        writer = WarcWriter(rules, [index, kept])
        for capture in taken.captures:
            writer.append(capture)
        writer.close()
        self._written = kept.written

    def columns(self) -> None:
        columns = ColumnsCompanion(rebuild_settings(self._config))
        columns.begin(self._folder / "bench.warc.gz")
        for written in self._written:
            columns.add(written)
        columns.finish()

    async def _hand_over(self, taken: Taken) -> None:
        pages = zip(self._bodies, self._parsed, self._outlinks, strict=True)
        known = zip(self._digests, self._simhashes, strict=True)
        for ((url, body), parsed, outlinks), (digest, simhash) in zip(pages, known, strict=True):
            page = Page(
                url=url,
                status=200,
                content_type=TYPE,
                body=body,
                depth=1,
                lease_id=1,
                exchange=exchange(url, body),
                media_type="text/html",
                digest=digest,
                parsed=parsed,
                title=parsed.title,
                text=parsed.text,
                outlinks=outlinks,
                simhash=simhash,
            )
            await archive_page(page, cast(Archive, taken), digest, self._asked, self._archived)


class Taken:
    """An archive that writes nothing down."""

    def __init__(self) -> None:
        self.captures: list[Capture] = []

    async def append(self, capture: Capture) -> str:
        self.captures.append(capture)
        return ""


class Kept:
    """A companion that keeps what it hears."""

    suffix = ".bench"
    is_slow = False

    def __init__(self) -> None:
        self.written: list[StoredCapture] = []

    def begin(self, warc: Path) -> None: ...

    def add(self, written: StoredCapture) -> None:
        self.written.append(written)

    def finish(self) -> None: ...

    def discard(self) -> None: ...

    def add_stored(self, stored: ArchivedCapture) -> None: ...

    def rebuild(self, warc: Path, content: Path) -> None: ...


def exchange(url: str, body: bytes) -> Exchange:
    return Exchange(
        url=url,
        at=1_795_000_000.0,
        duration_s=0.05,
        request_head=REQUEST,
        head=HEAD,
        body=body,
        ip="127.3.0.1",
    )


def measured(
    page: Callable[[int], bytes], pages: int = PAGES, rounds: int = ROUNDS, known: int = KNOWN
) -> dict[str, float]:
    """CPU ms a page of each part, with *known* fingerprints there before."""
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        nearest = filled(Path(home) / "near", known)
        for number in range(rounds):
            folder = Path(home) / str(number)
            folder.mkdir()
            line = Line(folder, nearest)
            names = range(number * pages, (number + 1) * pages)
            line.begin([(f"{ORIGIN}/a/{n}.html", page(n)) for n in names])
            for part, work in steps(line).items():
                least[part] = min(least.get(part, inf), cpu_ms(work) / pages)
        nearest.close()
    return least


def group_costs(
    page: Callable[[int], bytes], pages: int = PAGES // 4, rounds: int = 3 * ROUNDS
) -> dict[str, float]:
    """CPU ms a page of each group of columns: what reading, archiving and columns take with it
    alone, less what they take without any; and of all together. In turn, so that a machine that
    slows down does so for all, and in many short rounds, as one of the least is undisturbed."""
    tried: dict[str, tuple[ColumnGroup, ...]] = {
        "none": (),
        **{group.value: (group,) for group in ColumnGroup},
        "all": tuple(ColumnGroup),
    }
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        nearest = filled(Path(home) / "near", 1)
        bodies = [(f"{ORIGIN}/a/{n}.html", page(n)) for n in range(pages)]
        for number in range(rounds):
            for name, groups in tried.items():
                folder = Path(home) / f"{number}-{name}"
                folder.mkdir()
                line = Line(folder, nearest, groups)
                line.begin(bodies)
                line.digests()
                cost = cpu_ms(line.parse)
                line.compare()
                cost = (cost + cpu_ms(line.archive) + cpu_ms(line.columns)) / pages
                least[name] = min(least.get(name, inf), cost)
        nearest.close()
    none = least.pop("none")
    return {"none of them": none, **{name: cost - none for name, cost in least.items()}}


def filled(folder: Path, known: int) -> FingerprintIndex:
    folder.mkdir()
    store = MemoryStore()
    prints = np.random.default_rng(0).integers(0, 1 << 64, known, np.uint64)
    store.write({keys.print_log(0): prints.tobytes()})
    return FingerprintIndex(store, folder)


def steps(line: Line) -> dict[str, Callable[[], None]]:
    return {
        "digests": line.digests,
        "parse, text and links": line.parse,
        "  the scan": line.scan,
        "  lines of the text": line.choose_lines,
        "  links, absolute and judged": line.judge_links,
        "links, admitted, with their keys": line.admit_links,
        "fingerprint and look-up": line.compare,
        "  the fingerprint": line.fingerprint,
        "archive and index": line.archive,
        "  gzip": line.pack,
        "columns": line.columns,
    }


def cpu_ms(work: Callable[[], None]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


def documentation(folder: Path) -> Callable[[int], bytes]:
    """Return pages of 15 to 60 kB of the packages in *folder*, which repeat when all were given."""
    paths = [
        path
        for path in folder.rglob("*.html")
        if path.is_file() and 15_000 < path.stat().st_size < 60_000
    ]
    paths.sort(key=lambda path: sha256(path.name.encode()).digest())
    pages = [path.read_bytes() for path in paths[: PAGES * ROUNDS]]
    return lambda number: pages[number % len(pages)]


def kinds_of_pages(folder: Path | None) -> dict[str, Callable[[int], bytes]]:
    kinds = {kind: make() for kind, make in KINDS.items()}
    if folder is not None:
        kinds["documentation"] = documentation(folder)
    return kinds


def every(scale: float = 1.0, folder: Path | None = None) -> dict[str, dict[str, float]]:
    """By kind of page."""
    pages, known = max(10, round(PAGES * scale)), round(KNOWN * scale)
    kinds = kinds_of_pages(folder)
    return {kind: measured(page, pages, known=known) for kind, page in kinds.items()}


def table(costs: dict[str, dict[str, float]]) -> str:
    """CPU ms of each part, by kind of page, beside its budget."""
    first = next(iter(costs.values()))
    head = "".join(f"{kind:>15}" for kind in costs)
    lines = [f"{'a page of 30 KB beyond its fetch':34}{head}{'budget':>9}  CPU ms"]
    for part in first:
        cells = "".join(f"{parts[part]:15.3f}" for parts in costs.values())
        budget = f"{BUDGET_MS[part]:9.2f}" if part in BUDGET_MS else ""
        lines.append(f"{part:34}{cells}{budget}")
    sums = (sum(parts[part] for part in BUDGET_MS) for parts in costs.values())
    cells = "".join(f"{each:15.3f}" for each in sums)
    lines.append(f"{'together':34}{cells}{sum(BUDGET_MS.values()):9.2f}")
    return "\n".join(lines)


def group_table(costs: dict[str, dict[str, float]]) -> str:
    """CPU us of each group of columns, by kind of page."""
    head = "".join(f"{kind:>15}" for kind in costs)
    lines = [f"{'columns, by their groups':34}{head}  CPU us a page"]
    for part in next(iter(costs.values())):
        cells = "".join(f"{1000 * parts[part]:15.0f}" for parts in costs.values())
        lines.append(f"{part:34}{cells}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="of bench.text_quality")
    parser.add_argument("--groups", action="store_true", help="what each group of columns costs")
    options = parser.parse_args()
    if options.groups:
        kinds = kinds_of_pages(options.folder)
        print(group_table({kind: group_costs(page) for kind, page in kinds.items()}))
    else:
        print(table(every(folder=options.folder)))


if __name__ == "__main__":
    main()
