"""A snapshot is one moment of a frontier that changes all the time, and is whole or not there. What
makes it is killed before each of its changes to files, and so is a repair."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from crawler.config.settings import read_config
from crawler.data import snapshots
from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.data.frontier_work import FrontierWork
from crawler.frontier import records as keys
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.reader import FrontierReader, count_again
from crawler.frontier.records import decode_open
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.seen import seen_manifest
from crawler.model.types import CrawlerError, DataDirError, Done, StoreFull
from crawler.operate.client import FrontierCheck
from crawler.operate.local_client import LocalClient, snapshot_of
from crawler.policy.admission import identity_of_urls
from crawler.view.place import CrawlPlace
from tests.harness.budget import examples
from tests.harness.frontiers import candidate, drain, rest
from tests.harness.killed_processes import SPAWN, preload
from tests.harness.small_disks import SmallDisk, can_mount

preload(__name__)
CONFIG = read_config({})
RULES = FrontierLimits(max_new_keys=50, chunk_urls=8, max_undecided=40, max_undecided_s=0.1)


def known(data: Path) -> tuple[set[str], int]:
    """Return the URLs that wait or are leased in *data*, and how many were seen, all checked."""
    with closing(RocksStore(data / "frontier")) as store:
        runs = RunFolder(data / "seen")
        counted = {each.name: each for each in count_again(store, runs)}
        assert [each for each in counted.values() if each.differs] == []
        reader = FrontierReader(store, runs)
        waiting = [each.url for host, _ in reader.hosts() for each in reader.waiting(host)]
        opened = store.scan(keys.OPEN, keys.prefix_end(keys.OPEN), 1000)
        leased = [decode_open(packed).candidate.url for _, packed in opened]
        assert len({*waiting, *leased}) == len(waiting) + len(leased)
        return {*waiting, *leased}, counted["seen"].counted


def filled(path: Path, urls: int = 300) -> None:
    """Make a data directory with runs, entries and leases."""
    identity = identity_of_urls(CONFIG)
    with (
        closing(DataDir(path, identity)) as data,
        closing(open_frontier(path, RULES, 0.0)) as frontier,
    ):
        for begin in range(0, urls, 10):
            frontier.add(
                [candidate(str(n), host=f"h{n % 7}") for n in range(begin, begin + 10)], 0.0
            )
        frontier.lease(1.0, 3)
        data.keep_arguments(b"{}")
        assert seen_manifest(frontier.records).runs


def fetched_from(data: Path, now: float) -> set[str]:
    """Fetch all that is left in *data*, each URL once."""
    with closing(open_frontier(data, RULES, now)) as frontier:
        fetched: list[str] = []
        while not frontier.is_over():
            now += 200.0
            for lease in drain(frontier, now):
                fetched.append(lease.candidate.url)
                frontier.release(lease, rest(0.0), now)
                frontier.finish(lease, Done(), now)
    assert len(fetched) == len(set(fetched))
    return set(fetched)


def test_snapshots_of_a_frontier_at_work_are_each_one_moment(tmp_path: Path) -> None:
    dice = random.Random(1)

    async def scenario() -> None:
        failures: list[CrawlerError] = []
        data = DataDir(tmp_path / "data")
        store = RocksStore(data.frontier)
        room = DiskRoom(WaitWarnings(), "the disk", lambda: bool(failures))
        work = FrontierWork([].extend, room, failures.append, lambda: None)
        frontier = open_frontier(data.path, RULES, 0.0, background=work, store=store)
        work.begin(frontier, lambda: now)
        added: set[str] = set()
        finished: set[str] = set()
        now, is_over = 1.0, False

        async def crawl() -> None:
            nonlocal now
            number = 0
            while not is_over:
                now += 0.5
                found = [candidate(str(n), host=f"h{n % 9}") for n in range(number, number + 7)]
                old = dice.sample(sorted(added), min(5, len(added)))
                found += [candidate(url.rsplit("/", 1)[1], host=url.split("/")[2]) for url in old]
                number += 7
                frontier.add(found, now)
                added.update(each.url for each in found)
                for lease in frontier.lease(now, 3):
                    frontier.release(lease, rest(0.1), now)
                    frontier.finish(lease, Done(), now)
                    finished.add(lease.candidate.url)
                await asyncio.sleep(0.002)

        crawling = asyncio.create_task(crawl())
        for number in range(8):
            await asyncio.sleep(0.1)
            name, done_before, there_before = snapshots.new_name(), set(finished), set(added)
            await work.run_alone(partial(snapshots.freeze, data.path, store, name))
            done_after, there_after = set(finished), set(added)
            target = tmp_path / f"copy-{number}"
            made = snapshots.publish(data.path, name, target)
            urls, seen = known(target)
            assert urls <= there_after - done_before
            assert len(urls) <= seen <= len(there_after)
            assert made.shared > 0 and made.seen == seen
            # It goes on from there: each URL that waits is fetched, and once.
            fetched = fetched_from(target, now)
            # Some had arrived, or were undecided, and waited nowhere.
            assert there_before - done_after <= fetched <= there_after - done_before
            assert urls <= fetched
        is_over = True
        await crawling
        await work.close()
        assert failures == []
        store.close()
        data.close()
        known(data.path)
        assert fetched_from(data.path, now) == added - finished, "the crawl is unharmed"

    asyncio.run(scenario())


def snapshot(data: Path, target: Path) -> None:
    snapshot_of(data, target)


def repair(data: Path, _: Path) -> FrontierCheck:
    return LocalClient(CrawlPlace(data, CONFIG)).check(is_repair=True)


def dies_after(steps: int, change: Callable[[Path, Path], object], *paths: Path) -> None:
    """Call *change* with *paths*, in a process that kills itself before its change number *steps*
    to a file or a folder."""
    left = steps
    changes = {"os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir"}

    def before(event: str, given: tuple[object, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(given[1], str) and given[1][0] in "wx"
        if event in changes or writes:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(before)
    change(*paths)


def died_after(steps: int, change: Callable[[Path, Path], object], *paths: Path) -> bool:
    process = SPAWN.Process(target=dies_after, args=(steps, change, *paths))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.fixture(params=["same", "other"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of the same file system, and one of another."""
    if request.param == "same":
        yield tmp_path
        return
    other = Path("/dev/shm")  # noqa: S108  # a folder of its own is made in it
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other file system")
    folder = other / f"snapshots-{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_it_is_whole_or_not_there_wherever_it_is_killed(tmp_path: Path, place: Path) -> None:
    filled(tmp_path / "first")
    expected = known(tmp_path / "first")
    # Copies are many steps of one kind: some of them, and all under `make fuzz`.
    for steps in range(0, 500, 1 if place == tmp_path or examples(1) > 1 else 3):
        data, target = tmp_path / f"data-{steps}", place / f"copy-{steps}"
        shutil.copytree(tmp_path / "first", data)
        died = died_after(steps, snapshot, data, target)
        partial_copy = place / f"copy-{steps}.partial"
        if target.exists():
            assert known(target) == expected
        else:
            assert died
            if partial_copy.exists():
                with pytest.raises(DataDirError, match=r"\.partial is left of a snapshot"):
                    snapshot_of(data, target)
                shutil.rmtree(partial_copy)
            assert snapshot_of(data, target).seen == expected[1]
            assert known(target) == expected
        assert not snapshots.is_snapshot_wanted(data), "as the next start asks"
        left = {file.name for file in data.iterdir() if file.name.startswith("snapshot-")}
        assert left == set()
        assert known(data) == expected
        shutil.rmtree(data)
        shutil.rmtree(target)
        if not died:
            assert steps > 10, "too short to prove anything"
            return


