"""What the content line keeps in memory of the pages that have passed: nothing, it should be.

Rule: the crawl's own parts (parser, fingerprint, both duplicate indexes, archive with its index and
columns), many pages under way at once, each another one, and no network. Memory is what the kernel
says of the process, its own and that of files mapped into it apart, which is the kernel's to take
back. And it is what malloc has given away and not
got back, which no fragment blurs. (That is all there is with PYTHONMALLOC=malloc and
ARROW_DEFAULT_MEMORY_POOL=system; else Python's and Arrow's own pools are beside it.)

    python -m bench.content_memory --pages 1000000 --every 100000

Measured: 137 MB of its own at 300,000 pages, 141 at 500,000, 142 at 1,000,000, most of it RocksDB's
caches and what gathers for index and columns; mapped 71, 77 and 92 MB, 31 bytes a page.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Final

from bench.content import TYPE, exchange
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.columns_companion import ColumnsCompanion
from crawler.archive.warc_file import Companion
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.config.settings import Config
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsing import rebuild_settings
from crawler.content.to_capture import ArchivedBodies, AskedColumns, archive_page
from crawler.data.local_stores import LocalClaims
from crawler.duplicates.exact import LocalDuplicates
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.near import LocalNearDuplicates
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import encode
from crawler.frontier.rocks_store import RocksStore
from crawler.model.page import Page, Source
from crawler.model.types import Claim, never_waits
from crawler.page.links import (
    base_of,
    max_links,
    resolve_links,
)
from crawler.page.simhash import fingerprint

AT_ONCE: Final = 64  # as CONCURRENT_REQUESTS
ORIGIN: Final = "http://127.3.0.1:8000"
WORDS: Final = tuple(f"word{number}" for number in range(5_000))
PAGE_WORDS: Final = 120
LINKS: Final = 4
STYLE: Final = "p { margin: 0 } " * 40
REPEATED: Final = 20  # one page in so many has the bytes of an earlier one
ALIKE: Final = 20  # and one has but a word of its own
MEGABYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When what gathers in memory is put away: as in a crawl, or so soon that a short run does it
    often enough."""

    file_bytes: int = 1024 * MEGABYTE
    run_chars: int = 16 * MEGABYTE  # of the index of a file
    group_bytes: int = 16 * MEGABYTE  # of its columns
    store_pages: int | None = None  # that the store keeps claims of; None: all, on disk


