"""What a deletion request leaves of an archive: tombstones in the place of records, whatever kills
it, in folders and in an object store. Other people's software reads the files."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha1
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from crawler.archive.capture import Capture
from crawler.archive.delivery_stores import (
    FolderStore,
    ObjectStore,
    Store,
    StoreAddress,
    deliver_file,
)
from crawler.archive.lookup import entries, read_entry
from crawler.archive.purge import DELETIONS, DeletionRecord, deletions, listed, purge, tombstone
from crawler.archive.reader import ArchivedCapture
from crawler.archive.reader import captures as archived
from crawler.archive.recovery import recover
from crawler.archive.warc_file import companion_path
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.config.settings import read_config
from crawler.content.crawl_archive import companions
from crawler.model.page import Page, Parsed
from crawler.model.types import Claim, ConfigError, DataDirError, StoreUnavailable
from crawler.page.row import row_of
from tests.harness.archive_judges import (
    judged_by_programs,
    judged_index,
    read,
    read_folder,
    read_rows,
)
from tests.harness.delivery import object_store
from tests.harness.killed_processes import preload, run_until_killed
from tests.servers.s3 import BUCKET, S3Server, environment
from tests.servers.troubled import Call, Fault, TroubledNetwork, no_fault

preload(__name__)

MARKER: Final = "marker-5d1f9c"
PURGED: Final = "http://purged.example/"
AT: Final = 1767323045.5
RULES: Final = (("software", "Gossamer/test"),)


def is_purged(url: str) -> bool:
    return url.startswith(PURGED)


def capture(url: str, text: str) -> Capture:
    body = text.encode()
    page = Page(
        url=url,
        status=200,
        content_type="text/plain",
        body=body,
        depth=0,
        lease_id=0,
        media_type="text/plain",
        digest=sha1(body).digest(),
        parsed=Parsed(text=text),
        text=text,
    )
    return Capture(
        url=url,
        fetched_at=AT,
        request=f"GET / HTTP/1.1\r\nX-Of: {text[:40]}\r\n\r\n".encode(),
        status=200,
        headers=[(b"Content-Type", b"text/plain")],
        body=body,
        metadata=[("parser", "text"), ("noted", text[:40])],
        row=row_of(page, AT),
    )


def copy_of(original: Capture, url: str) -> Capture:
    claim = Claim(sha1(original.body).digest(), original.url, "x:1", original.fetched_at)
    return replace(original, url=url, duplicate_of=claim, request=b"", metadata=(), row=None)


def captures(file: int) -> list[Capture]:
    """Twelve captures of a file: every third is to be deleted, and what repeats one."""
    made = []
    for number in range(12):
        host, what = (PURGED, MARKER) if number % 3 == 1 else ("http://kept.example/", "kept")
        made.append(capture(f"{host}{file}/{number}", f"{what} {file} {number} " + "silk " * 2000))
    bare = replace(made[0], url=f"http://kept.example/{file}/bare", body=b"bare", metadata=())
    made.insert(1, replace(bare, request=b"", row=None))  # a tombstone follows it
    first = next(each for each in made if is_purged(each.url))
    urls = (f"http://kept.example/{file}/copy", f"{PURGED}copy{file}")
    return [*made, *(copy_of(first, url) for url in urls)]


def write(data: Path, files: int = 2) -> None:
    for file in range(files):
        rules = WarcSettings(folder=data / "warc", prefix=f"f{file}", origin="h-1", info=RULES)
        writer = WarcWriter(rules, companions(read_config({})))
        for each in captures(file):
            writer.append(each)
        writer.close()


def store_of(data: Path) -> Store:
    return FolderStore(StoreAddress(f"file://{data}"))


def purge_all(data: Path, *stores: Store) -> int:
    """Return how many records were deleted."""
    done = purge(stores or [store_of(data)], is_purged, data, lambda: None)
    return sum(each.records for each in done)


def contents(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((data / "warc").iterdir())}


def holds_marker(files: Mapping[str, bytes]) -> list[str]:
    """The names of files that hold the marker, compressed or not."""
    found = []
    for name, content in files.items():
        texts = [content]
        if ".warc.gz" in name:
            texts.append(gzip.decompress(content))
        if ".parquet" in name and content:
            texts.append(str(read_rows(io.BytesIO(content))).encode())  # type: ignore[arg-type]  # pyarrow reads both
        if any(MARKER.encode() in text for text in texts):
            found.append(name)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


def test_nothing_of_it_is_left_and_all_else_is_where_it_was(data: Path) -> None:
    before = read_folder(data / "warc")
    columns = sorted((data / "warc").glob("*.parquet"))
    rows = {row["url"]: row for path in columns for row in read_rows(path)}
    assert len(holds_marker(contents(data))) == 4, "the WARC files and their columns"
    urls = {place: each.fields.get("WARC-Target-URI", "") for place, each in before.items()}
    doomed = {place for place, url in urls.items() if is_purged(url)}
    assert purge_all(data) == len(doomed) == 2 * (4 * 3 + 1)
    assert holds_marker(contents(data)) == []
    after = read_folder(data / "warc")
    kept = {place: each for place, each in after.items() if before.get(place) == each}
    assert kept.keys() == before.keys() - doomed
    stones = [each for place, each in after.items() if place not in kept]
    assert {each.kind for each in stones} == {"metadata"} and len(stones) == 2 * (4 + 1)
    assert not any("WARC-Target-URI" in each.fields for each in stones)
    for warc in (data / "warc").glob("*.warc.gz"):
        assert companion_path(warc, ".cdxj").read_text() == judged_index(warc)
        left = {row["url"]: row for row in read_rows(companion_path(warc, ".parquet"))}
        assert left and left == {url: rows[url] for url in left}
        assert not any(map(is_purged, left))
    assert len(rows) == 24 and len(contents(data)) == 6
    judged_by_programs(data / "warc")


def test_the_list_names_each_record(data: Path) -> None:
    before = read_folder(data / "warc")
    found = list(deletions([store_of(data)], is_purged))
    assert [each for each in found if not each.deleted] == [
        each for each in found if each.url.startswith("http://kept.example/")
    ]
    for each in found:
        record = before[each.file, each.offset]
        of_record = ("WARC-Target-URI", "WARC-Type", "WARC-Record-ID")
        assert (each.url, each.type, each.id) == tuple(map(record.fields.get, of_record))
        assert each.date == "20260102030405"
        assert each.digest == record.fields.get("WARC-Payload-Digest", "")
        is_copy = "copy" in each.url
        assert (each.original_deleted, each.deleted) == (is_copy, is_purged(each.url))
        with (data / "warc" / each.file).open("rb") as file:
            file.seek(each.offset)
            assert read(file.read(each.length)) == [dataclasses.replace(record, offset=0)]
    assert sum(not each.deleted for each in found) == 2
    assert contents(data) and not (data / DELETIONS).exists(), "listing changes nothing"
    purge_all(data)
    assert list(listed(data)) == found


def test_an_index_that_is_missing_changes_nothing_of_the_list(data: Path) -> None:
    found = list(deletions([store_of(data)], is_purged))
    for index in (data / "warc").glob("*.cdxj"):
        index.unlink()
    assert sorted(deletions([store_of(data)], is_purged), key=place) == sorted(found, key=place)
    purge_all(data)
    for warc in (data / "warc").glob("*.warc.gz"):
        assert companion_path(warc, ".cdxj").read_text() == judged_index(warc)


def place(each: DeletionRecord) -> tuple[str, int]:
    return each.file, each.offset


def test_a_second_request_adds_to_the_list_and_changes_no_file(data: Path) -> None:
    purge_all(data)
    files, lines = contents(data), (data / DELETIONS).read_bytes()
    assert purge_all(data) == 0
    assert (contents(data), (data / DELETIONS).read_bytes()) == (files, lines)
    other = list(purge([store_of(data)], lambda url: "/0/0" in url, data, lambda: None))
    assert [each.records for each in other] == [3]
    assert (data / DELETIONS).read_bytes().startswith(lines)


def test_what_stays_is_read_as_before(data: Path) -> None:
    """Metadata is joined to the answer before it; a tombstone there is none of it."""
    folder = data / "warc"
    before = captured(folder)
    stale = [each for warc in folder.glob("*.warc.gz") for each in entries(warc)]
    purge_all(data)
    for entry in stale:
        if is_purged(entry.url):
            with pytest.raises(DataDirError, match="was deleted on request"):
                read_entry(entry, 100)
        else:
            assert read_entry(entry, 100).url == entry.url
    after = captured(folder)
    assert after == {url: each for url, each in before.items() if not is_purged(url)}


def captured(folder: Path) -> dict[str, ArchivedCapture]:
    files = sorted(folder.glob("*.warc.gz"))
    return {each.url: each for warc in files for each in archived(warc, warc, 100_000)}


def purge_and_exit(data: Path, change: int, pipe: Connection) -> None:
    """Purge, and exit before the change of that number to a name or a file in *data*."""
    left = change

    def audit(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        is_change = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir") or (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if is_change and str(args[0]).startswith(str(data)):
            left -= 1
            if left < 0:
                os._exit(9)

    sys.addaudithook(audit)
    purge_all(data)
    pipe.send_bytes(b"done")


def old_or_new(
    now: Mapping[str, bytes], old: Mapping[str, bytes], new: Mapping[str, bytes]
) -> set[str]:
    """Check that each WARC file is whole, with companions of its own only; return the new ones."""
    changed = set()
    for warc in (name for name in old if name.endswith(".warc.gz")):
        stem = warc.removesuffix(".warc.gz")
        expected = old if now[warc] == old[warc] else new
        assert now[warc] == expected[warc]
        for name in (f"{stem}.cdxj", f"{stem}.parquet"):
            assert name not in now or now[name] == expected[name], name
        changed |= {warc} if expected is new else set()
    return changed


def test_a_kill_at_each_change(tmp_path: Path) -> None:
    write(tmp_path / "old")
    old = contents(tmp_path / "old")
    complete = list(deletions([store_of(tmp_path / "old")], is_purged))
    purge_all(tmp_path / "old")
    new = contents(tmp_path / "old")
    for change in range(1000):
        data = tmp_path / f"{change}"
        (data / "warc").mkdir(parents=True)
        for name, content in old.items():
            (data / "warc" / name).write_bytes(content)
        if run_until_killed(purge_and_exit, data, change):
            assert contents(data) == new and change > 30
            return
        changed = old_or_new(contents(data), old, new)
        assert not changed or list(listed(data)) == complete
        recover(data / "warc", companions(read_config({})))  # as a crawl that starts now
        purge_all(data)
        assert contents(data) == new, change
        assert list(listed(data)) == complete
        assert {path.name for path in data.iterdir()} == {"warc", DELETIONS}
    pytest.fail("it never came to its end")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running, patch.dict(os.environ, environment(running.port)):
        yield running


def bucket(server: S3Server) -> dict[str, bytes]:
    return {name.removeprefix("crawl/warc/"): server.content(name) for name in server.names()}


def test_an_object_store(data: Path, server: S3Server, tmp_path: Path) -> None:
    server.empty()
    store = object_store(f"s3://{BUCKET}/crawl")
    delivered = contents(data)
    for name in delivered:
        deliver_file(store, data / "warc" / name, f"warc/{name}", lambda: None)
    found = list(deletions([store_of(data)], is_purged))
    home = tmp_path / "home"
    home.mkdir()
    assert list(deletions([store], is_purged)) == found
    assert purge_all(home, store) == sum(each.deleted for each in found)
    purge_all(data)
    assert bucket(server) == contents(data), "the same bytes as here"
    assert list(listed(home)) == found
    for name in delivered:  # a delivery that a crash cut off goes on
        deliver_file(store, data / "warc" / name, f"warc/{name}", lambda: None)


def test_an_object_store_that_fails_at_each_change(server: S3Server, tmp_path: Path) -> None:
    write(tmp_path, 1)
    old = contents(tmp_path)
    purge_all(tmp_path)
    new = contents(tmp_path)
    url = f"s3://{BUCKET}/crawl"
    server.empty()
    with TroubledNetwork(server.port) as network:
        good = object_store(url)
        assert good.names("warc") == [], "it is connected"
        with patch.dict(os.environ, environment(network.port)):
            troubled = object_store(url)
            assert troubled.names("warc") == []
        for fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER):
            for change in range(1000):
                server.empty()
                for name, content in old.items():
                    server.put(f"crawl/warc/{name}", content)
                network.deal = from_change(change, fault)
                try:
                    purge_all(tmp_path, troubled)
                    break
                except StoreUnavailable:
                    old_or_new(bucket(server), old, new)
                network.deal = no_fault
                purge_all(tmp_path, good)
                assert bucket(server) == new, (fault, change)
            assert change > 7 and bucket(server) == new
            server.empty()


def from_change(first: int, fault: Fault) -> Callable[[Call], Fault]:
    """Return what deals *fault* to the change of that number and to all that follows, as a process
    that was killed there would send no more."""
    left = first

    def deal(call: Call) -> Fault:
        nonlocal left
        if left >= 0:
            left -= call.method in ("PUT", "POST", "DELETE")
        return fault if left < 0 else Fault.NONE

    return deal


def test_columns_whose_warc_file_has_gone_for_its_age(data: Path) -> None:
    for suffix in ("*.warc.gz", "*.cdxj"):
        for file in (data / "warc").glob(suffix):
            file.unlink()
    columns = sorted((data / "warc").glob("*.parquet"))
    urls = [row["url"] for path in columns for row in read_rows(path)]
    assert purge_all(data) == sum(map(is_purged, urls)) > 0
    assert holds_marker(contents(data)) == []
    left = [row["url"] for path in columns for row in read_rows(path)]
    assert left == [url for url in urls if not is_purged(url)]


def test_a_store_in_which_no_file_can_be_replaced(data: Path, tmp_path: Path) -> None:
    before = contents(data)
    store = ObjectStore(StoreAddress(f"file://{data}"))
    with pytest.raises(ConfigError, match="replaced in one step"):
        purge_all(tmp_path, store)
    assert contents(data) == before


def test_a_file_that_is_written_is_refused(data: Path) -> None:
    (warc, _) = sorted((data / "warc").glob("*.warc.gz"))
    warc.rename(warc.with_name(warc.name + ".open"))
    before = contents(data)
    with pytest.raises(DataDirError, match="is still written"):
        purge_all(data)
    assert contents(data) == before
    assert len(list(deletions([store_of(data)], is_purged))) == 2 * (4 * 3 + 1) + 2


@pytest.mark.parametrize("name", ["other.warc", "other.warc.gz"])
def test_an_archive_of_another_tool(tmp_path: Path, name: str) -> None:
    """Its requests come first, and it has records that no index lists."""
    path = tmp_path / "warc" / name
    path.parent.mkdir()
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=name.endswith(".gz"), warc_version="1.0")
        writer.write_record(writer.create_warcinfo_record(name, {"software": "other"}))
        for url in (PURGED, "http://kept.example/", f"{PURGED}2", "urn:x:y"):
            body = f"{MARKER if is_purged(url) else 'kept'} {url}".encode()
            head = StatusAndHeaders("GET / HTTP/1.1", [("Host", "x")], is_http_request=True)
            for kind, http, payload in (
                ("request", head, b""),
                ("resource", None, body),
                ("conversion", None, body),
            ):
                record = writer.create_warc_record(
                    url,
                    kind,
                    payload=io.BytesIO(payload),
                    length=len(payload),
                    http_headers=http,
                    warc_content_type="text/plain" if http is None else "",
                )
                writer.write_record(record)
    before = path.read_bytes()
    assert purge_all(tmp_path) == 6
    after = path.read_bytes()
    assert len(after) == len(before)
    plain = after if name == "other.warc" else gzip.decompress(after)
    assert MARKER.encode() not in plain and plain.count(b"kept ") == 4
    with path.open("rb") as file:
        kinds = [record.rec_type for record in ArchiveIterator(file)]
    assert kinds.count("metadata") == 6 and len(kinds) == 13


def first_of(id_: str = "<urn:uuid:12345678-1234-4234-9234-123456789abc>") -> DeletionRecord:
    return DeletionRecord("", True, False, "response", id_, "20260102030405", "x", 0, 0, "")


BLOCK: Final = 65_540


@given(
    length=st.integers(340, 2000)
    | st.builds(lambda times, more: times * BLOCK + more, st.integers(1, 3), st.integers(-30, 60))
    | st.integers(9_000, 11_000),
    is_plain=st.booleans(),
)
def test_a_tombstone_has_any_length(length: int, is_plain: bool) -> None:
    stone = tombstone(first_of(), length, is_plain=is_plain)
    assert len(stone) == length
    (record,) = read(gzip.compress(stone) if is_plain else stone)
    assert record.kind == "metadata"
    assert record.block.startswith(b"deleted: on request")


def test_a_record_that_is_too_short_is_refused() -> None:
    assert len(tombstone(first_of(), 280, is_plain=False)) == 280, "without a digest"
    with pytest.raises(DataDirError, match="too short"):
        tombstone(first_of(), 200, is_plain=False)


def test_the_smallest_record_of_ours_has_room(tmp_path: Path) -> None:
    tiny = Capture(url=PURGED, fetched_at=AT, status=200, body=b"")
    writer = WarcWriter(WarcSettings(folder=tmp_path / "warc", origin="h", gzip_level=3))
    writer.append(tiny)
    writer.append(copy_of(replace(tiny, body=b"x"), f"{PURGED}2"))
    writer.close()
    assert purge_all(tmp_path) == 2


def test_a_list_that_was_cut_off_is_continued(data: Path) -> None:
    (data / DELETIONS).write_bytes(b'{"url": "http://x')
    purge_all(data)
    lines = (data / DELETIONS).read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines[:2]] == ["response", "request"]
