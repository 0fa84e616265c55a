"""Names: what is asked, for how long an answer counts, and which addresses are given out."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from crawler.download.resolver import (
    MAX_TTL_S,
    MIN_TTL_S,
    NEGATIVE_TTL_S,
    PROBED_NAME,
    AresLookup,
    LookupFailed,
    ResolvedName,
    Resolver,
    is_address,
)
from crawler.model.page import AddressRefused
from tests.servers.names import NameServer

PUBLIC, OTHER, INSIDE = "192.0.2.1", "2001:db8::1", "10.0.0.1"


class Book:
    """A name server of the test's own."""

    def __init__(self, **names: ResolvedName) -> None:
        self.names = names
        self.asked: Counter[str] = Counter()
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, name: str) -> ResolvedName:
        self.asked[name] += 1
        await self.open.wait()
        if name not in self.names:
            raise LookupFailed(None, "nobody knows")
        return self.names[name]

    async def close(self) -> None:
        self.open.set()


class Desk:
    """A resolver with a clock that is set by hand."""

    def __init__(self, size: int = 100, **names: ResolvedName) -> None:
        self.now = 1000.0
        self.book = Book(**names)
        self.resolver = Resolver(self.admits, self.book, lambda: self.now, size)
        self.judged: list[tuple[str, str, int]] = []

    def admits(self, ip: str, host: str, port: int) -> bool:
        self.judged.append((ip, host, port))
        return ip != INSIDE


def found(*ips: str, ttl_s: float = 60.0) -> ResolvedName:
    return ResolvedName(ips, ttl_s)


def test_an_answer_is_cached_for_its_ttl() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC, ttl_s=60.0))
        for now, asked in ((0.0, 1), (59.0, 1), (60.0, 2), (119.0, 2), (121.0, 3)):
            desk.now = now
            assert await desk.resolver.addresses("name", 80) == [PUBLIC]
            assert desk.book.asked["name"] == asked

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ttl_s", "counts_s"),
    [
        pytest.param(0.0, MIN_TTL_S, id="an answer for no time at all counts for a moment"),
        pytest.param(1e9, MAX_TTL_S, id="an answer for ever counts for a day"),
    ],
)
def test_the_time_of_an_answer_has_bounds(ttl_s: float, counts_s: float) -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC, ttl_s=ttl_s))
        for now, asked in ((0.0, 1), (counts_s - 1, 1), (counts_s, 2)):
            desk.now = now
            await desk.resolver.addresses("name", 80)
            assert desk.book.asked["name"] == asked

    asyncio.run(scenario())


def test_that_a_name_does_not_exist_is_remembered_for_a_while() -> None:
    async def scenario() -> None:
        desk = Desk(name=found())
        for now, asked in ((0.0, 1), (NEGATIVE_TTL_S - 1, 1), (NEGATIVE_TTL_S, 2)):
            desk.now = now
            with pytest.raises(OSError, match="no address"):
                await desk.resolver.addresses("name", 80)
            assert desk.book.asked["name"] == asked

    asyncio.run(scenario())


def test_no_answer_is_not_remembered() -> None:
    async def scenario() -> None:
        desk = Desk()
        for asked in (1, 2):
            with pytest.raises(LookupFailed):
                await desk.resolver.addresses("name", 80)
            assert desk.book.asked["name"] == asked

    asyncio.run(scenario())


def test_the_least_recently_used_name_is_forgotten() -> None:
    async def scenario() -> None:
        desk = Desk(2, a=found(PUBLIC), b=found(PUBLIC), c=found(PUBLIC))
        for name in ("a", "b", "a", "c", "a", "b"):
            await desk.resolver.addresses(name, 80)
        assert desk.book.asked == {"a": 1, "b": 2, "c": 1}

    asyncio.run(scenario())


def test_concurrent_lookups_of_a_name_are_one_query() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC))
        desk.book.open.clear()
        asking = [asyncio.create_task(desk.resolver.addresses("name", 80)) for _ in range(5)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        desk.book.open.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [[PUBLIC]] * 4
        assert desk.book.asked["name"] == 1

    asyncio.run(scenario())


def test_spellings_of_a_name_are_one() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC))
        for spelling in ("name", "NAME", "name."):
            await desk.resolver.addresses(spelling, 80)
        assert desk.book.asked == {"name": 1}

    asyncio.run(scenario())


