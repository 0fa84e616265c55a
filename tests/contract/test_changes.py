"""A change feed as its consumers see it, in a folder and in Redis: the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol
from unittest.mock import patch

import pytest

from crawler.data import changes as local_changes
from crawler.data.changes import (
    Backlog,
    ChangeFeed,
    Changes,
    ConsumerWatch,
    LocalChanges,
    decode_change,
    purge_changes,
)
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.model.types import Change, ChangeKind, ConfigError, DataDirError, change_key
from crawler.shared import changes as shared_changes
from crawler.shared.address import Address
from crawler.shared.changes import (
    ChangeSender,
    FeedState,
    SharedChanges,
    feed_of,
    send_changes,
)
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.worker.status import StatusLog
from tests.harness.lone_worker import BOUND_S, RecordingListener
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer

AT = 1767323045.5
MARKER = "marker-5d1f9c"
_crawls = count(1)


def new(url: str, original: str = "") -> Change:
    return Change(
        ChangeKind.NEW, AT, change_key(url), url=url, record="a.warc.gz:1", original=original
    )


class FeedWorld(Protocol):
    feed: Changes
    backlog: Backlog
    written: ChangeFeed

    def write(self, *changes: Change) -> None:
        """Write *changes*, and let consumers see them."""

    def note(self) -> None:
        """Let the crawl see what consumers have taken."""

    def purge(self, is_purged: Callable[[str], bool]) -> None: ...

    def contents(self) -> bytes:
        """All that is stored."""


def files_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


class LocalWorld:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.written = ChangeFeed(folder)
        self.feed: Changes = LocalChanges(folder)
        self.backlog: Backlog = self.written

    def write(self, *changes: Change) -> None:
        self.written.write(changes)

    def note(self) -> None:
        pass

    def purge(self, is_purged: Callable[[str], bool]) -> None:
        purge_changes(self._folder, is_purged, AT)
        self.reopen()

    def reopen(self) -> None:
        self.written.close()
        self.written = self.backlog = ChangeFeed(self._folder)

    def contents(self) -> bytes:
        return files_below(self._folder)


class SharedWorld:
    """One worker of a shared crawl, whose entries are sent when the test says so."""

    def __init__(self, folder: Path, server: RedisServer, link: BlockingNodes, crawl: str) -> None:
        self.folder, self.crawl, self.link, self.server = folder, crawl, link, server
        self.feed = SharedChanges(link, crawl, f"the crawl {crawl}")
        self.written = ChangeFeed(folder)
        self.backlog = self.sender = self.new_sender(0)

    def new_sender(self, sent: int) -> ChangeSender:
        feed = feed_of(self.folder, "w1")
        state = FeedState(sent, 0, [])
        return ChangeSender(self.crawl, self.folder, feed, state, lambda: self.written.last)

    def write(self, *changes: Change) -> None:
        self.written.write(changes)
        self.note()

    def note(self) -> None:
        while self.sender.note(self.link.command(self.sender.key, *self.sender.call())):
            pass

    def purge(self, is_purged: Callable[[str], bool]) -> None:
        purge_changes(self.folder, is_purged, AT)
        self.reopen()
        self.feed.purge(is_purged, AT)

    def reopen(self, given: int = 0) -> None:
        self.written.close()
        self.written = ChangeFeed(self.folder, given=given)

    def contents(self) -> bytes:
        with self.server.client() as client:
            stored = [client.dump(key) for key in client.scan_iter(f"*{self.crawl}:*")]
        return b"".join([*stored, files_below(self.folder)])


@contextmanager
def shared_world(folder: Path, server: RedisServer) -> Iterator[SharedWorld]:
    crawl = f"changes{next(_crawls)}"
    with BlockingNodes(Nodes(Address.parse(server.url), OwnedScripts(), crawl, 1)) as link:
        world = SharedWorld(folder, server, link, crawl)
        try:
            yield world
        finally:
            world.written.close()


@pytest.fixture(autouse=True)
def short_files() -> Iterator[None]:
    """Every second or third entry begins another file; a call has three."""
    with (
        patch.object(local_changes, "FILE_BYTES", 400),
        patch.object(shared_changes, "BATCH", 3),
    ):
        yield


@pytest.fixture(params=["in a folder", "in Redis"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FeedWorld]:
    if request.param == "in a folder":
        local = LocalWorld(tmp_path)
        yield local
        local.written.close()
        return
    with shared_world(tmp_path, request.getfixturevalue("redis_server")) as shared:
        yield shared


@pytest.fixture
def shared(tmp_path: Path, redis_server: RedisServer) -> Iterator[SharedWorld]:
    with shared_world(tmp_path, redis_server) as world:
        yield world


def urls(begin: int, end: int, host: str = "a.example") -> list[Change]:
    return [new(f"http://{host}/{n}") for n in range(begin, end)]


def read(feed: Changes, after: int = 0) -> list[Change]:
    return [decode_change(entry.line) for entry in feed.reader(after).read()]


def names(found: list[Change]) -> list[str]:
    return [each.url for each in found]


def test_a_reader_gets_each_entry_once_in_order_under_its_number(world: FeedWorld) -> None:
    world.write(*urls(1, 9))
    reader = world.feed.reader(0)
    first = [decode_change(each.line) for each in reader.read()]
    assert [each.number for each in first] == list(range(1, 9))
    assert names(first) == names(urls(1, 9)) and list(reader.read()) == []
    world.write(*urls(9, 12))
    assert [each.number for each in reader.read()] == [9, 10, 11]
    assert names(read(world.feed, 10)) == names(urls(11, 12)) and world.feed.last() == 11


def test_what_a_consumer_has_read_and_not_taken_comes_again(world: FeedWorld) -> None:
    world.write(*urls(1, 6))
    world.feed.move("index", 0, AT)
    assert len(read(world.feed, 0)) == 5, "then the consumer is killed"
    known = world.feed.consumer("index")
    assert known is not None and known.taken == 0
    assert len(read(world.feed, known.taken)) == 5
    world.feed.move("index", 3, AT)
    world.note()
    assert [each.number for each in read(world.feed, 3)] == [4, 5]


def test_a_position_that_the_feed_does_not_reach_is_refused(world: FeedWorld) -> None:
    if isinstance(world, SharedWorld):
        with pytest.raises(DataDirError, match="CRAWLER_CHANGES=true"):
            world.feed.reader(0)
    world.note()
    world.write(*urls(1, 6))
    assert read(world.feed, 5) == []
    with pytest.raises(DataDirError, match="ends at entry 5, before 6"):
        world.feed.reader(6)
    if isinstance(world, SharedWorld):
        world.feed.move("index", 3, AT)
    else:
        for _, file in local_changes.feed_files(world.written.folder)[:-1]:
            file.unlink()
    with pytest.raises(DataDirError, match=r"begins at entry .*those after 0 were removed"):
        world.feed.reader(0)


def test_consumers_have_names_and_positions(world: FeedWorld) -> None:
    world.write(*urls(1, 4))
    assert world.feed.consumer("index") is None
    world.feed.move("mirror", 0, AT)
    world.feed.move("index", 2, AT)
    found = world.feed.consumers()
    assert [(each.name, each.taken) for each in found] == [("mirror", 0), ("index", 2)]
    assert [world.feed.lag_of(each) for each in found] == [3, 1]
    world.feed.forget("mirror")
    with pytest.raises(ConfigError, match="there are: index"):
        world.feed.forget("mirror")
    for name in ("", "../x", "a.b", "a" * 65):
        with pytest.raises(ConfigError, match="no name of a consumer"):
            world.feed.move(name, 0, AT)


def test_the_crawl_waits_for_the_consumer_furthest_behind_until_it_has_taken_or_is_forgotten(
    world: FeedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    woken: list[bool] = []
    room = DiskRoom(WaitWarnings(), "the disk", lambda: False)
    watch = ConsumerWatch(world.written, world.backlog, 2, room, lambda: woken.append(True))

    def look() -> tuple[int, bool]:
        world.note()
        watch.look()
        return watch.lag, watch.is_behind

    world.write(*urls(1, 4))
    assert look() == (0, False), "nobody waits for it"
    world.feed.move("slow", 1, AT)
    world.feed.move("quick", 3, AT)
    assert look() == (2, False)
    world.written.write(urls(4, 5))
    assert (watch.lag, watch.is_behind) == (3, True), "without another look, before it is sent"
    assert look() == (3, True)
    assert "scrapy frontier changes --forget slow" in caplog.text
    assert room.awaited == "a consumer of the change feed has taken more of it"
    world.feed.move("slow", 2, AT)
    assert not woken and look() == (2, False) and woken == [True]
    world.write(*urls(5, 7))
    assert look() == (4, True)
    world.feed.forget("slow")
    assert look() == (3, True)
    world.feed.move("quick", 6, AT)
    assert look() == (0, False) and woken == [True, True]


def test_a_purge_leaves_the_url_nowhere_and_says_its_key(world: FeedWorld) -> None:
    purged = [f"http://{MARKER}.example/{n}" for n in range(4)]
    others = [f"http://a.example/{n}" for n in range(4)]
    for url, other in zip(purged, others, strict=True):
        world.write(new(url), new(other, original=url))
    world.feed.move("index", 2, AT)
    world.purge(lambda url: MARKER in url)
    world.note()
    assert MARKER.encode() not in world.contents()
    found = read(world.feed, 2)
    kept = [(each.number, each.url) for each in found if each.kind is ChangeKind.NEW]
    assert kept == [(2 * n, url) for n, url in enumerate(others, 1) if n > 1]
    keys = {each.key for each in found if each.kind is ChangeKind.PURGED}
    assert keys >= set(map(change_key, purged[1:]))
    world.write(*urls(9, 10))
    assert read(world.feed, 2)[-1].number > max(each.number for each in found)


# What is the shared feed's own


def test_a_worker_killed_between_two_calls_or_a_lost_reply_sends_nothing_twice(
    shared: SharedWorld,
) -> None:
    shared.written.write(urls(1, 9))
    for _ in range(3):  # the reply is lost, or its reader killed before it has read it
        shared.link.command(shared.sender.key, *shared.sender.call())
    shared.note()
    shared.sender = shared.new_sender(3)
    shared.note()
    assert names(read(shared.feed)) == names(urls(1, 9))


def test_a_server_that_has_lost_its_last_second_gets_it_again_under_other_numbers(
    tmp_path: Path,
) -> None:
    with (
        RedisServer(tmp_path / "redis", appendonly="no") as server,
        shared_world(tmp_path / "feed", server) as shared,
    ):
        shared.write(*urls(1, 5))
        shared.feed.move("index", 2, AT)
        with server.client() as client:
            client.save()
        shared.write(*urls(5, 9))
        assert read(shared.feed, 2)[-1].number == 8
        server.kill()
        server.start()
        for _ in range(2):  # the first finds out
            wait_for(shared.note)
        found = read(shared.feed, 2)
        assert names(found) == names(urls(3, 9))
        assert [each.number for each in found][:2] == [3, 4]
        assert all(each.number > 1_000_000 for each in found[2:])
        (index,) = shared.feed.consumers()
        assert shared.feed.lag_of(index) == 6, "what is left out counts for nothing"


def wait_for(work: Callable[[], None]) -> None:
    """Do *work* when the server answers again."""
    for _ in range(200):
        try:
            work()
        except FAULTS:
            continue
        return
    raise AssertionError("Redis does not answer")


def test_a_full_stream_leaves_entries_in_the_files_until_they_are_taken(
    shared: SharedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with patch.object(shared_changes, "MOST_ENTRIES", 5):
        shared.write(*urls(1, 13))
        shared.note()
        assert [each.number for each in read(shared.feed)] == [1, 2, 3, 4, 5]
        assert shared.sender.unsent == 7 and shared.sender.is_idle
        assert caplog.text.count("and no consumer that takes them") == 1
        shared.sender.log_unsent()
        assert "Not in the change feed of the crawl yet: 7 entries" in caplog.text
        taken = names(read(shared.feed))
        shared.feed.move("index", 0, AT)
        while (position := shared.feed.consumer("index")) and position.taken < 12:
            found = read(shared.feed, position.taken)
            assert len(found) <= 5
            taken += names(found) if position.taken else []
            shared.feed.move("index", found[-1].number, AT)
            shared.note()
    assert taken == names(urls(1, 13)) and shared.sender.unsent == 0


def test_what_was_removed_meanwhile_is_no_silent_gap(shared: SharedWorld) -> None:
    shared.write(*urls(1, 9))
    reader = shared.feed.reader(0).read()
    assert next(reader).number == 1
    shared.feed.move("index", 5, AT)
    assert [next(reader).number, next(reader).number] == [2, 3], "of the page that it has"
    with pytest.raises(DataDirError, match="begins at entry 6: those after 3 were removed"):
        next(reader)
    with pytest.raises(DataDirError, match="begins at entry 6: those after 3 were removed"):
        shared.feed.move("late", 3, AT)
    assert shared.feed.consumer("late") is None


def test_two_workers_are_in_one_feed_each_in_its_order(
    shared: SharedWorld, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("other")
    with closing(ChangeFeed(folder)) as written:
        feed = feed_of(folder, "w2")
        other = ChangeSender(shared.crawl, folder, feed, FeedState(0, 0, []), lambda: written.last)
        for n in range(1, 10, 2):
            shared.write(*urls(n, n + 2))
            written.write(urls(n, n + 2, "b.example"))
            shared.link.command(other.key, *other.call())  # it gets no reply
            while other.note(shared.link.command(other.key, *other.call())):
                pass
    found = read(shared.feed)
    assert [each.number for each in found] == list(range(1, 21))
    for host in ("a.example", "b.example"):
        own = [url for url in names(found) if host in url]
        assert own == names(urls(1, 11, host))


def test_a_feed_that_was_put_back_from_a_copy_goes_on_behind_what_was_sent(
    shared: SharedWorld,
) -> None:
    for each in urls(1, 9):
        shared.write(each)
    for _, file in local_changes.feed_files(shared.folder)[1:]:
        file.unlink()
    assert local_changes.last_number(shared.folder) < 8
    shared.reopen(given=8)
    shared.sender = shared.new_sender(8)
    shared.write(*urls(20, 22))
    assert names(read(shared.feed)) == names([*urls(1, 9), *urls(20, 22)])


def test_another_folder_or_name_is_another_feed(tmp_path: Path) -> None:
    first = feed_of(tmp_path / "a", "w1")
    assert first == feed_of(tmp_path / "a", "w1")
    assert len({first, feed_of(tmp_path / "b", "w1"), feed_of(tmp_path / "a", "w2")}) == 3


def test_what_is_written_while_redis_is_away_is_sent_when_it_is_back(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "redis") as server,
        shared_world(tmp_path / "feed", server) as shared,
    ):
        asyncio.run(send_while_redis_goes_and_comes(shared))
        assert names(read(shared.feed)) == names(urls(1, 9))


async def send_while_redis_goes_and_comes(shared: SharedWorld) -> None:
    nodes = Nodes(Address.parse(shared.server.url), OwnedScripts(), shared.crawl, 1)
    listener = RecordingListener()
    status_log, sender = StatusLog(listener, shared.crawl), shared.sender
    await nodes.open()
    task = asyncio.create_task(send_changes(sender, nodes, status_log))
    try:
        shared.written.write(urls(1, 5))
        await wait_until_async(lambda: not sender.unsent, BOUND_S)
        shared.server.stop()
        shared.written.write(urls(5, 9))
        await wait_until_async(lambda: bool(status_log.wait_warnings.awaited), BOUND_S)
        assert sender.unsent == 4
        shared.server.start()
        await wait_until_async(lambda: not sender.unsent, BOUND_S)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await nodes.close()
    assert not listener.failures
