"""Thirty lives of an archive with columns, each ended by `kill -9`: afterwards each page of each
WARC file is one row of the file beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from crawler.archive.columns_companion import SUFFIX
from crawler.archive.files import companion_path
from tests.integration.columns_life import companions, live, recovered, text
from tests.integration.forkserver import FORKSERVER
from tests.rows import ask, read
from tests.warc_judges import read_file

LIVES: Final = 30
MOST_ANSWERS: Final = 80  # of one life: with files of 200 kB that is three of them
LONGEST_S: Final = 0.01  # after the last answer: a row group takes 2 ms


Told = tuple[str, int]


def told(pipe: Connection) -> Iterator[Told]:
    """What a life tells, to the end of it; the last word may be cut off."""
    try:
        while True:
            _, file, offset = pipe.recv_bytes().decode().split()
            yield file, int(offset)
    except (EOFError, OSError):
        return


def life_and_death(folder: Path, life: int, answers: int, then_s: float) -> list[Told]:
    ours, theirs = FORKSERVER.Pipe(duplex=False)
    process = FORKSERVER.Process(target=live, args=(folder, life, theirs))
    process.start()
    theirs.close()
    try:
        telling = told(ours)
        heard = [next(telling) for _ in range(answers)]
        time.sleep(then_s)  # to die at any moment, not only just after an answer
    finally:
        process.kill()
        process.join()
    heard += telling
    ours.close()
    return heard


def test_each_page_is_in_exactly_one_row(tmp_path: Path) -> None:
    random = Random(20260103)
    acknowledged: set[Told] = set()
    for life in range(LIVES):
        deaths = random.randrange(MOST_ANSWERS), random.random() * LONGEST_S
        acknowledged.update(life_and_death(tmp_path, life, *deaths))
    recovered(tmp_path, companions())
    assert not list(tmp_path.glob("*.open"))

    places = []
    for warc in sorted(tmp_path.glob("*.warc.gz")):
        rows = read(companion_path(warc, SUFFIX))
        answers = [one for one in read_file(warc) if one.kind == "response"]
        assert [(row["url"], row["warc_offset"]) for row in rows] == [
            (one.url, one.offset) for one in answers
        ]
        for row in rows:
            life, number = map(int, row["url"].split("/")[-2:])
            assert row["text"] == text(life, number)
        places += [(row["warc_file"], row["warc_offset"]) for row in rows]
    assert len(set(places)) == len(places) >= len(acknowledged)
    assert acknowledged <= set(places)
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == len(list(tmp_path.glob("*.warc.gz")))
    question = "SELECT count(*), count(DISTINCT url) FROM read_parquet($glob)"
    assert ask(question, glob=str(tmp_path / f"*{SUFFIX}")) == [(len(places), len(places))]
