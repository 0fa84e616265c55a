"""The writer, the archive before it and the recovery after it, on real files: outside readers find
what was acknowledged, after any failure between."""

from __future__ import annotations

import asyncio
import functools
import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pytest
from warcio.cli import main as warcio  # type: ignore[import-untyped]  # it ships no types

from crawler.archive.capture import Capture, RecordPlace
from crawler.archive.reader import READ_BYTES, DamagedFile, records
from crawler.archive.recovery import RecoveredFile, recover
from crawler.archive.warc_file import OpenFile, lock
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.model.types import (
    ConfigError,
    DataDirError,
    StoreUnavailable,
    never_waits,
)
from tests.harness.archive_judges import read, read_folder

FIRST = "crawl-20260102030405-00000-h-1.warc.gz"


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), timeout=30))

    return run


def page(number: int, size: int = 300) -> Capture:
    return Capture(
        url=f"http://example.com/{number}",
        fetched_at=1767323045.0 + number / 1000,
        ip="127.0.0.1",
        request=b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        status=200,
        headers=[(b"Content-Type", b"text/plain")],
        body=Random(number).randbytes(size),
    )


def writer(folder: Path, **rules: Any) -> WarcWriter:
    return WarcWriter(WarcSettings(folder=folder, origin="h-1", **rules))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_found(folder: Path, placed: list[tuple[RecordPlace, Capture]]) -> None:
    """Check that every capture is at its place, and that there is nothing else."""
    records = read_folder(folder)
    for place, capture in placed:
        record = records[place.file, place.offset]
        assert (record.url, record.payload) == (capture.url, capture.body)
        with (folder / place.file).open("rb") as file:
            file.seek(place.offset)
            assert gzip.decompress(file.read(place.length)).startswith(b"WARC/1.1\r\n")
    answers = [r for r in records.values() if r.kind in ("response", "revisit")]
    assert len(answers) == len(placed)


def test_captures_are_where_the_writer_put_them(tmp_path: Path) -> None:
    warcs = writer(tmp_path / "not there yet")
    placed = []
    for number in range(50):
        placed.append((warcs.append(page(number)), page(number)))
        warcs.sync()
    warcs.close()
    assert_found(tmp_path / "not there yet", placed)


def test_warcio_check_finds_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warcs = writer(tmp_path)
    for number in range(5):
        warcs.append(page(number))
    warcs.close()
    with pytest.raises(SystemExit) as ended:
        warcio(["check", str(tmp_path / FIRST)])
    assert ended.value.code == 0
    assert capsys.readouterr() == ("", "")


def test_a_full_file_is_finished_and_the_next_begun(tmp_path: Path) -> None:
    warcs = writer(tmp_path, max_file_bytes=3_000, info=(("software", "Gossamer"),))
    placed = [(warcs.append(page(number, 500)), page(number, 500)) for number in range(20)]
    assert [name for name in names(tmp_path) if name.endswith(".open")] == names(tmp_path)[-1:]
    warcs.close()
    assert_found(tmp_path, placed)
    assert len(names(tmp_path)) > 3
    for (name, offset), record in read_folder(tmp_path).items():
        assert (offset == 0) == (record.kind == "warcinfo")
        if record.kind == "warcinfo":
            assert record.fields["WARC-Filename"] == name
            assert b"software: Gossamer\r\n" in record.block
    assert all(path.stat().st_size < 3_000 + 1_500 for path in tmp_path.iterdir())


