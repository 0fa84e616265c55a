"""The disk fills up while it crawls: it stops, what was acknowledged is safe, and it goes on."""

from __future__ import annotations

import random
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from crawler.data.outcomes import read_outcomes
from tests.harness.archive_judges import Read, read_file, read_folder
from tests.harness.commands import crawl_command
from tests.harness.small_disks import Disk, SmallDisk, SmallFiles, can_mount
from tests.servers.loopback import Reply, Routes, site

PAGES = 60
SETTINGS = {
    # Several syncs a page: some pages are done before the disk is full, on a busy machine too.
    "CRAWLER_MIN_DELAY_S": 0.03,
    "CRAWLER_FSYNC_EVERY_S": 0.01,
    "CRAWLER_DELAY_FACTOR": 0,
}


@pytest.fixture(params=[SmallFiles, SmallDisk])
def kind(request, tmp_path) -> type[Disk]:
    """Where no file system can be mounted, the other way shows it alone."""
    return request.param if can_mount(tmp_path) else SmallFiles


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


@pytest.mark.parametrize(
    ("pages", "room_bytes", "full"),
    [
        pytest.param(LARGE_PAGES, 2 << 20, "warc", id="the archive is full"),
        pytest.param(LONG_URLS, 300 << 10, "frontier", id="the frontier is full"),
    ],
)
def test_a_crawl_stops_on_a_full_disk_and_continues_with_room(
    tmp_path, kind, pages, room_bytes, full
):
    data = tmp_path / "data"
    disk = kind(tmp_path, room_bytes)
    try:
        with site("127.0.0.76", pages) as web:
            command = crawl_command(data, SETTINGS, seeds=web.url(next(iter(pages))))
            stopped = disk.run(command)
            assert_refused(stopped, disk.refusal, data / full if kind is SmallFiles else data)
            safe = acknowledged(data)
            assert 0 < len(safe) < PAGES
            if kind is SmallDisk:
                assert_refused(disk.run(command), disk.refusal, data)
            disk.make_room()
            last = disk.run(command)
        assert last.returncode == 0, last.stderr[-2000:]
        assert {one.url for one in archived(data)} == {web.url(path) for path in pages}
        assert {web.hits[path] for path in pages if web.url(path) in safe} == {1}, "not done again"
    finally:
        disk.close()


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
