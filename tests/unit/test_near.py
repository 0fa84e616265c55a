"""Two pages with nearly the same text: one is the original, in every order of events."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.near import LocalNearDuplicates
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import encode
from crawler.model.page import NearDuplicate
from crawler.model.types import (
    Candidate,
    Claim,
    Done,
    HostKey,
    Moved,
)

FAR = 0x00FF00FF00FF00FF
TEXT = 0x0123456789ABCDEF  # a fingerprint; `TEXT ^ 1` is of nearly the same text


def digest(number: int) -> bytes:
    return sha1(b"%d" % number).digest()


class Crawl:
    """Pages that are finished, as the frontier finishes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = MemoryStore()
        self.index = FingerprintIndex(self.store, path)
        self.pages = LocalNearDuplicates(self.index, self.store, 3)
        self._at = 0.0

    def reopen(self) -> None:
        """Open it again, as after a crash: only the store is as it was."""
        self.index.close()
        self.index = FingerprintIndex(self.store, self.path)
        self.pages = LocalNearDuplicates(self.index, self.store, 3)

    async def ask(self, number: int, simhash: int, url: str = "") -> NearDuplicate | None:
        url = url or f"http://a/{number}"
        return await self.pages.original(simhash, digest(number), url, number)

    def finish(self, number: int, simhash: int | None, url: str = "") -> None:
        self._at += 1
        claim = Claim(digest(number), url or f"http://a/{number}", at=self._at, simhash=simhash)
        changes: dict[bytes, bytes | None] = {keys.DIGEST + claim.digest: encode(claim)}
        if simhash is not None and self.store.get(keys.DIGEST + claim.digest) is None:
            log = keys.print_log(number)
            changes[log] = (self.store.get(log) or b"") + keys.packed_print(simhash)
            changes[keys.page_of_print(simhash, number)] = claim.digest
        self.store.write(changes)
        self.pages.release(number)

    def give_up(self, number: int) -> None:
        self.pages.release(number)

    async def add(self, number: int, simhash: int) -> NearDuplicate | None:
        near = await self.ask(number, simhash)
        self.finish(number, simhash)
        return near


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    made = Crawl(tmp_path)
    yield made
    made.pages.close()


def original(near: NearDuplicate | None) -> tuple[str, int] | None:
    return near and (near.original.url, near.bits)


def test_the_nearest_page_is_found_and_of_those_the_oldest(crawl: Crawl) -> None:
    async def scenario() -> None:
        assert await crawl.add(1, TEXT ^ 0b11) is None
        assert original(await crawl.add(2, TEXT ^ 0b1)) == ("http://a/1", 1)
        assert original(await crawl.add(3, TEXT ^ 0b10)) == ("http://a/1", 1)
        assert original(await crawl.ask(4, TEXT)) == ("http://a/2", 1)
        assert original(await crawl.ask(5, TEXT ^ 0b10)) == ("http://a/3", 0)
        assert await crawl.ask(6, ~TEXT & (1 << 64) - 1) is None

    asyncio.run(scenario())


def test_a_page_is_no_duplicate_of_itself(crawl: Crawl) -> None:
    async def scenario() -> None:
        await crawl.add(1, TEXT)
        assert await crawl.ask(2, TEXT ^ 1, url="http://a/1") is None
        crawl.finish(2, TEXT ^ 1, url="http://a/1")
        await crawl.add(3, TEXT ^ 2)
        assert original(await crawl.ask(4, TEXT, url="http://a/1")) == ("http://a/3", 1)

    asyncio.run(scenario())


def test_the_second_page_waits_and_is_the_duplicate_if_the_first_finishes(crawl: Crawl) -> None:
    async def scenario() -> None:
        assert await crawl.ask(1, TEXT) is None
        second = asyncio.create_task(crawl.ask(2, TEXT ^ 1))
        await asyncio.sleep(0)
        assert not second.done(), "undecided as long as the first is in flight"
        assert await crawl.ask(3, ~TEXT & (1 << 64) - 1) is None, "who is far from it need not wait"
        crawl.finish(1, TEXT)
        assert original(await second) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_the_waiting_page_becomes_the_original_if_the_first_is_given_up(crawl: Crawl) -> None:
    async def scenario() -> None:
        assert await crawl.ask(1, TEXT) is None
        second = asyncio.create_task(crawl.ask(2, TEXT ^ 1))
        third = asyncio.create_task(crawl.ask(3, TEXT ^ 2))
        await asyncio.sleep(0)
        crawl.give_up(1)
        assert await second is None
        await asyncio.sleep(0)
        assert not third.done(), "now it waits for the second"
        crawl.finish(2, TEXT ^ 1)
        assert original(await third) == ("http://a/2", 2)

    asyncio.run(scenario())


