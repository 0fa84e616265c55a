"""What a page of 30 KB costs beyond its fetch, part by part: CPU, of all threads of the process.

Rule: the crawl's own parts over the synthetic web's pages, each another one; a part is timed by
itself, in rounds, and the least round counts, as everything else on the machine only adds to it.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha1
from math import inf
from pathlib import Path
from typing import Final, cast

import numpy as np

from bench.pages import KINDS, ORIGIN
from crawler.archive.capture import Capture, StoredCapture
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.columns_companion import ColumnsCompanion
from crawler.archive.reader import ArchivedCapture
from crawler.archive.writer import Archive, WarcRules, WarcWriter
from crawler.config.settings import Config
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsing import rebuild_rules
from crawler.content.to_capture import archive_page
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.model.page import (
    Exchange,
    Link,
    Page,
    Parsed,
    Source,
    head_fields,
)
from crawler.policy.links import (
    base_of,
    link_headers,
    links_to_follow,
    resolve_links,
    robots_header,
    with_headers,
)
from crawler.policy.media_type import actual_type
from crawler.policy.simhash import fingerprint

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
    "parse, text and links": 0.15,
    "fingerprint and look-up": 0.12,
    "digests": 0.03,
    "archive and index": 0.10,
    "columns": 0.05,
}


class Line:
    """The content line of a crawl, without its loop: each stage takes what the one before made."""

    def __init__(self, folder: Path, nearest: FingerprintIndex) -> None:
        self._folder = folder
        self._nearest = nearest
        self._config = Config()
        self._parser = HtmlParser()
        self._bodies: list[tuple[str, bytes]] = []
        self._digests: list[bytes] = []
        self._parsed: list[Parsed] = []
        self._outlinks: list[tuple[Link, ...]] = []
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
            assert not actual_type(TYPE, url, body).is_mislabelled
            headers = head_fields(HEAD)
            parsed = self._parser.parse(Source(url, TYPE, body, tuple(headers)))
            parsed = with_headers(parsed, link_headers(headers), robots_header(headers))
            outlinks, _ = resolve_links(parsed.links, base_of(url, parsed))
            assert len(links_to_follow(outlinks, parsed.robots, self._config.links))
            self._parsed.append(parsed)
            self._outlinks.append(tuple(outlinks))

    def compare(self) -> None:
        self._simhashes = []
        for parsed in self._parsed:
            simhash = fingerprint(parsed.text)
            assert simhash is not None
            self._nearest.near(simhash, 3)
            self._nearest.add(simhash)
            self._simhashes.append(simhash)

    def archive(self) -> None:
        """Its captures, records and index; columns are timed by themselves."""
        taken = Taken()
        asyncio.run(self._hand_over(taken))
        kept = Kept()
        rules = WarcRules(folder=self._folder, origin="bench")
        index = CdxjCompanion()
        writer = WarcWriter(rules, [index, kept])
        for capture in taken.captures:
            writer.append(capture)
        writer.close()
        self._written = kept.written

    def columns(self) -> None:
        columns = ColumnsCompanion(rebuild_rules(self._config))
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
            await archive_page(page, cast(Archive, taken), digest)


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
    least = dict.fromkeys(BUDGET_MS, inf)
    with tempfile.TemporaryDirectory() as home:
        nearest = filled(Path(home) / "near", known)
        for number in range(rounds):
            folder = Path(home) / str(number)
            folder.mkdir()
            line = Line(folder, nearest)
            names = range(number * pages, (number + 1) * pages)
            line.begin([(f"{ORIGIN}/a/{n}.html", page(n)) for n in names])
            for part, work in steps(line).items():
                least[part] = min(least[part], cpu_ms(work) / pages)
        nearest.close()
    return least


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
        "fingerprint and look-up": line.compare,
        "archive and index": line.archive,
        "columns": line.columns,
    }


def cpu_ms(work: Callable[[], None]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


def every(scale: float = 1.0) -> dict[str, dict[str, float]]:
    """By kind of page."""
    pages, known = max(10, round(PAGES * scale)), round(KNOWN * scale)
    return {kind: measured(make(), pages, known=known) for kind, make in KINDS.items()}


def table(costs: dict[str, dict[str, float]]) -> str:
    """CPU ms of each part, by kind of page, beside its budget."""
    first = next(iter(costs.values()))
    head = "".join(f"{kind:>10}" for kind in costs)
    lines = [f"{'a page of 30 KB beyond its fetch':34}{head}{'budget':>9}  CPU ms"]
    for part in first:
        cells = "".join(f"{parts[part]:10.3f}" for parts in costs.values())
        lines.append(f"{part:34}{cells}{BUDGET_MS[part]:9.2f}")
    cells = "".join(f"{sum(parts.values()):10.3f}" for parts in costs.values())
    lines.append(f"{'together':34}{cells}{sum(BUDGET_MS.values()):9.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(every()))
