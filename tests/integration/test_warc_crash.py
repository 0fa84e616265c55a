"""Thirty lives of an archive, each ended by `kill -9`: every acknowledged record is there and
whole, outside readers find nothing wrong in any file, and each file has its index."""

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
from crawler.archive.warc_file import companion_path
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.model.types import Claim, never_waits
from tests.harness.archive_judges import judged_index, read_folder
from tests.harness.killed_processes import preload, run_until_killed

LIVES = 30
MOST_ANSWERS = 60  # of one life: with files of 200 kB that is five of them

Acknowledged = tuple[int, RecordPlace]

preload(__name__)

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
    """Archive as fast as it can, and send each place at once. Even lives use the writer itself, odd
    ones the archive."""
    companions = [CdxjCompanion(run_chars=10_000)]
    recover(folder, companions)
    # Small files: many of the deaths come while one is finished and the next begun.
    rules = WarcSettings(folder=folder, origin=f"h-{life}", max_file_bytes=200_000)
    writer = WarcWriter(rules, companions)
    if life % 2:
        asyncio.run(_through_the_archive(Archive(writer, never_waits), life, pipe))
    else:
        for number in count():
            _send(pipe, number, writer.append(page(life, number)))


async def _through_the_archive(archive: Archive, life: int, pipe: Connection) -> None:
    async def task(numbers: Iterator[int]) -> None:
        for number in numbers:
            _send(pipe, number, await archive.append(page(life, number)))

    numbers = count()
    await asyncio.gather(*(task(numbers) for _ in range(TASKS)))


def _send(pipe: Connection, number: int, place: RecordPlace) -> None:
    pipe.send_bytes(f"{number} {place.file} {place.offset} {place.length}".encode())


def acknowledged_by(folder: Path, life: int, answers: int) -> list[Acknowledged]:
    """Run a life, killed once it has sent as many *answers*, in the middle of its work."""
    sent = run_until_killed(live, folder, life, messages=answers)
    return [_read(message) for message in sent]


def _read(message: bytes) -> Acknowledged:
    number, file, offset, length = message.decode().split()
    return int(number), RecordPlace(file, int(offset), int(length))


def test_acknowledged_data_survives_thirty_kills(tmp_path: Path) -> None:
    random = Random(20260102)
    deaths = [random.randrange(MOST_ANSWERS) for _ in range(LIVES)]
    acknowledged = {
        (life, number): place
        for life, answers in enumerate(deaths)
        for number, place in acknowledged_by(tmp_path, life, answers)
    }
    left = list(tmp_path.glob("*.warc.gz.open"))
    assert len(left) <= 1, "a new life mends what the last one left"
    recover(tmp_path, [CdxjCompanion()])
    assert not list(tmp_path.glob("*.open"))
    for warc in tmp_path.glob("*.warc.gz"):
        assert companion_path(warc, ".cdxj").read_text() == judged_index(warc)
    assert len(list(tmp_path.glob("*.cdxj"))) == len(list(tmp_path.glob("*.warc.gz")))

    records = read_folder(tmp_path)
    for (life, number), place in acknowledged.items():
        record, expected = records[place.file, place.offset], page(life, number)
        assert record.url == expected.url
        if expected.duplicate_of:
            assert record.kind == "revisit"
        else:
            assert (record.kind, record.payload) == ("response", expected.body)

    answers = [r.url for r in records.values() if r.kind in ("response", "revisit")]
    assert len(set(answers)) == len(answers), "each at most once"
    assert len(acknowledged) <= len(answers)
