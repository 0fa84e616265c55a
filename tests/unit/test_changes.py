"""The files of a change feed: their numbers, whatever is cut off; full disks; a killed purge.

What its consumers see is in tests/contract/test_changes.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from crawler.data import changes
from crawler.data.changes import (
    ChangeFeed,
    FeedReader,
    LocalChanges,
    decode_change,
    feed_files,
    last_number,
    purge_changes,
)
from crawler.model.types import (
    Change,
    ChangeKind,
    DataDirError,
    StoreFull,
    change_key,
)
from tests.harness.small_disks import SmallDisk, can_mount
from tests.harness.waiting import wait_until

AT = 1767323045.5
MARKER = "marker-5d1f9c"


def new(url: str, original: str = "") -> Change:
    return Change(
        ChangeKind.NEW, AT, change_key(url), url=url, record="a.warc.gz:1", original=original
    )


def write(folder: Path, *urls: str) -> None:
    with closing(ChangeFeed(folder)) as feed:
        feed.write(map(new, urls))


def read(folder: Path, after: int = 0) -> list[Change]:
    return [decode_change(entry.line) for entry in FeedReader(folder, after).read()]


def urls_of(found: list[Change]) -> list[tuple[int, str]]:
    return [(each.number, each.url) for each in found]


@pytest.fixture(autouse=True)
def short_files() -> Iterator[None]:
    """Every second or third entry begins another file."""
    with patch.object(changes, "FILE_BYTES", 400):
        yield


def test_numbers_go_on_over_files_and_runs_and_half_a_line_is_cut_off(tmp_path: Path) -> None:
    for run in range(5):
        write(tmp_path, *(f"http://a.example/{run}/{n}" for n in range(3)))
        with feed_files(tmp_path)[-1][1].open("ab") as file:
            file.write(b'{"kind":"new","at":17')
        assert last_number(tmp_path) == 3 * run + 3
    found = read(tmp_path)
    assert [each.number for each in found] == list(range(1, 16))
    assert len(feed_files(tmp_path)) > 3
    assert urls_of(read(tmp_path, after=13)) == urls_of(found)[13:]


def test_a_reader_goes_on_where_it_was_though_the_feed_grows_and_is_purged(tmp_path: Path) -> None:
    write(tmp_path, "http://a.example/1", "http://b.example/2")
    reader = FeedReader(tmp_path, 0)
    assert [entry.number for entry in reader.read()] == [1, 2]
    assert list(reader.read()) == []
    write(tmp_path, "http://a.example/3")
    purge_changes(tmp_path, lambda url: "b.example" in url, AT)
    assert [entry.number for entry in reader.read()] == [3, 4]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    write(tmp_path, "http://a.example/")
    with feed_files(tmp_path)[0][1].open("ab") as file:
        file.write(b"\0\0\0\n")
    with pytest.raises(DataDirError, match=r"000000000001\.jsonl is damaged"):
        ChangeFeed(tmp_path)
    with pytest.raises(DataDirError, match=r"000000000001\.jsonl is damaged"):
        read(tmp_path)


def test_a_damaged_position_is_named(tmp_path: Path) -> None:
    write(tmp_path, "http://a.example/")
    LocalChanges(tmp_path).move("index", 1, AT)
    (tmp_path / "consumers" / "index.json").write_text("{")
    with pytest.raises(DataDirError, match="the consumer index cannot be read"):
        LocalChanges(tmp_path).consumers()


def test_a_full_disk_is_waited_for_and_no_number_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    if not can_mount(folder):
        pytest.skip("only root may have a small disk")
    disk, refused, is_hopeless = SmallDisk(folder, 64 << 10), list[StoreFull](), False

    def waits_for_room(full: StoreFull) -> bool:
        refused.append(full)
        return not is_hopeless

    try:
        feed = ChangeFeed(folder / "changes", waits_for_room)
        with patch.object(changes, "FILE_BYTES", 1 << 20), closing(feed):
            disk.fill()
            urls = [f"http://a.example/{n}" for n in range(300)]
            writes = threading.Thread(target=lambda: feed.write(map(new, urls)))
            writes.start()
            wait_until(lambda: refused, 30.0)
            disk.make_room()
            writes.join()
            (folder / "filler").unlink()
            disk._mount("-o", "remount,size=128k", str(folder))
            disk.fill()
            is_hopeless = True
            with pytest.raises(StoreFull):
                feed.write(map(new, urls))
        disk.make_room()
        write(folder / "changes", "http://a.example/last")
        found = read(folder / "changes")
    finally:
        disk.close()
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert urls_of(found)[:300] == [(n, url) for n, url in enumerate(urls, 1)]
    assert 301 <= len(found) <= 601 and found[-1].url == "http://a.example/last"


@pytest.mark.parametrize("kept", [0, 1, 2, 99], ids=lambda n: f"killed after {n} files")
def test_a_purge_leaves_the_url_in_no_file_and_says_its_key(tmp_path: Path, kept: int) -> None:
    purged = [f"http://{MARKER}.example/{n}" for n in range(6)]
    others = [f"http://a.example/{n}" for n in range(6)]
    with closing(ChangeFeed(tmp_path)) as feed:
        for url, other in zip(purged, others, strict=True):
            feed.write([new(url), new(other, original=url)])
    with feed_files(tmp_path)[-1][1].open("ab") as file:
        file.write(b'{"url":"http://' + MARKER.encode())
    replace_file, left = changes.replace_file, kept

    def dying(file: Path, content: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        replace_file(file, content)

    def is_purged(url: str) -> bool:
        return MARKER in url

    with patch.object(changes, "replace_file", dying):
        try:
            purge_changes(tmp_path, is_purged, AT)
        except KeyboardInterrupt:
            assert kept < 99
    purge_changes(tmp_path, is_purged, AT)
    assert purge_changes(tmp_path, is_purged, AT) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if MARKER in path.read_text()]
    found = read(tmp_path)
    assert [(each.url, each.number) for each in found if each.kind is ChangeKind.NEW] == [
        (url, 2 * n) for n, url in enumerate(others, 1)
    ]
    keys = {each.key for each in found if each.kind is ChangeKind.PURGED}
    assert keys == set(map(change_key, purged))
    write(tmp_path, "http://a.example/next")
    assert read(tmp_path)[-1].number > max(each.number for each in found)