def test_only_admitted_addresses_are_given_out() -> None:
    async def scenario() -> None:
        desk = Desk(both=found(INSIDE, PUBLIC, OTHER), inside=found(INSIDE))
        assert await desk.resolver.addresses("both", 80) == [PUBLIC, OTHER]
        with pytest.raises(AddressRefused):
            await desk.resolver.addresses("inside", 80)
        assert (INSIDE, "inside", 80) in desk.judged

    asyncio.run(scenario())


def test_a_name_with_a_new_address_is_checked_again() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC, ttl_s=60.0))
        assert await desk.resolver.addresses("name", 80) == [PUBLIC]
        desk.book.names["name"] = found(INSIDE)
        desk.now += 61.0
        with pytest.raises(AddressRefused):
            await desk.resolver.addresses("name", 80)

    asyncio.run(scenario())


def test_a_literal_address_is_checked_without_a_lookup() -> None:
    async def scenario() -> None:
        desk = Desk()
        assert await desk.resolver.addresses(PUBLIC, 80) == [PUBLIC]
        with pytest.raises(AddressRefused):
            await desk.resolver.addresses(INSIDE, 80)
        with pytest.raises(AddressRefused):
            desk.resolver.check_literal(INSIDE, 80)
        desk.resolver.check_literal("name", 80)
        desk.resolver.check_literal(OTHER, 80)
        assert desk.judged[-1] == (OTHER, OTHER, 80)
        assert not desk.book.asked

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("host", "expect"),
    [
        pytest.param("192.0.2.1", True, id="IPv4"),
        pytest.param("::1", True, id="IPv6"),
        pytest.param("fe80::1%25eth0", True, id="IPv6 with a zone"),
        pytest.param("127.1", False, id="a short form; nothing we use takes it for an address"),
        pytest.param("example.com", False, id="a name"),
        pytest.param("host7", False, id="a name that ends in a digit"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_addresses_are_distinguished_from_names(host: str, expect: bool) -> None:
    assert is_address(host) is expect


def test_answers_of_a_name_server_are_cached_for_its_ttl() -> None:
    async def scenario(server: NameServer) -> None:
        lookup = AresLookup((server.address,))
        both = await lookup("both.example")
        # In the order RFC 6724 gives them on this machine.
        assert (set(both.ips), both.ttl_s) == ({PUBLIC, OTHER}, 77.0)
        assert (await lookup("none.example")).ips == ()
        assert (await lookup("no-such.example")).ips == ()
        assert (await lookup("label" * 20 + ".example")).ips == ()
        await lookup.close()
        assert (await lookup("both.example")).ips, "it opens again"
        await lookup.close()

    records = {"both.example": (PUBLIC, OTHER), "none.example": ()}
    with NameServer(records, ttl_s=77) as server:
        asyncio.run(scenario(server))


def test_names_of_this_machine_need_no_name_server() -> None:
    async def scenario() -> None:
        lookup = AresLookup(("127.0.0.1:1",))
        for name in ("localhost", "sub.localhost"):
            assert "127.0.0.1" in (await lookup(name)).ips
        await lookup.close()

    asyncio.run(scenario())


def test_a_name_server_that_is_silent_is_no_answer() -> None:
    async def scenario() -> None:
        lookup = AresLookup(("127.0.0.1:1",))
        with pytest.raises(LookupFailed):
            await lookup("name.example")
        await lookup.close()

    asyncio.run(scenario())


def test_each_lookup_is_counted_with_its_result_and_time() -> None:
    counted: list[tuple[str, float]] = []
    book = Book(here=ResolvedName((PUBLIC,), 60.0), empty=ResolvedName((), 60.0))
    resolver = Resolver(
        lambda *_: True, book, lambda: 1.0, on_lookup=lambda *each: counted.append(each)
    )

    async def scenario() -> None:
        for name in ("here", "here", "empty", "nowhere"):
            await asyncio.gather(resolver.addresses(name, 80), return_exceptions=True)

    asyncio.run(scenario())
    assert counted == [("found", 0.0), ("absent", 0.0), ("failed", 0.0)], "a cached one is none"


@pytest.mark.parametrize(
    ("names", "reached"),
    [
        ({PROBED_NAME: found(PUBLIC)}, True),
        ({PROBED_NAME: ResolvedName((), NEGATIVE_TTL_S)}, True),
        ({}, False),
    ],
    ids=["the name is known", "they say that there is none", "nobody answers"],
)
def test_whether_the_name_servers_are_reached(names: dict[str, ResolvedName], reached: bool):
    resolver = Desk(**names).resolver
    assert asyncio.run(resolver.reaches_name_servers()) is reached