def test_a_page_that_is_stored_without_a_fingerprint_is_no_original(crawl: Crawl) -> None:
    async def scenario() -> None:
        await crawl.ask(1, TEXT)
        crawl.finish(1, None)
        assert await crawl.ask(2, TEXT) is None

    asyncio.run(scenario())


def test_a_page_with_the_same_bytes_as_before_is_no_second_entry(crawl: Crawl) -> None:
    async def scenario() -> None:
        for _ in range(10):
            await crawl.add(1, TEXT)
        assert crawl.index.pages(TEXT, 8) == [digest(1)]
        assert crawl.index.near(TEXT, 3) == [(0, TEXT)]

    asyncio.run(scenario())


def test_settling_what_was_never_reserved_changes_nothing(crawl: Crawl) -> None:
    crawl.pages.release(99)


def test_of_pages_in_flight_at_once_one_of_each_text_is_the_original(crawl: Crawl) -> None:
    """A random run: 200 pages of 10 texts, 16 at a time, one in five given up."""
    dice = random.Random(3)
    texts = [dice.getrandbits(64) for _ in range(10)]
    originals: dict[int, list[int]] = {text: [] for text in texts}

    async def fly(number: int, gate: asyncio.Semaphore) -> None:
        async with gate:
            text = dice.choice(texts)
            simhash = text ^ 1 << dice.randrange(64)  # any two of a text differ in 2 bits
            near = await crawl.ask(number, simhash)
            for _ in range(dice.randrange(5)):
                await asyncio.sleep(0)
            if dice.random() < 0.2:
                crawl.give_up(number)
                return
            if near is None:
                originals[text].append(number)
            crawl.finish(number, simhash)

    async def scenario() -> None:
        gate = asyncio.Semaphore(16)
        visits = asyncio.gather(*(fly(number, gate) for number in range(200)))
        await asyncio.wait_for(visits, 60)

    asyncio.run(scenario())
    assert [len(each) for each in originals.values()] == [1] * len(texts)


def test_of_many_pages_with_one_text_the_oldest_is_named(crawl: Crawl) -> None:
    async def scenario() -> None:
        for number in range(1, 40):
            near = await crawl.add(number, TEXT)
            assert original(near) == (None if number == 1 else ("http://a/1", 0))
        assert original(await crawl.ask(99, TEXT ^ 1)) == ("http://a/1", 1)
        crawl.give_up(99)
        assert original(await crawl.ask(100, TEXT, url="http://a/1")) == ("http://a/2", 0)

    asyncio.run(scenario())


def test_after_a_crash_what_was_finished_is_found_and_what_was_not_is_not(crawl: Crawl) -> None:
    async def scenario() -> None:
        for number in range(200):
            await crawl.add(number, TEXT * number % (1 << 64))
        await crawl.ask(500, TEXT ^ FAR)
        crawl.reopen()
        for number in range(200):
            near = await crawl.ask(1000 + number, TEXT * number % (1 << 64))
            assert original(near) == (f"http://a/{number}", 0)
        assert await crawl.ask(2000, TEXT ^ FAR) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "logged"),
    [
        pytest.param(None, TEXT, True, id="a new page is logged"),
        pytest.param(None, None, False, id="one without a fingerprint is not"),
        pytest.param(TEXT, TEXT, False, id="nor one whose bytes are in it"),
    ],
)
def test_the_commit_of_a_page_logs_its_fingerprint(
    tmp_path: Path, before: int | None, after: int | None, logged: bool, moved: bool
) -> None:
    store = MemoryStore()
    if before is not None:
        claim = Claim(digest(1), "http://a/", simhash=before)
        store.write({keys.DIGEST + claim.digest: encode(claim)})
    frontier = open_frontier(tmp_path, FrontierLimits(), 1000.0, store=store)
    page = Candidate(url="http://a/", key=1, host=HostKey("a"), domain="a")
    frontier.add([page], 1000.0)
    lease = frontier.lease(2000.0)[0]
    claim = Claim(digest(1), "http://a/", simhash=after)
    frontier.finish(lease, Moved(page, claim) if moved else Done(claim=claim), 2000.0)
    log = keys.packed_print(TEXT) if logged else None
    assert store.get(keys.print_log(lease.id)) == log
    assert (store.get(keys.page_of_print(TEXT, lease.id)) == digest(1)) == logged
