"""Thirty lives of an archive, each ended by `kill -9`: whatever was acknowledged is there and
whole, outside readers find nothing wrong in any file, and each file has its index."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from crawler.archive.capture import RecordPlace
from crawler.archive.cdxj import CdxjCompanion
from crawler.archive.files import companion_path
from crawler.archive.recovery import recover
from tests.cdxj_judge import judged_index
from tests.integration.forkserver import FORKSERVER
from tests.integration.warc_life import live, page
from tests.warc_judges import read_folder

LIVES = 30
MOST_ANSWERS = 60  # of one life: with files of 200 kB that is five of them

Told = tuple[int, RecordPlace]


def told(pipe: Connection) -> Iterator[Told]:
    """What a life tells, to the end of it; the last word may be cut off."""
    try:
        while True:
            number, file, offset, length = pipe.recv_bytes().decode().split()
            yield int(number), RecordPlace(file, int(offset), int(length))
    except (EOFError, OSError):
        return


def life_and_death(folder: Path, life: int, answers: int) -> list[Told]:
    """Killed once it has told as many *answers*, in the middle of whatever comes next."""
    ours, theirs = FORKSERVER.Pipe(duplex=False)
    process = FORKSERVER.Process(target=live, args=(folder, life, theirs))
    process.start()
    theirs.close()
    try:
        telling = told(ours)
        heard = [next(telling) for _ in range(answers)]
    finally:
        process.kill()
        process.join()
    heard += telling
    ours.close()
    return heard


def test_what_was_acknowledged_survives_thirty_kills(tmp_path: Path) -> None:
    random = Random(20260102)
    deaths = [random.randrange(MOST_ANSWERS) for _ in range(LIVES)]
    acknowledged = {
        (life, number): place
        for life, answers in enumerate(deaths)
        for number, place in life_and_death(tmp_path, life, answers)
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
