"""Files beside WARC files: whatever happens to one, a finished file has it, whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from crawler.archive.capture import Capture, StoredCapture
from crawler.archive.reader import ArchivedCapture, captures
from crawler.archive.recovery import recover
from crawler.archive.warc_file import (
    companion_path,
    missing_companions,
    open_name,
    rebuild_lock,
    remove_unfinished_companions,
)
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.model.types import StoreUnavailable

URLS: Final = [f"http://example.com/{number}" for number in range(6)]


class UrlList:
    """A companion: the URLs, a line each. It fails at the names in *failing*."""

    suffix = ".urls"

    is_slow = False

    def __init__(self, failing: Callable[[str], bool] = lambda step: False) -> None:
        self._failing = failing
        self._warc = self._final = Path()
        self._urls: list[str] = []
        self.steps: list[str] = []

    def begin(self, warc: Path) -> None:
        self._warc, self._final, self._urls = warc, companion_path(warc, self.suffix), []
        self._step("begin")
        open_name(self._final).touch()

    def add(self, written: StoredCapture) -> None:
        self._step("add")
        self._urls.append(written.capture.url)

    def add_stored(self, stored: ArchivedCapture) -> None:
        self._step("add_stored")
        self._urls.append(stored.url)

    def finish(self) -> None:
        self._step("finish")
        assert open_name(self._warc).exists(), "companions are finished before their file"
        assert open_name(self._final).exists()
        open_name(self._final).write_text("\n".join(self._urls))
        open_name(self._final).rename(self._final)

    def discard(self) -> None:
        self._step("discard")
        open_name(self._final).unlink(missing_ok=True)

    def rebuild(self, warc: Path, content: Path) -> None:
        self._step("rebuild")
        urls = [one.url for one in captures(warc, content, 0)]
        companion_path(warc, self.suffix).write_text("\n".join(urls))
        open_name(companion_path(warc, self.suffix)).unlink(missing_ok=True)

    def _step(self, step: str) -> None:
        self.steps.append(step)
        if self._failing(step):
            raise StoreUnavailable(f"cannot {step}")


def failing_once(at: str, nth: int = 1) -> Callable[[str], bool]:
    left = [nth]

    def failing(step: str) -> bool:
        left[0] -= step == at
        return step == at and left[0] == 0

    return failing


def write(folder: Path, companion: UrlList) -> None:
    warcs = WarcWriter(WarcSettings(folder=folder, origin="h-1", max_file_bytes=1_200), [companion])
    for url in URLS:
        warcs.append(Capture(url=url, fetched_at=0, status=200, body=b"body"))
    try:
        warcs.close()
    except StoreUnavailable:
        warcs.close()


def assert_whole(folder: Path) -> None:
    found: list[str] = []
    for warc in sorted(folder.glob("*.warc.gz")):
        urls = companion_path(warc, ".urls").read_text().splitlines()
        assert urls == [one.url for one in captures(warc, warc, 0)]
        found += urls
    assert found == URLS
    assert not list(folder.glob("*.open"))


def test_each_file_has_its_companion(tmp_path: Path) -> None:
    companion = UrlList()
    write(tmp_path, companion)
    assert_whole(tmp_path)
    assert len(list(tmp_path.glob("*.urls"))) > 1
    assert "rebuild" not in companion.steps and "discard" not in companion.steps


@pytest.mark.parametrize(
    ("step", "nth"), [("begin", 1), ("begin", 2), ("add", 1), ("add", 4), ("finish", 1)]
)
def test_a_failed_companion_costs_no_capture_and_is_rebuilt(
    tmp_path: Path, step: str, nth: int
) -> None:
    companion = UrlList(failing_once(step, nth))
    write(tmp_path, companion)
    assert_whole(tmp_path)
    assert companion.steps.count("rebuild") == 1


def test_a_file_stays_open_until_its_companion_can_be_written(tmp_path: Path) -> None:
    fails = [True]
    good, bad = UrlList(), UrlList(lambda step: fails[0] and step in ("finish", "rebuild"))
    bad.suffix = ".others"
    warcs = WarcWriter(WarcSettings(folder=tmp_path, origin="h-1"), [good, bad])
    warcs.append(Capture(url=URLS[0], fetched_at=0, status=200))
    with pytest.raises(StoreUnavailable):
        warcs.close()
    assert not list(tmp_path.glob("*.warc.gz"))
    fails[0] = False
    warcs.append(Capture(url=URLS[1], fetched_at=0, status=200))
    warcs.close()
    for suffix in (".urls", ".others"):
        (listed,) = tmp_path.glob(f"*{suffix}")
        assert listed.read_text().splitlines() == URLS[:2]
    assert not list(tmp_path.glob("*.open"))


@pytest.mark.parametrize("finished", [True, False], ids=["companion finished", "or not"])
def test_a_companion_of_a_dead_process_is_rebuilt(tmp_path: Path, finished: bool) -> None:
    write(tmp_path, UrlList())
    for warc in tmp_path.glob("*.warc.gz"):
        if not finished:
            companion_path(warc, ".urls").rename(open_name(companion_path(warc, ".urls")))
        warc.rename(open_name(warc))
    recover(tmp_path, [UrlList()])
    assert_whole(tmp_path)


def slow_companion(failing: Callable[[str], bool] = lambda step: False) -> UrlList:
    companion = UrlList(failing)
    companion.is_slow = True
    return companion


def test_companions_that_are_slow_to_rebuild_are_left_missing(tmp_path: Path) -> None:
    write(tmp_path, UrlList())
    for warc in tmp_path.glob("*.warc.gz"):
        companion_path(warc, ".urls").unlink()
        warc.rename(open_name(warc))
    slow = slow_companion()
    recover(tmp_path, [slow])
    assert slow.steps == []
    assert missing_companions(tmp_path, ".urls") == sorted(tmp_path.glob("*.warc.gz"))
    recover(tmp_path, [slow])
    assert missing_companions(tmp_path, ".urls"), "a second start does not forget"
    for warc in missing_companions(tmp_path, ".urls"):
        slow.rebuild(warc, warc)
    assert_whole(tmp_path)


@pytest.mark.parametrize("step", ["begin", "add", "finish"])
def test_a_slow_companion_does_not_delay_the_writer(tmp_path: Path, step: str) -> None:
    slow = slow_companion(failing_once(step))
    write(tmp_path, slow)
    assert "rebuild" not in slow.steps
    (warc,) = missing_companions(tmp_path, ".urls")
    slow.rebuild(warc, warc)
    assert_whole(tmp_path)


def test_a_companion_that_is_turned_off_is_no_longer_missing(tmp_path: Path) -> None:
    write(tmp_path, slow_companion(failing_once("add")))
    remove_unfinished_companions(tmp_path, ".urls")
    assert missing_companions(tmp_path, ".urls")
    remove_unfinished_companions(tmp_path, ".urls", also_marked=True)
    assert not list(tmp_path.glob("*.open"))


def test_one_process_at_a_time_rebuilds_companions(tmp_path: Path) -> None:
    write(tmp_path, UrlList())
    warc = next(tmp_path.glob("*.warc.gz"))
    with rebuild_lock(warc) as ours, rebuild_lock(warc) as theirs:
        assert (ours, theirs) == (True, False)
    with rebuild_lock(warc) as again:
        assert again


def test_companions_without_their_file_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a.urls.open").touch()
    (tmp_path / "a.other.open").touch()
    (tmp_path / "b.urls").touch()
    recover(tmp_path, [UrlList()])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.other.open", "b.urls"]


def test_a_companion_of_a_running_process_is_not_touched(tmp_path: Path) -> None:
    warcs = WarcWriter(WarcSettings(folder=tmp_path, origin="h-1"), [UrlList()])
    warcs.append(Capture(url=URLS[0], fetched_at=0, status=200))
    before = sorted(tmp_path.iterdir())
    recover(tmp_path, [UrlList()])
    assert sorted(tmp_path.iterdir()) == before
    warcs.close()
