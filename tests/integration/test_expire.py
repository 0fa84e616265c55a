"""Old WARC files go, and nothing that is left names what has gone: over random archives, with
a kill between any two steps, in folders and in an object store; and by a crawl that goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from crawler.archive.capture import Capture
from crawler.archive.delivery_stores import Store, deliver_file, local_store
from crawler.archive.expire import ExpiredFiles, Retention, read_expired
from crawler.archive.lookup import entries, lookup, read_entry
from crawler.archive.record_bytes import warc_date
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import read_config
from crawler.content.crawl_archive import companions
from crawler.model.page import Page
from crawler.model.types import Claim, StoreUnavailable
from crawler.page.row import row_of
from tests.harness.archive_judges import archived, judged_by_programs
from tests.harness.crawling import crawl, pass_time
from tests.harness.delivery import object_store
from tests.servers.loopback import Reply, page, site
from tests.servers.s3 import BUCKET, S3Server, environment

DAY = 86400.0
BEGIN = 1767225600.0  # 2026-01-01
NOW = BEGIN + 100 * DAY


def capture(url: str, at: float, text: str, original: Claim | None, kind: str) -> Capture:
    body = text.encode()
    known = Page(
        url=url, status=200, content_type="text/plain", body=body, depth=0, lease_id=0, text=text
    )
    return Capture(
        url=url,
        fetched_at=at,
        status=200,
        body=body,
        duplicate_of=original if kind == "copy" else None,
        not_modified_of=original if kind == "unmodified" else None,
        row=row_of(known, at),
    )


def write(data: Path, seed: int) -> None:
    """Write files of ten days each, in which some answers repeat earlier ones, or are as they were;
    the older a text, the rarer."""
    dice, originals = Random(seed), list[Claim]()
    for number in range(10):
        rules = WarcSettings(folder=data / "warc", prefix=f"f{number}", origin="h-1", info=(OURS,))
        writer = WarcWriter(rules, companions(read_config({})))
        for place in range(dice.randrange(1, 5)):
            at = BEGIN + number * 10 * DAY + place * DAY + dice.random()
            url = f"http://e.org/{number}/{place}"
            earlier = dice.choice(originals[-4:]) if originals and dice.random() < 0.5 else None
            kind = dice.choice(["copy", "unmodified"]) if earlier else "new"
            text = f"text {number} {place}" if earlier is None else TEXTS[earlier.url]
            TEXTS[url] = text
            place_of = writer.append(capture(url, at, text, earlier, kind))
            if earlier is None:
                digest = sha1(text.encode(), usedforsecurity=False).digest()
                originals.append(Claim(digest, url, str(place_of), at, digest))
        writer.close()


OURS = ("software", "Gossamer/test")
TEXTS: dict[str, str] = {}


class Killed(Exception):
    pass


class KilledStore:
    """A store whose process ends before or after its change of some number."""

    def __init__(self, store: Store, changes: int, *, is_after: bool) -> None:
        self._store, self._left, self._is_after = store, changes, is_after

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in ("replace", "discard"):
            return call

        def changing(*args: Any) -> None:
            self._left -= 1
            if self._left < 0 and not self._is_after:
                raise Killed
            call(*args)
            if self._left < 0:
                raise Killed

        return changing


def warcs(data: Path) -> set[str]:
    return {file.name for file in (data / "warc").glob("*.warc.gz")}


def judge(data: Path) -> None:
    """Each revisit has its original, and each index its file."""
    for file in sorted((data / "warc").glob("*.warc.gz")):
        for entry in entries(file):
            stored = read_entry(entry, 100)
            if stored.kind == "revisit":
                named = lookup([data / "warc"], stored.refers_to)
                times = [each.timestamp for each in named if not each.is_revisit]
                assert warc_to_digits(stored.refers_date) in times, (file.name, stored.url)
    for index in (data / "warc").glob("*.cdxj"):
        assert index.with_name(index.name.replace(".cdxj", ".warc.gz")).exists()


def warc_to_digits(date: str) -> str:
    return "".join(c for c in date[:19] if c.isdigit())


@pytest.mark.parametrize("seed", range(8))
def test_what_goes_is_old_and_named_by_nothing_that_stays(tmp_path: Path, seed: int) -> None:
    data, dice = tmp_path / "data", Random(seed)
    write(data, seed)
    before = NOW - dice.choice([20, 50, 80]) * DAY
    every, columns = warcs(data), sorted((data / "warc").glob("*.parquet"))
    judge(data)
    expected = {
        each.file
        for each in Retention([local_store(data)], [], data).look(before, NOW, 0, is_trial=True)
        if each.what == "removed"
    }
    assert warcs(data) == every
    for _ in range(200):
        store = KilledStore(local_store(data), dice.randrange(16), is_after=dice.random() < 0.5)
        with suppress(Killed):
            Retention([store], [], data).look(before, NOW, 0)  # type: ignore[list-item]  # a proxy
            break
        judge(data)
        noted = ExpiredFiles()
        noted.note(read_expired([local_store(data)]).values())
        assert all(noted.has(f"{gone}:12") for gone in every - warcs(data))
    assert warcs(data) == every - expected
    judge(data)
    assert sorted((data / "warc").glob("*.parquet")) == columns
    for name in every - expected:  # what stays is young, or has what something that stays names
        times = [entry.timestamp for entry in entries(data / "warc" / name)]
        if max(times) < warc_to_digits(warc_date(before)):
            assert len(expected) < len(every)


def test_a_file_is_noted_first_and_goes_at_a_later_look(tmp_path: Path) -> None:
    write(tmp_path, 1)
    every, keeping = warcs(tmp_path), Retention([local_store(tmp_path)], [], tmp_path)
    done = keeping.look(NOW, NOW, 3600)
    assert {each.what for each in done} == {"noted"} and warcs(tmp_path) == every
    assert {each.what for each in keeping.look(NOW, NOW + 3599, 3600)} == {"noted"}
    assert {each.what for each in keeping.look(NOW, NOW + 3600, 3600)} == {"removed"}
    assert not warcs(tmp_path) and not list((tmp_path / "warc").glob("*.cdxj"))
    judged_by_programs(tmp_path / "warc")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running, patch.dict(os.environ, environment(running.port)):
        yield running


def test_an_object_store_of_which_not_all_is_delivered(server: S3Server, tmp_path: Path) -> None:
    write(tmp_path / "data", 3)
    data, store = tmp_path / "data", object_store(f"s3://{BUCKET}/crawl")
    local = local_store(data)
    here = Retention([local], [], data).look(NOW - 50 * DAY, NOW, 0, is_trial=True)
    expected = {each.file for each in here if each.what == "removed"}
    assert len(expected) > 1
    waits = min(expected)
    for file in sorted((data / "warc").iterdir()):
        deliver_file(store, file, f"warc/{file.name}", lambda: None)
        if not file.name.startswith(waits.partition(".")[0]):
            file.unlink()
    done = Retention([store], [local], data).look(NOW - 50 * DAY, NOW, 0)
    removed = {each.file for each in done if each.what == "removed"}
    assert removed == expected - {waits}, "its companions may not be there yet"
    names = server.names()
    assert f"crawl/warc/{waits}" in names
    assert not any(f"crawl/warc/{name}" in names for name in removed)
    assert any(name.endswith(".parquet") and name[11:13] == "f0" for name in names), "columns stay"
    assert read_expired([store]).keys() == read_expired([local]).keys() == removed
    down = KilledStore(store, 0, is_after=False)
    with pytest.raises((StoreUnavailable, Killed)):
        Retention([down], [], data).look(NOW, NOW, 0)  # type: ignore[list-item]  # a proxy


def test_a_crawl_that_goes_on_names_nothing_that_has_gone(tmp_path: Path) -> None:
    etag = (("ETag", '"1"'),)
    routes = {
        "/a": Reply("<p>the same words</p>", headers=etag),
        "/b": Reply("<p>the same words</p>"),
        "/c": page(text="others"),
    }
    data, settings = tmp_path / "data", {"CRAWLER_REVISIT": "every 10m"}
    with site("127.0.74.9", routes) as web:
        crawl(data, settings=settings, outcomes=1, seeds=web.url("/a"), max_depth="0")
        assert len(warcs(data)) == 1
        keeping = Retention([local_store(data)], [], data)
        assert [each.what for each in keeping.look(2e9, 2e9, 0)] == ["removed"]
        pass_time(data, 700)
        seeds = ",".join(map(web.url, ("/b", "/c")))
        crawl(data, settings=settings, outcomes=3, seeds=seeds, max_depth="0")
    assert not list((data / "warc").glob("*.open"))
    found = {url.removeprefix(web.url("")) for kind, url in archived(data) if kind == "response"}
    assert "/c" in found and found & {"/a", "/b"}, "the body is stored again, once"
    judge(data)
