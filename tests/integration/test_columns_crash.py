"""Thirty lives of an archive with columns, each ended by `kill -9`: afterwards each page of each
WARC file is one row of the file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from crawler.archive.columns_companion import SUFFIX, ColumnsCompanion
from crawler.archive.recovery import recover
from crawler.archive.warc_file import Companion, companion_path, missing_companions
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import read_config
from crawler.content.parsing import rebuild_settings
from tests.harness.archive_judges import query, read_file, read_rows
from tests.harness.captures import numbered_capture, numbered_text
from tests.harness.killed_processes import preload, run_until_killed

LIVES: Final = 30
MOST_ANSWERS: Final = 80  # of one life: with files of 200 kB that is three of them
LONGEST_S: Final = 0.01  # after the last answer: a row group takes 2 ms

preload(__name__)

Place = tuple[str, int]


def companions() -> Sequence[Companion]:
    """Row groups of a few pages: many of the deaths come while one is written."""
    return [ColumnsCompanion(rebuild_settings(read_config({})), group_bytes=100_000)]


def recovered(folder: Path, kept: Sequence[Companion]) -> None:
    """Recover the WARC files and build the columns that are missing."""
    recover(folder, kept)
    for companion in kept:
        for warc in missing_companions(folder, companion.suffix):
            companion.rebuild(warc, warc)


def live(folder: Path, life: int, pipe: Connection) -> None:
    """Archive pages with their columns as fast as it can, and send each place at once."""
    kept = companions()
    recovered(folder, kept)
    rules = WarcSettings(folder=folder, origin=f"h-{life}", max_file_bytes=200_000)
    writer = WarcWriter(rules, kept)
    for number in count():
        place = writer.append(numbered_capture(life, number))
        pipe.send_bytes(f"{number} {place.file} {place.offset}".encode())


def acknowledged_by(folder: Path, life: int, answers: int, then_s: float) -> list[Place]:
    """Killed *then_s* after the last answer: at any moment, not only just after one."""
    sent = run_until_killed(live, folder, life, messages=answers, then_s=then_s)
    return [_read(message) for message in sent]


def _read(message: bytes) -> Place:
    _, file, offset = message.decode().split()
    return file, int(offset)


def test_each_page_is_in_exactly_one_row(tmp_path: Path) -> None:
    random = Random(20260103)
    acknowledged: set[Place] = set()
    for life in range(LIVES):
        deaths = random.randrange(MOST_ANSWERS), random.random() * LONGEST_S
        acknowledged.update(acknowledged_by(tmp_path, life, *deaths))
    recovered(tmp_path, companions())
    assert not list(tmp_path.glob("*.open"))

    places = []
    for warc in sorted(tmp_path.glob("*.warc.gz")):
        rows = read_rows(companion_path(warc, SUFFIX))
        answers = [one for one in read_file(warc) if one.kind == "response"]
        assert [(row["url"], row["warc_offset"]) for row in rows] == [
            (one.url, one.offset) for one in answers
        ]
        for row in rows:
            life, number = map(int, row["url"].split("/")[-2:])
            assert row["text"] == numbered_text(life, number)
        places += [(row["warc_file"], row["warc_offset"]) for row in rows]
    assert len(set(places)) == len(places) >= len(acknowledged)
    assert acknowledged <= set(places)
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == len(list(tmp_path.glob("*.warc.gz")))
    question = "SELECT count(*), count(DISTINCT url) FROM read_parquet($glob)"
    assert query(question, glob=str(tmp_path / f"*{SUFFIX}")) == [(len(places), len(places))]
