"""kill -9 between the archive and the frontier, again and again: what is fetched once more for that
is marked as what it is, and is nowhere twice."""

from __future__ import annotations

import gzip
import multiprocessing
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from crawler.core.config_reader import read_config
from crawler.keeping import companions
from crawler.ops.archive_place import ArchivePlace
from crawler.ops.archive_work import check
from crawler.storage.columns.companion import SUFFIX
from crawler.storage.warc.companions import beside
from tests.command import PATIENCE_S
from tests.integration.repeat_life import live
from tests.rows import read
from tests.servers.pages import Answer, Routes, site
from tests.warc_judges import Read, read_folder

LIVES: Final = 14
MOST_PAGES: Final = 6  # of one life
MAX_BITS: Final = 3  # of near-duplicates, as is the default
HOSTS: Final = 4
SPAWN: Final = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.integration.repeat_life"])


def words(seed: str, count: int = 150) -> str:
    random = Random(seed)
    return " ".join(random.randbytes(3).hex() for _ in range(count))


def nearly(number: int, host: int) -> str:
    """The same text at each host, but for one word: mostly within 3 bits of one another."""
    text = words(f"near {number}", 400).split()
    text[7] = f"word{host}"
    return " ".join(text)


def routes(host: int) -> Routes:
    packed = gzip.compress(f"<title>P</title><p>{words(f'packed {host}')}".encode(), mtime=0)
    coded = (("Content-Encoding", "gzip"), ("Content-Type", "text/html"))
    pages = {f"/{n}": Answer(f"<title>{n}</title><p>{words(f'{host} {n}')}") for n in range(2)}
    pages |= {f"/near{n}": Answer(f"<title>N</title><p>{nearly(n, host)}") for n in range(5)}
    pages |= {
        "/copy": Answer(f"<title>C</title><p>{words('copy')}"),
        "/packed": Answer(packed, headers=coded),
        "/gone": Answer(f"<p>Not here, not at {host}", 404),
        "/short": Answer(f"{host}"),
    }
    links = "".join(f"<a href={path}>x</a>" for path in pages)
    return {"/": Answer(f"<title>{host}</title><p>{words(str(host))}{links}"), **pages}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a crawl that came to its end at last."""
    data = tmp_path_factory.mktemp("repeats") / "data"
    random = Random(20260104)
    with ExitStack() as opened:
        sites = [
            opened.enter_context(site(f"127.0.63.{n}", routes(n))) for n in range(1, HOSTS + 1)
        ]
        seeds = data.with_name("seeds")
        seeds.write_text("\n".join(each.url("/") for each in sites))
        for life in range(LIVES + 1):
            pages = random.randint(1, MOST_PAGES) if life < LIVES else 0
            process = SPAWN.Process(target=live, args=(data, str(seeds), pages))
            process.start()
            process.join(PATIENCE_S)
            assert process.exitcode == (-9 if pages else 0), life
    return data


@pytest.fixture(scope="module")
def answers(data: Path) -> list[Read]:
    found = read_folder(data / "warc").values()
    return [one for one in found if one.kind in ("response", "revisit")]


def rows_of(data: Path) -> list[dict[str, Any]]:
    return [row for file in sorted((data / "warc").glob(f"*{SUFFIX}")) for row in read(file)]


def test_each_answer_is_there_once_or_as_a_revisit(answers: list[Read]) -> None:
    responses = Counter(one.url for one in answers if one.kind == "response")
    assert set(responses.values()) == {1}
    again = [one for one in answers if one.kind == "revisit" and one.url in responses]
    assert len(again) > LIVES / 2
    assert all(one.fields["WARC-Refers-To-Target-URI"] == one.url for one in again)
    assert len({one.url for one in answers}) == HOSTS * len(routes(1))


def test_each_page_has_its_text_in_one_row(data: Path) -> None:
    rows = rows_of(data)
    texts = Counter(row["url"] for row in rows if row["text"])
    assert set(texts.values()) == {1}
    copies = [row for row in rows if not row["text"]]
    assert {(row["bits"], row["original"] in texts) for row in copies} == {(None, True)}
    assert any(row["original"] == row["url"] for row in copies)
    assert len({row["url"] for row in rows}) == HOSTS * (len(routes(1)) - 1)


def apart(one: dict[str, Any], other: dict[str, Any]) -> int:
    return int(one["simhash"] ^ other["simhash"]).bit_count()


def test_a_page_near_to_one_that_was_there_is_marked(data: Path) -> None:
    """By brute force. Each life wrote a file: what earlier ones hold was archived, finished or
    not, before a page was looked up; what its own holds was in flight beside it."""
    rows = [row for row in rows_of(data) if row["simhash"] is not None]
    assert len({row["warc_file"] for row in rows}) > LIVES / 2
    for at, row in enumerate(rows):
        before = {each["url"]: each for each in rows[:at]}
        earlier = [each for each in before.values() if each["warc_file"] != row["warc_file"]]
        nearest = min((apart(row, each) for each in earlier), default=64)
        if row["bits"] is None:
            assert nearest > MAX_BITS, row["url"]
            near = [each for each in rows if each is not row and apart(row, each) <= MAX_BITS]
            assert all(each["bits"] is not None for each in near), row["url"]
        else:
            assert row["bits"] == apart(row, before[row["original"]]) <= min(MAX_BITS, nearest)
    assert sum(row["bits"] is not None for row in rows) > HOSTS


def test_the_archive_is_whole(data: Path) -> None:
    place = ArchivePlace(data, (data / "warc",), "", is_shared=False)
    assert [fault for done in check(place) for fault in done.faults] == []


def test_made_again_the_rows_are_the_same(data: Path) -> None:
    before = rows_of(data)
    _, columns = companions(read_config({}))
    for warc in (data / "warc").glob("*.warc.gz"):
        columns.rebuild(warc, warc)
        assert beside(warc, SUFFIX).exists()
    assert rows_of(data) == before
