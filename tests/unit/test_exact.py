"""Two pages with the same bytes: one is the original, in every order of events."""

from __future__ import annotations

import asyncio

from crawler.duplicates.exact import LocalDuplicates
from crawler.model.types import Claim


class Finished:
    """The claims of pages that were finished."""

    def __init__(self) -> None:
        self.claims: dict[bytes, Claim] = {}

    def claim(self, digest: bytes) -> Claim | None:
        return self.claims.get(digest)


def digests() -> tuple[LocalDuplicates, Finished]:
    store = Finished()
    return LocalDuplicates(store), store


def test_the_first_page_may_claim_and_a_later_one_finds_it():
    async def scenario():
        found, store = digests()
        assert await found.original(b"d", "http://a/1", 1) is None
        store.claims[b"d"] = Claim(b"d", "http://a/1")
        found.release(1)
        original = await found.original(b"d", "http://a/2", 2)
        assert original is not None and original.url == "http://a/1"

    asyncio.run(scenario())


def test_a_page_fetched_again_is_found_stored_if_it_was():
    async def scenario():
        found, store = digests()
        claim = store.claims[b"d"] = Claim(b"d", "http://a/1", "x.warc.gz:1")
        assert await found.original(b"d", "http://a/1", 9) == claim
        store.claims[b"d"] = Claim(b"d", "http://a/1")
        assert await found.original(b"d", "http://a/1", 9) is None

    asyncio.run(scenario())


def test_the_second_in_flight_waits_and_is_the_duplicate_if_the_first_finishes():
    async def scenario():
        found, store = digests()
        await found.original(b"d", "http://a/1", 1)
        second = asyncio.create_task(found.original(b"d", "http://a/2", 2))
        await asyncio.sleep(0)
        assert not second.done(), "undecided as long as the first is in flight"
        store.claims[b"d"] = Claim(b"d", "http://a/1")
        found.release(1)
        assert (await second).url == "http://a/1"

    asyncio.run(scenario())


def test_the_second_in_flight_becomes_the_original_if_the_first_is_given_up():
    async def scenario():
        found, _ = digests()
        await found.original(b"d", "http://a/1", 1)
        second = asyncio.create_task(found.original(b"d", "http://a/2", 2))
        third = asyncio.create_task(found.original(b"d", "http://a/3", 3))
        await asyncio.sleep(0)
        found.release(1)
        assert await second is None
        await asyncio.sleep(0)
        assert not third.done(), "now it waits for the second"
        found.release(2)
        assert await third is None

    asyncio.run(scenario())


def test_settling_what_was_never_reserved_changes_nothing():
    found, _ = digests()
    found.release(99)
