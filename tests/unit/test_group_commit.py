"""Pages wait for a sync that begins after their record was written; many for the same."""

from __future__ import annotations

import asyncio
import threading

import pytest

from crawler.content.group_commit import MAX_UNSYNCED_BYTES, GroupCommit
from crawler.model.types import StoreUnavailable
from tests.harness.waiting import wait_until_async

LONG_S = 300.0
BOUND_S = 60.0  # of what takes a moment


class Disk:
    """Syncs as long as its gate is open."""

    def __init__(self, every_s: float = LONG_S) -> None:
        self.acts: list[str] = []
        self.failures: list[Exception] = []
        self.gate = threading.Event()
        self.gate.set()
        self.unsynced_bytes = 0
        self.error: StoreUnavailable | None = None
        self.finished = threading.Event()
        self.commits = GroupCommit(
            every_s,
            self._sync_records,
            lambda: self.unsynced_bytes,
            lambda: self.acts.append("verdicts"),
            self.failures.append,
            lambda: self.finished.set(),
        )

    def _sync_records(self) -> None:
        self.acts.append("records")
        assert self.gate.wait(60)
        self.unsynced_bytes = 0
        if self.error is not None:
            raise self.error

    def write(self, name: str) -> None:
        self.commits.when_synced(
            lambda error: self.acts.append(f"{name}: {error}" if error else name)
        )

    async def wait_for(self, act: str) -> None:
        await wait_until_async(lambda: act in self.acts, BOUND_S, act, poll_s=0.001)


def test_all_that_wait_are_finished_after_one_sync_and_their_verdicts_are_synced_too():
    async def scenario() -> None:
        disk = Disk(every_s=0.02)
        disk.write("a")
        disk.write("b")
        await disk.wait_for("verdicts")
        assert disk.acts == ["records", "a", "b", "verdicts"]
        assert disk.finished.is_set(), "the wait for leases ends"

    asyncio.run(scenario())


def test_writes_during_a_sync_wait_for_the_next():
    async def scenario() -> None:
        disk = Disk(every_s=0.02)
        disk.gate.clear()
        disk.write("a")
        await disk.wait_for("records")
        disk.write("b")
        disk.gate.set()
        await disk.wait_for("b")
        assert disk.acts[:5] == ["records", "a", "verdicts", "records", "b"]

    asyncio.run(scenario())


def test_the_lag_is_that_of_the_oldest_page_that_waits():
    async def scenario() -> None:
        disk = Disk(every_s=0.02)
        assert disk.commits.lag_s() == 0.0
        disk.gate.clear()
        disk.write("a")
        lag_s = disk.commits.lag_s()
        await disk.wait_for("records")
        disk.write("b")
        assert disk.commits.lag_s() > lag_s > 0.0, "a page that is being synced waits too"
        disk.gate.set()
        await disk.wait_for("b")
        await disk.commits.close()
        assert disk.commits.lag_s() == 0.0

    asyncio.run(scenario())


def test_closing_and_hurrying_wait_for_no_interval():
    async def scenario() -> None:
        disk = Disk()
        disk.write("a")
        disk.commits.sync_soon()
        await disk.wait_for("verdicts")
        disk.write("b")
        await disk.commits.close()
        assert disk.acts == ["records", "a", "verdicts", "records", "b", "verdicts"]

    asyncio.run(asyncio.wait_for(scenario(), LONG_S / 2))


def test_a_failed_sync_is_reported_to_each_page_and_stops_the_crawl():
    async def scenario() -> None:
        disk = Disk()
        disk.error = StoreUnavailable("no disk")
        disk.write("a")
        disk.write("b")
        await disk.commits.close()
        assert disk.acts == ["records", "a: no disk", "b: no disk", "verdicts"]
        assert disk.failures == [disk.error]

    asyncio.run(scenario())


def test_a_page_that_cannot_be_finished_keeps_no_other_waiting():
    def fail(error: object) -> None:
        raise ValueError("a bug")

    async def scenario() -> None:
        disk = Disk()
        disk.commits.when_synced(fail)
        disk.write("b")
        await disk.commits.close()
        assert disk.acts == ["records", "b", "verdicts"]
        assert "a bug" in str(disk.failures[0])

    asyncio.run(scenario())


def test_records_wait_while_too_many_are_not_synced():
    async def scenario() -> None:
        disk = Disk()
        disk.gate.clear()
        disk.unsynced_bytes = MAX_UNSYNCED_BYTES - 1
        await disk.commits.wait_for_room()  # half of it begins a sync, and does not wait for it
        await disk.wait_for("records")
        disk.unsynced_bytes = MAX_UNSYNCED_BYTES
        waiting = asyncio.create_task(disk.commits.wait_for_room())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        disk.gate.set()
        await waiting

    asyncio.run(asyncio.wait_for(scenario(), LONG_S / 2))


def test_where_the_sync_fails_no_record_waits_for_room():
    async def scenario() -> None:
        disk = Disk(every_s=0.01)
        disk.error = StoreUnavailable("no disk")
        disk.commits._unsynced_bytes = lambda: MAX_UNSYNCED_BYTES
        with pytest.raises(StoreUnavailable, match="no disk"):
            await disk.commits.wait_for_room()

    asyncio.run(scenario())