def test_a_repair_that_is_killed_anywhere_can_be_repeated(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    expected = known(tmp_path / "first")
    with closing(RocksStore(tmp_path / "first" / "frontier")) as store:
        for run in seen_manifest(store).runs:
            with (tmp_path / "first" / "seen" / run.files[0].name).open("r+b") as file:
                file.write(b"damage")
    for steps in range(200):
        data = tmp_path / f"data-{steps}"
        shutil.copytree(tmp_path / "first", data)
        died = died_after(steps, repair, data, data)
        made = repair(data, data)
        assert died or made.rebuilt is None
        assert made.rebuilt is None or made.rebuilt.lost == 0
        assert known(data) == expected
        assert list((data / "seen").glob("*.damaged")), "it is kept"
        shutil.rmtree(data)
        if not died:
            assert steps > 4, "too short to prove anything"
            return


def test_without_hard_links_it_is_made_of_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    filled(tmp_path / "data")
    monkeypatch.setattr(os, "link", refuses)
    snapshot_of(tmp_path / "data", tmp_path / "copy")
    assert known(tmp_path / "copy") == known(tmp_path / "data")
    links = {file.stat().st_nlink for file in (tmp_path / "copy" / "seen").iterdir()}
    assert links == {1}


@pytest.mark.parametrize("is_room_checked", [True, False])
def test_a_full_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_room_checked: bool
) -> None:
    (tmp_path / "small").mkdir()
    if not can_mount(tmp_path / "small"):
        pytest.skip("no file system can be mounted")
    filled(tmp_path / "data")
    if not is_room_checked:  # as if the room went while it copies
        monkeypatch.setattr(snapshots, "_require_free", lambda *_: None)
    disk = SmallDisk(tmp_path / "small", 40 << 10)
    try:
        with pytest.raises(StoreFull, match=r"in \S+small, and|No space left"):
            snapshot_of(tmp_path / "data", disk.folder / "copy")
        assert list(disk.folder.iterdir()) == []
    finally:
        disk.close()
    assert not list((tmp_path / "data").glob("snapshot-*"))
    assert known(tmp_path / "data")[1] == 300