@dataclass(frozen=True, slots=True)
class Held:
    """By the process, in bytes."""

    pages: int
    own: int
    mapped: int
    given: int  # by malloc; 0: it does not say

    @classmethod
    def now(cls, pages: int) -> Held:
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        said = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
        own, mapped = (int(said[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
        return cls(pages, own, mapped, given())

    def __str__(self) -> str:
        return f"{self.pages} {self.own} {self.mapped} {self.given}"


class _Mallinfo(ctypes.Structure):
    """What glibc (2.33 or newer) tells of all its arenas together."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")),
        ("keepcost", ctypes.c_size_t),
    )


def given() -> int:
    """Bytes that malloc has given away, large ones (hblkhd) too. 0: this one does not say."""
    told = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if told is None:
        return 0
    told.restype = _Mallinfo
    info = told()
    return int(info.uordblks + info.hblkhd)


class Lately(MemoryStore):
    """Keeps what was written last."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._order: deque[bytes] = deque()

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        super().write(changes)
        self._order += [key for key, value in changes.items() if value is not None]
        while len(self._order) > self._most:
            super().write({self._order.popleft(): None})


class Line:
    """The content line of one crawl."""

    def __init__(self, home: Path, limits: Limits) -> None:
        few = limits.store_pages
        self._store: OrderedStore = Lately(2 * few) if few else RocksStore(home / "frontier")
        self._digests = LocalDuplicates(LocalClaims(self._store))
        self._nearest = LocalNearDuplicates(FingerprintIndex(self._store, home), self._store, 3)
        rules = WarcSettings(
            folder=home / "warc",
            origin="bench",
            max_file_bytes=limits.file_bytes,
        )
        columns = ColumnsCompanion(rebuild_settings(Config()), limits.group_bytes)
        companions: list[Companion] = [CdxjCompanion(limits.run_chars), columns]
        self._archive = Archive(WarcWriter(rules, companions), never_waits)
        self._bodies = ArchivedBodies(None, lambda record: False)
        self._parser = HtmlParser()

    async def take(self, number: int, url: str, body: bytes) -> None:
        """As the pipelines do, and the commit that finishes a page."""
        digest = sha1(body, usedforsecurity=False).digest()
        original = await self._digests.original(digest, url, number)
        page = Page(
            url=url,
            status=200,
            content_type=TYPE,
            body=body,
            depth=1,
            lease_id=number,
            exchange=exchange(url, body),
            media_type="text/html",
            digest=digest,
            duplicate_of=original,
        )
        if original is not None:
            await archive_page(page, self._archive, digest, AskedColumns(), self._bodies)
            return
        page, simhash = await self._read(page)
        record = await archive_page(page, self._archive, digest, AskedColumns(), self._bodies)
        claim = Claim(digest, url, record, time.time(), digest, 200, simhash)
        changes: dict[bytes, bytes | None] = {keys.DIGEST + digest: encode(claim)}
        if simhash is not None:
            log = keys.print_log(number)
            changes[log] = (self._store.get(log) or b"") + keys.packed_print(simhash)
            changes[keys.page_of_print(simhash, number)] = digest
        self._store.write(changes)
        self._digests.release(number)
        self._nearest.release(number)

    async def _read(self, page: Page) -> tuple[Page, int | None]:
        parsed = self._parser.parse(Source(page.url, TYPE, page.body))
        base = base_of(page.url, parsed)
        outlinks, _ = resolve_links(parsed.links[: max_links(base)], base)
        simhash = fingerprint(parsed.text)
        near = None
        if simhash is not None:
            near = await self._nearest.original(simhash, page.digest, page.url, page.lease_id)
        read = Page(
            url=page.url,
            status=page.status,
            content_type=TYPE,
            body=page.body,
            depth=1,
            lease_id=page.lease_id,
            exchange=page.exchange,
            media_type=page.media_type,
            digest=page.digest,
            parsed=parsed,
            title=parsed.title,
            text=parsed.text,
            outlinks=tuple(outlinks),
            simhash=simhash,
            near=near,
        )
        return read, simhash

    async def close(self) -> None:
        await self._archive.close()
        self._nearest.close()
        if isinstance(self._store, RocksStore):
            self._store.close()


def pages() -> Iterator[bytes]:
    """Two kilobytes each, for ever."""
    random = Random(1)
    before = random.choices(WORDS, k=PAGE_WORDS)
    number = 0
    while True:
        number += 1
        if number % REPEATED:
            words = random.choices(WORDS, k=PAGE_WORDS)
            if number % ALIKE == 1:
                words = [*before[:-1], f"own{number}"]
            before = words
        links = "".join(f"<a href=/{word}>{word}</a>" for word in before[:LINKS])
        head = f"<title>{before[0]}</title><style>{STYLE}</style>"
        yield f"<!doctype html>{head}<p>{' '.join(before)}</p>{links}".encode()


async def fed(make: Callable[[], Line], count: int, every: int) -> None:
    """Prints what is held, every so many pages."""
    line, bodies = make(), pages()
    begun = time.process_time()
    for number in range(0, count, AT_ONCE):
        if number % every < AT_ONCE:
            print(Held.now(number), f"{time.process_time() - begun:.1f}", flush=True)
        batch = range(number, number + AT_ONCE)
        await asyncio.gather(
            *(line.take(each, f"{ORIGIN}/{each}.html", next(bodies)) for each in batch)
        )
    print(Held.now(count), f"{time.process_time() - begun:.1f}", flush=True)
    await line.close()


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    reader.add_argument("--pages", type=int, default=1_000_000)
    reader.add_argument("--every", type=int, default=100_000, help="pages between two lines")
    wanted = reader.parse_args()
    print("pages  bytes of its own  bytes mapped  bytes given by malloc  CPU s")
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(fed(lambda: Line(Path(home), Limits()), wanted.pages, wanted.every))


if __name__ == "__main__":
    main()
