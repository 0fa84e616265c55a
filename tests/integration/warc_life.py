"""A process that archives as fast as it can until it is killed; each place it was given it
tells at once, over a pipe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import sha1
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from crawler.archive.capture import Capture, RecordPlace
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.recovery import recover
from crawler.archive.writer import Archive, WarcRules, WarcWriter
from crawler.model.types import Claim, never_waits

TASKS = 8  # that append to the archive at once


def page(life: int, number: int) -> Capture:
    """Always the same for the same numbers; every fifth is a copy of a page before."""
    random = Random(life * 1_000_003 + number)
    copy = number % 5 == 4
    body = b"copy" if copy else random.randbytes(random.randrange(40_000))
    first = Claim(sha1(body).digest(), "http://example.com/first", "x.warc.gz:1", 0.0)
    return Capture(
        url=f"http://example.com/{life}/{number}",
        fetched_at=1767323045.0 + life,
        request=b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        status=200,
        body=body,
        duplicate_of=first if copy else None,
    )


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Until killed. Even lives use the writer itself, odd ones the archive."""
    companions = [CdxjCompanion(run_chars=10_000)]
    recover(folder, companions)
    # Small files: many of the deaths come while one is finished and the next begun.
    rules = WarcRules(folder=folder, origin=f"h-{life}", max_file_bytes=200_000)
    writer = WarcWriter(rules, companions)
    if life % 2:
        asyncio.run(_through_the_archive(Archive(writer, never_waits), life, pipe))
    else:
        for number in count():
            _tell(pipe, number, writer.append(page(life, number)))


async def _through_the_archive(archive: Archive, life: int, pipe: Connection) -> None:
    async def task(numbers: Iterator[int]) -> None:
        for number in numbers:
            _tell(pipe, number, await archive.append(page(life, number)))

    numbers = count()
    await asyncio.gather(*(task(numbers) for _ in range(TASKS)))


def _tell(pipe: Connection, number: int, place: RecordPlace) -> None:
    pipe.send_bytes(f"{number} {place.file} {place.offset} {place.length}".encode())
