"""The disk fills up while it crawls: it waits for room, and what was acknowledged is safe."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from crawler.data.data_dir import DataDir, InheritedLock
from crawler.data.outcomes import read_outcomes
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import DataDirError, StoreFull
from tests.harness.archive_judges import Read, read_file, read_folder
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.fork_server import running
from tests.harness.small_disks import SmallDisk, SmallFiles, can_mount
from tests.harness.waiting import wait_until
from tests.servers.loopback import Reply, Routes, site

PAGES = 60
SETTINGS = {
    # Several syncs a page: some pages are done before the disk is full, on a busy machine too.
    "CRAWLER_MIN_DELAY_S": 0.06,
    "CRAWLER_FSYNC_EVERY_S": 0.01,
    "CRAWLER_DELAY_FACTOR": 0,
}


def paths(stem: str) -> list[str]:
    return [f"/{number}{stem}" for number in range(PAGES)]


def tree(stem: str, text_bytes: int) -> Routes:
    """Every page links to three more. Its text cannot be compressed."""
    chance = random.Random(4)
    all_paths = paths(stem)
    return {
        path: Reply(
            "".join(f'<a href="{link}">x</a>' for link in all_paths[3 * at + 1 : 3 * at + 4])
            + f"<p>{chance.randbytes(text_bytes // 2).hex()}"
        )
        for at, path in enumerate(all_paths)
    }


LARGE_PAGES = tree("", text_bytes=200_000)  # the archive is what grows
LONG_URLS = tree(
    "x" * 1900, text_bytes=100
)  # the frontier is: it writes a URL when its state changes


GROWING = pytest.mark.parametrize(
    ("pages", "room_bytes", "full"),
    [
        pytest.param(LARGE_PAGES, 2 << 20, "warc", id="the archive is full"),
        pytest.param(LONG_URLS, 300 << 10, "frontier", id="the frontier is full"),
    ],
)


@GROWING
def test_a_crawl_stops_where_no_file_may_grow_and_continues_with_room(
    tmp_path, pages, room_bytes, full
):
    data = tmp_path / "data"
    disk = SmallFiles(tmp_path, room_bytes)
    with site("127.0.0.76", pages) as web:
        command = crawl_command(data, SETTINGS, seeds=web.url(next(iter(pages))))
        stopped = disk.run(command)
        assert_refused(stopped, disk.refusal, data / full)
        safe = acknowledged(data)
        assert 0 < len(safe) < PAGES
        disk.make_room()
        last = disk.run(command)
    assert last.returncode == 0, last.stderr[-2000:]
    assert {one.url for one in archived(data)} == {web.url(path) for path in pages}
    assert {web.hits[path] for path in pages if web.url(path) in safe} == {1}, "not done again"


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Callable[[int], SmallDisk]]:
    disks: list[SmallDisk] = []
    folder = tmp_path / "disk"
    folder.mkdir()
    if not can_mount(folder):
        pytest.skip("only root may have a small disk")

    def mount(room_bytes: int) -> SmallDisk:
        disks.append(SmallDisk(folder, room_bytes))
        return disks[-1]

    yield mount
    for disk in disks:
        disk.close()


FULL = "Waiting: no room on the disk, so nothing is fetched"


@GROWING
def test_a_crawl_pauses_on_a_full_disk_and_goes_on_with_room(
    tmp_path, small_disk, pages, room_bytes, full
):
    disk, log = small_disk(room_bytes), tmp_path / "log"
    data = disk.folder / "data"
    with site("127.0.0.76", pages) as web:
        command = crawl_command(data, SETTINGS, seeds=web.url(next(iter(pages))))
        with running(command, log) as process:
            until_full(process, log)
            time.sleep(2.5)  # it must not be logged each second
            asked = sum(web.hits.values())
            time.sleep(1.0)
            assert process.poll() is None
            assert sum(web.hits.values()) == asked, "nothing is fetched that finds no room"
            disk.make_room()
            assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    assert {one.url for one in archived(data)} == {web.url(path) for path in pages}
    assert {web.hits[path] for path in pages} == {1}, "each once"
    assert len(list(read_outcomes(data / "outcomes.jsonl"))) == PAGES
    logged = log.read_text()
    assert logged.count(FULL) == logged.count("Going on: there is room on the disk") == 1
    assert "Traceback" not in logged


@GROWING
def test_a_crawl_that_is_stopped_on_a_full_disk_keeps_what_it_acknowledged(
    tmp_path, small_disk, pages, room_bytes, full
):
    disk, log = small_disk(room_bytes), tmp_path / "log"
    data = disk.folder / "data"
    with site("127.0.0.76", pages) as web:
        command = crawl_command(data, SETTINGS, seeds=web.url(next(iter(pages))))
        with running(command, log) as process:
            until_full(process, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 1
        lines = log.read_text().splitlines()
        assert disk.refusal in lines[-1] and str(data) in lines[-1]
        assert not [line for line in lines if "Traceback" in line]
        safe = acknowledged(data)
        assert 0 < len(safe) < PAGES
        disk.fill()  # a page was refused, and what is smaller may still find room
        refused = disk.run(command)
        assert_refused(refused, disk.refusal, data)
        disk.make_room()
        assert disk.run(command).returncode == 0
    assert {one.url for one in archived(data)} == {web.url(path) for path in pages}
    assert {web.hits[path] for path in pages if web.url(path) in safe} == {1}, "not done again"


def test_a_disk_that_is_full_at_the_start_is_said_in_one_sentence(small_disk):
    disk = small_disk(1 << 20)
    disk.fill()
    with pytest.raises(DataDirError, match=disk.refusal):
        DataDir(disk.folder / "data")
    with pytest.raises(DataDirError, match=disk.refusal):
        InheritedLock.take(disk.folder / "share.lock")


def test_a_sync_after_a_write_without_room_says_what_refused_it(small_disk):
    disk = small_disk(1 << 20)
    with closing(RocksStore(disk.folder / "frontier")) as store:
        disk.fill()
        with pytest.raises(StoreFull, match=disk.refusal) as refused:
            store.write({b"key": bytes(1 << 16)})
        with pytest.raises(StoreFull) as unsynced:
            store.sync()
    assert str(unsynced.value) == str(refused.value)


def until_full(process: subprocess.Popen[bytes], log: Path) -> None:
    wait_until(
        lambda: FULL in log.read_text() or process.poll() is not None,
        PATIENCE_S,
        log=log.read_text,
    )


def assert_refused(done: CompletedProcess[str], refusal: str, where: Path) -> None:
    assert done.returncode == 1, done.stderr[-2000:]
    message = done.stderr.splitlines()[-1]
    assert refusal in message
    assert str(where) in message


def acknowledged(data: Path) -> set[str]:
    """The URLs that are done, each with its record in an archive that reads clean. Without room
    for its index a file stays open; it ends with a whole record all the same."""
    records = {f"{name}:{at}": one for (name, at), one in read_folder(data / "warc").items()}
    for path in (data / "warc").glob("*.warc.gz.open"):
        records |= {f"{path.stem}:{one.offset}": one for one in read_file(path)}
    done = [one for one in read_outcomes(data / "outcomes.jsonl") if one.fate == "done"]
    assert all(records[one.record].url == one.url for one in done)
    return {one.url for one in done}


def archived(data: Path) -> list[Read]:
    assert not list((data / "warc").glob("*.open")), "what can be finished is"
    return [one for one in read_folder(data / "warc").values() if one.kind == "response"]