def occupied(target: Path) -> None:
    target.mkdir()
    (target / "mine").write_text("mine")


def half(target: Path) -> None:
    target.with_name(f"{target.name}.partial").mkdir()


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        pytest.param(occupied, "is not empty", id="a folder with files"),
        pytest.param(lambda target: target.write_text(""), "is not empty", id="a file"),
        pytest.param(half, "is left of a snapshot that was cut off", id="half a snapshot"),
        pytest.param(lambda target: target.parent.rmdir(), "does not exist", id="no parent"),
    ],
)
def test_what_is_there_is_not_overwritten(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    filled(tmp_path / "data")
    (tmp_path / "parent").mkdir()
    target = tmp_path / "parent" / "copy"
    prepare(target)
    before = sorted(tmp_path.glob("parent/**/*"))
    with pytest.raises(DataDirError, match=message):
        snapshot_of(tmp_path / "data", target)
    assert sorted(tmp_path.glob("parent/**/*")) == before


def test_an_empty_folder_becomes_the_snapshot(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    (tmp_path / "copy").mkdir()
    snapshot_of(tmp_path / "data", tmp_path / "copy")
    assert known(tmp_path / "copy") == known(tmp_path / "data")


def test_a_run_that_is_gone_makes_no_snapshot(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    for file in (tmp_path / "data" / "seen").iterdir():
        file.unlink()
    with pytest.raises(CrawlerError, match=r"run-\d+.keys"):
        snapshot_of(tmp_path / "data", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list((tmp_path / "data").glob("snapshot-*"))


def test_one_snapshot_is_made_at_a_time(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    with snapshots.only_snapshot(tmp_path / "data"):
        assert snapshots.is_snapshot_wanted(tmp_path / "data")
        with pytest.raises(DataDirError, match=rf"being made by process {os.getpid()}"):
            snapshot_of(tmp_path / "data", tmp_path / "copy")
    assert not snapshots.is_snapshot_wanted(tmp_path / "data")