def test_a_writer_that_got_nothing_leaves_nothing(tmp_path: Path) -> None:
    writer(tmp_path).close()
    assert names(tmp_path) == []


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    finished, unfinished = tmp_path / FIRST, tmp_path / FIRST.replace("00000", "00001")
    finished.write_bytes(b"finished")
    unfinished.with_name(unfinished.name + ".open").write_bytes(b"unfinished")
    warcs = writer(tmp_path)
    assert warcs.append(page(0)).file == FIRST.replace("00000", "00002")
    warcs.close()
    assert finished.read_bytes() == b"finished"
    assert unfinished.with_name(unfinished.name + ".open").read_bytes() == b"unfinished"
    assert len(names(tmp_path)) == 3


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param({"prefix": "a/b"}, id="a name that is a path"),
        pytest.param({"prefix": ""}, id="no name"),
        pytest.param({"max_file_bytes": 0}, id="files of nothing"),
        pytest.param({"gzip_level": 9}, id="a level isal has not"),
    ],
)
def test_rules_that_cannot_be_right_are_refused(tmp_path: Path, rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        writer(tmp_path, **rules)


def test_an_unusable_folder_is_named_and_can_be_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    folder.write_bytes(b"")
    warcs = writer(folder)
    with pytest.raises(StoreUnavailable, match=str(folder)):
        warcs.append(page(0))
    folder.unlink()
    place = warcs.append(page(0))
    warcs.close()
    assert_found(folder, [(place, page(0))])


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from crawler.model.types import StoreUnavailable
from tests.integration.test_warc_writer import page, writer

folder, placed = Path(sys.argv[1]), []
warcs = writer(folder)
for number, limit in enumerate(map(int, sys.argv[2:])):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        place = warcs.append(page(number, 3_000))
        placed.append([number, place.file, place.offset, place.length])
    except StoreUnavailable as error:
        assert "File too large" in str(error) and str(folder) in str(error), error
print(json.dumps(placed))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
if sys.argv[2] != "0":
    assert len(list(folder.iterdir())) == 1
warcs.close()
"""


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        pytest.param([9_000] * 9, [0, 1], id="a full disk refuses, and keeps what it has"),
        pytest.param([9_000] * 3 + [20_000] * 2, [0, 1, 3, 4], id="space returns"),
        pytest.param([0, 0, 9_000], [2], id="not even a file can be begun"),
        pytest.param([200, 9_000], [1], id="nor its first record"),
        pytest.param([3_400, 9_000], [1], id="only the first record fits, and waits"),
        pytest.param([9_000, 4_200, 9_000], [0, 2], id="cut in the middle of a capture"),
    ],
)
def test_a_full_disk(tmp_path: Path, limits: list[int], kept: list[int]) -> None:
    folder = tmp_path / "warc"
    command = [sys.executable, "-c", FULL_DISK, str(folder), *map(str, limits)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    placed = [(n, RecordPlace(*place)) for n, *place in json.loads(done.stdout)]
    assert [number for number, _ in placed] == kept
    assert_found(folder, [(place, page(number, 3_000)) for number, place in placed])


def test_after_a_failed_fsync_a_file_is_given_up(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # cannot be forced to any disk
    os.close(reading)
    file = OpenFile(writing, tmp_path / "x.warc.gz")
    for call in (file.sync, lambda: file.append(b"x"), lambda: file.finish()):
        with pytest.raises(StoreUnavailable):
            call()
    file.discard()


class GatedWriter(WarcWriter):
    """Writes only while the gate is open, as a slow disk would."""

    def __init__(self, settings: WarcSettings) -> None:
        super().__init__(settings)
        self.gate = threading.Event()
        self.seen: list[str] = []

    def append_all(self, captures: Sequence[Capture]) -> list[RecordPlace]:
        assert self.gate.wait(timeout=30)
        self.seen += [capture.url for capture in captures]
        return super().append_all(captures)


@on_a_loop
async def test_captures_of_many_tasks_are_all_written(tmp_path: Path) -> None:
    archive = Archive(writer(tmp_path, max_file_bytes=20_000), never_waits, queued_captures=8)
    captures = [page(number) for number in range(200)]
    places = await asyncio.gather(*map(archive.append, captures))
    await archive.close()
    assert_found(tmp_path, list(zip(places, captures, strict=True)))


@on_a_loop
async def test_closing_writes_what_was_accepted_and_refuses_the_rest(tmp_path: Path) -> None:
    archive = Archive(writer(tmp_path), never_waits, queued_captures=2)
    tasks = [asyncio.create_task(archive.append(page(number))) for number in range(9)]
    await asyncio.sleep(0)
    await archive.close()
    await archive.close()
    assert_found(tmp_path, [(task.result(), page(n)) for n, task in enumerate(tasks)])
    with pytest.raises(StoreUnavailable, match="closed"):
        await archive.append(page(9))


@on_a_loop
async def test_a_slow_disk_holds_the_callers_back(tmp_path: Path) -> None:
    gated = GatedWriter(WarcSettings(folder=tmp_path, origin="h-1"))
    archive = Archive(gated, never_waits, queued_captures=3)
    tasks = [asyncio.create_task(archive.append(page(number))) for number in range(9)]
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks[3:]:
        task.cancel()
    gated.gate.set()
    await archive.close()
    assert gated.seen == [page(number).url for number in range(3)]
    assert all(task.cancelled() for task in tasks[3:])


@on_a_loop
async def test_a_cancelled_caller_does_not_cancel_others(tmp_path: Path) -> None:
    gated = GatedWriter(WarcSettings(folder=tmp_path, origin="h-1"))
    archive = Archive(gated, never_waits)
    left, stayed = (asyncio.create_task(archive.append(page(number))) for number in range(2))
    await asyncio.sleep(0)
    left.cancel()
    gated.gate.set()
    place = await stayed
    await archive.close()
    assert (place.file, place.offset) in read_folder(tmp_path)


@on_a_loop
async def test_each_failure_is_raised_for_its_own_caller(tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    folder.write_bytes(b"")
    archive = Archive(writer(folder), never_waits)
    with pytest.raises(StoreUnavailable):
        await archive.append(page(0))
    folder.unlink()
    broken = Capture(url="http://example.com/", fetched_at=0, status="200")  # type: ignore[arg-type]  # on purpose
    good, bad = await asyncio.gather(
        archive.append(page(1)), archive.append(broken), return_exceptions=True
    )
    await archive.close()
    assert isinstance(good, RecordPlace) and isinstance(bad, TypeError)
    assert_found(folder, [(good, page(1))])


def left_behind(folder: Path, captures: int = 3) -> tuple[Path, list[int]]:
    """An unfinished file as a dead process leaves it, and where its records end."""
    warcs = writer(folder, gzip_level=0)
    for number in range(captures):
        warcs.append(page(number, 100))
    warcs.close()
    left = folder / f"{FIRST}.open"
    (folder / FIRST).rename(left)
    ends = [record.offset for record in read(left.read_bytes())][1:]
    return left, [*ends, left.stat().st_size]


def whole_records(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[int]:
    """Where each of them ends, up to the first that is not whole."""
    with suppress(DamagedFile):
        for record in records(file, read_bytes):
            yield record.offset + record.finish()


def flip_last_crc(data: bytes) -> bytes:
    return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        pytest.param(lambda data: data, 0, id="nothing but its process died"),
        pytest.param(lambda data: data + b"garbage" * 99, 0, id="garbage after it"),
        pytest.param(lambda data: data + bytes(9999), 0, id="blocks that never reached the disk"),
        pytest.param(lambda data: data + b"\x1f\x8b", 0, id="the beginning of a gzip header"),
        pytest.param(lambda data: data + gzip.compress(b"hello\r\n\r\n"), 0, id="no record"),
        pytest.param(
            lambda data: data + gzip.compress(b"WARC/1.1\r\n"), 0, id="not a whole record"
        ),
        pytest.param(lambda data: data + gzip.compress(b""), 0, id="an empty gzip member"),
        pytest.param(flip_last_crc, 1, id="a checksum that is wrong"),
        pytest.param(lambda data: data[:-1], 1, id="its last byte is missing"),
    ],
)
def test_an_unfinished_file_is_kept_up_to_its_last_whole_record(
    tmp_path: Path, damage: Callable[[bytes], bytes], lost: int
) -> None:
    left, ends = left_behind(tmp_path)
    damaged = damage(left.read_bytes())
    left.write_bytes(damaged)
    kept = len(ends) - lost
    cut_bytes = len(damaged) - ends[kept - 1]
    read: list[int] = []
    found = recover(tmp_path, on_read=read.append)
    assert found == [RecoveredFile(FIRST, kept, ends[kept - 1], cut_bytes)]
    assert (len(read), sum(read)) == (kept, ends[kept - 1])
    assert names(tmp_path) == [FIRST]
    assert len(read_folder(tmp_path)) == kept


def test_wherever_it_was_cut_the_records_before_are_kept(tmp_path: Path) -> None:
    left, ends = left_behind(tmp_path)
    data = left.read_bytes()
    for size in range(len(data)):
        whole = list(whole_records(io.BytesIO(data[:size])))
        assert whole == [end for end in ends if end <= size]


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 7, 50, 333])
def test_however_it_is_read_the_records_are_the_same(tmp_path: Path, read_bytes: int) -> None:
    left, ends = left_behind(tmp_path)
    assert list(whole_records(io.BytesIO(left.read_bytes()), read_bytes)) == ends


def test_a_record_larger_than_what_is_inflated_at_once(tmp_path: Path) -> None:
    warcs = writer(tmp_path)
    zeros = Capture(url="http://example.com/", fetched_at=0, status=200, body=bytes(5_000_000))
    places = [warcs.append(zeros), warcs.append(page(1))]
    assert recover(tmp_path) == []
    warcs.close()
    (data,) = (path.read_bytes() for path in tmp_path.iterdir())
    ends = list(whole_records(io.BytesIO(data)))
    assert [place.offset + place.length for place in places] == ends[1:3]
    assert ends[-1] == len(data)


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", gzip.compress(b"WARC/1.1")[:-3]],
    ids=["empty", "garbage", "half a record"],
)
def test_a_file_without_a_whole_record_is_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{FIRST}.open").write_bytes(content)
    assert recover(tmp_path) == [RecoveredFile(FIRST, 0, 0, len(content))]
    assert names(tmp_path) == []


def test_a_file_of_a_running_process_is_not_touched(tmp_path: Path) -> None:
    warcs = writer(tmp_path)
    placed = [(warcs.append(page(0)), page(0))]
    assert recover(tmp_path) == []
    placed.append((warcs.append(page(1)), page(1)))
    warcs.close()
    assert recover(tmp_path) == []
    assert_found(tmp_path, placed)


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda path: path.rename(path.with_suffix("")), id="finished"),
        pytest.param(lambda path: path.unlink(), id="removed"),
        pytest.param(lambda path: (path.unlink(), path.touch()), id="removed and begun again"),
    ],
)
def test_a_lock_on_a_file_that_went_meanwhile_is_none(
    tmp_path: Path, meanwhile: Callable[[Path], object]
) -> None:
    path = tmp_path / f"{FIRST}.open"
    with path.open("wb") as file:
        assert lock(file.fileno(), path)
        meanwhile(path)
        assert not lock(file.fileno(), path)


def test_recovery_does_not_write_over_a_finished_file(tmp_path: Path) -> None:
    left, _ = left_behind(tmp_path)
    (tmp_path / FIRST).write_bytes(b"finished")
    with pytest.raises(DataDirError, match=FIRST):
        recover(tmp_path)
    assert (tmp_path / FIRST).read_bytes() == b"finished"
    assert left.exists()


def test_there_may_be_nothing_to_recover(tmp_path: Path) -> None:
    assert recover(tmp_path / "not there") == []
    (tmp_path / "other.txt").write_bytes(b"")
    assert recover(tmp_path) == []
    assert names(tmp_path) == ["other.txt"]
