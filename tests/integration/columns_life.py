"""A process that archives pages with their columns as fast as it can until it is killed; each
place it was given it tells at once, over a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from crawler.archive.capture import Capture
from crawler.archive.columns_companion import ColumnsCompanion
from crawler.archive.files import Companion, missing_companions
from crawler.archive.recovery import recover
from crawler.archive.writer import WarcRules, WarcWriter
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_rules
from crawler.model.page import Page, Parsed
from crawler.policy.links import row_of

AT: Final = 1767323045.0
TYPE: Final = "text/plain; charset=utf-8"


def text(life: int, number: int) -> str:
    random = Random(life * 1_000_003 + number)
    return f"page {life} {number} {random.randbytes(random.randrange(1, 8_000)).hex()}"


def capture(life: int, number: int) -> Capture:
    """Always the same for the same numbers."""
    body = text(life, number).encode()
    page = Page(
        url=f"http://example.com/{life}/{number}",
        status=200,
        content_type=TYPE,
        body=body,
        depth=0,
        lease_id=0,
        media_type="text/plain",
        digest=sha1(body).digest(),
        parsed=Parsed(text=body.decode()),
        text=body.decode(),
    )
    return Capture(
        url=page.url,
        fetched_at=AT + life,
        status=200,
        headers=[(b"Content-Type", TYPE.encode())],
        body=body,
        metadata=[("fetchTimeMs", "1")],
        row=row_of(page, AT + life),
    )


def companions() -> Sequence[Companion]:
    """Row groups of a few pages: many of the deaths come while one is written."""
    return [ColumnsCompanion(rebuild_rules(read_config({})), group_bytes=100_000)]


def recovered(folder: Path, kept: Sequence[Companion]) -> None:
    """With all that is owed."""
    recover(folder, kept)
    for companion in kept:
        for warc in missing_companions(folder, companion.suffix):
            companion.rebuild(warc, warc)


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Until killed."""
    kept = companions()
    recovered(folder, kept)
    rules = WarcRules(folder=folder, origin=f"h-{life}", max_file_bytes=200_000)
    writer = WarcWriter(rules, kept)
    for number in count():
        place = writer.append(capture(life, number))
        pipe.send_bytes(f"{number} {place.file} {place.offset}".encode())
