"""Names: what is asked, and when, for how long an answer counts, and which addresses are given
out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from crawler.download.resolver import (
    AHEAD_S,
    MAX_TTL_S,
    MIN_TTL_S,
    NEGATIVE_TTL_S,
    PREFETCHES,
    PROBED_NAME,
    RECHECK_S,
    STALE_S,
    AresLookup,
    LookedUpAddresses,
    LookupFailed,
    NamePrefetch,
    Resolver,
    is_address,
)
from crawler.frontier.groups import choose_address
from crawler.model.page import AddressRefused, ResolvedName
from crawler.model.types import HostKey
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
        self.used: Counter[str] = Counter()
        self.resolver = Resolver(
            self.admits, self.book, lambda: self.now, size, on_use=self.note_use
        )
        self.judged: list[tuple[str, str, int]] = []

    def note_use(self, event: str) -> None:
        self.used[event] += 1

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


def test_addresses_are_used_for_a_day_longer_while_the_name_servers_do_not_answer() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC, ttl_s=100.0))
        names = desk.book.names
        times = (
            (0.0, True, 1, "waited"),
            (100.0, False, 2, "waited"),  # the first one waits in vain
            (100.0 + RECHECK_S - 1, False, 2, "stale"),
            (100.0 + RECHECK_S, False, 3, "waited"),
            (100.0 + 2 * RECHECK_S, True, 4, "waited"),
            (199.0 + 2 * RECHECK_S, False, 4, "cached"),
            (199.0 + 2 * RECHECK_S + STALE_S, False, 5, "waited"),
        )
        for now, answers, asked, use in times:
            desk.now, desk.used = now, Counter()
            desk.book.names = names if answers else {}
            assert await desk.resolver.addresses("name", 80) == [PUBLIC]
            assert (desk.book.asked["name"], desk.used) == (asked, {use: 1})
        desk.now = 200.0 + 2 * RECHECK_S + STALE_S + RECHECK_S
        with pytest.raises(LookupFailed):
            await desk.resolver.addresses("name", 80)

    asyncio.run(scenario())


def test_addresses_beyond_their_time_are_checked_and_end_with_the_name() -> None:
    async def scenario() -> None:
        desk = Desk(gone=found(PUBLIC), inside=found(INSIDE))
        names = desk.book.names
        await desk.resolver.addresses("gone", 80)
        with pytest.raises(AddressRefused):
            await desk.resolver.addresses("inside", 80)
        desk.now, desk.book.names = 2000.0, {}
        assert await desk.resolver.addresses("gone", 80) == [PUBLIC]
        with pytest.raises(AddressRefused):
            await desk.resolver.addresses("inside", 80)
        desk.now, desk.book.names = 3000.0, {**names, "gone": found()}
        for _ in range(2):  # the second time it is known
            with pytest.raises(OSError, match="no address for gone"):
                await desk.resolver.addresses("gone", 80)
        desk.now, desk.book.names = 4000.0, {}
        with pytest.raises(LookupFailed):
            await desk.resolver.addresses("gone", 80)

    asyncio.run(scenario())


def test_the_least_recently_used_name_is_forgotten() -> None:
    async def scenario() -> None:
        desk = Desk(2, a=found(PUBLIC), b=found(PUBLIC), c=found(PUBLIC))
        for name in ("a", "b", "a", "c", "a", "b"):
            await desk.resolver.addresses(name, 80)
        assert desk.book.asked == {"a": 1, "b": 2, "c": 1}
        assert desk.used == {"waited": 4, "cached": 2, "evicted": 2}

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


def test_what_c_ares_keeps_is_bounded() -> None:
    names = [f"name{number}.example" for number in range(5)]

    async def scenario(server: NameServer) -> None:
        lookup = AresLookup((server.address,), renewed_after=2)
        server.holds = True
        asked = [asyncio.create_task(lookup(name)) for name in names]
        await until(lambda: len(server.asked) == len(names))
        server.holds = False
        assert [found.ips for found in await asyncio.gather(*asked)] == [(PUBLIC,)] * len(names)
        await lookup(names[4])
        assert server.asked[names[4]] == 2, "c-ares had it"
        await lookup(names[4])
        assert server.asked[names[4]] == 4, "and has it no longer"
        await lookup.close()

    with NameServer(dict.fromkeys(names, (PUBLIC,))) as server:
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


def test_stale_addresses_serve_when_a_name_server_fails() -> None:
    now = 0.0

    async def scenario(server: NameServer) -> None:
        nonlocal now
        lookup = AresLookup((server.address,))
        resolver = Resolver(lambda *_: True, lookup, lambda: now)
        assert await resolver.addresses("name.example", 80) == [PUBLIC]
        now, server.fails, before = MIN_TTL_S, True, server.asked["name.example"]
        assert await resolver.addresses("name.example", 80) == [PUBLIC]
        assert server.asked["name.example"] > before
        with pytest.raises(LookupFailed):
            await resolver.addresses("other.example", 80)
        await resolver.close()

    records = dict.fromkeys(("name.example", "other.example"), (PUBLIC,))
    with NameServer(records, ttl_s=0) as server:  # or c-ares had the answer
        asyncio.run(scenario(server))


class Ahead:
    """The names that come next, as the test sets them."""

    def __init__(self, resolver: Resolver, *names: str) -> None:
        self.names = names
        self.looks = 0
        self.prefetch = NamePrefetch(resolver, self.upcoming)

    def upcoming(self, within_s: float) -> tuple[str, ...]:
        assert within_s == AHEAD_S
        self.looks += 1
        return self.names


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not is_met():
            await asyncio.sleep(0.001)


def test_names_are_looked_up_before_they_are_needed() -> None:
    async def scenario() -> None:
        desk = Desk(a=found(PUBLIC), b=found(PUBLIC), gone=found())
        ahead = Ahead(desk.resolver, "a", "B.", "a", "gone", "silent", PUBLIC, "[::1]")
        ahead.prefetch.note_request(by_proxy=False)
        await until(lambda: desk.used["prefetched"] == 4)
        assert await desk.resolver.addresses("a", 80) == [PUBLIC]
        assert await desk.resolver.addresses("b", 80) == [PUBLIC]
        with pytest.raises(OSError, match="no address"):
            await desk.resolver.addresses("gone", 80)
        assert desk.used == {"prefetched": 4, "cached": 3}
        await until(lambda: ahead.looks == 2)
        await asyncio.sleep(0)
        assert desk.book.asked == {"a": 1, "b": 1, "gone": 1, "silent": 1}, "all are known now"
        with pytest.raises(LookupFailed):
            await desk.resolver.addresses("silent", 80)
        assert desk.book.asked["silent"] == 2, "a fetch has a try of its own"
        ahead.prefetch.end()

    asyncio.run(scenario())


def test_a_look_ahead_joins_a_look_up_under_way() -> None:
    async def scenario() -> None:
        desk, ended = Desk(name=found(PUBLIC)), asyncio.Event()
        desk.book.open.clear()
        asking = asyncio.create_task(desk.resolver.addresses("name", 80))
        await asyncio.sleep(0)
        assert not desk.resolver.needs_lookup("name", AHEAD_S)
        desk.resolver.prefetch("name", ended.set)
        desk.book.open.set()
        await ended.wait()
        assert await asking == [PUBLIC]
        assert desk.book.asked == {"name": 1}

    asyncio.run(scenario())


def test_a_name_is_looked_up_again_before_its_time_is_over() -> None:
    async def scenario() -> None:
        desk = Desk(name=found(PUBLIC, ttl_s=100.0))
        await desk.resolver.addresses("name", 80)
        for now, needs in ((1099.0 - AHEAD_S, False), (1100.0 - AHEAD_S, True)):
            desk.now = now
            assert desk.resolver.needs_lookup("name", AHEAD_S) is needs

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [False, True], ids=["later", "from the start"])
def test_nothing_is_looked_up_ahead_once_a_proxy_does_it(first: bool) -> None:
    async def scenario() -> None:
        desk = Desk(a=found(PUBLIC), b=found(PUBLIC))
        ahead = Ahead(desk.resolver, "a")
        if not first:
            ahead.prefetch.note_request(by_proxy=False)
            await until(lambda: bool(ahead.looks))
        ahead.prefetch.note_request(by_proxy=True)
        looks, ahead.names = ahead.looks, ("b",)
        ahead.prefetch.note_request(by_proxy=False)
        await asyncio.sleep(0.01)
        assert ahead.looks == looks
        assert not desk.book.asked["b"]

    asyncio.run(scenario())


def test_two_hundred_names_are_looked_up_at_once_and_no_more() -> None:
    names = [f"name{number}.example" for number in range(PREFETCHES + 50)]

    async def scenario(server: NameServer) -> None:
        resolver = Resolver(lambda *_: True, AresLookup((server.address,)))
        ahead = Ahead(resolver, *names)
        server.holds = True
        ahead.prefetch.note_request(by_proxy=False)
        await until(lambda: len(server.asked) == PREFETCHES)
        await asyncio.sleep(0.01)
        assert len(server.asked) == PREFETCHES == 200
        server.holds = False
        await until(lambda: not any(resolver.needs_lookup(name, 0.0) for name in names))
        found = await asyncio.gather(*(resolver.addresses(name, 80) for name in names))
        assert found == [[PUBLIC]] * len(names)
        assert set(server.asked.values()) == {2}, "for IPv4 and for IPv6"
        ahead.prefetch.end()
        await resolver.close()

    with NameServer(dict.fromkeys(names, (PUBLIC,))) as server:
        asyncio.run(scenario(server))


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


def test_the_addresses_of_a_host_are_known_before_its_turn() -> None:
    async def scenario() -> None:
        six, four = "2606:2800:220:1::1", "93.184.216.34"
        desk = Desk(both=found(six, INSIDE, four, ttl_s=60.0), inside=found(INSIDE), gone=found())
        known: list[str] = []
        prefetch = NamePrefetch(desk.resolver, lambda _: ())
        addresses = LookedUpAddresses(desk.resolver, prefetch, known.append)
        hosts = ["both", "inside", "gone", "fails"]
        for host in hosts * 2:
            assert addresses.addresses(HostKey(host)) is None, "it is looked up"
        while len(known) < len(hosts):
            await asyncio.sleep(0)
        assert desk.book.asked.total() == len(hosts), "each once"
        assert addresses.addresses(HostKey("both")) == (six, four), "the public ones"
        assert addresses.addresses(HostKey("inside")) == (INSIDE,), "refused where it is used"
        assert addresses.addresses(HostKey("gone")) == ()
        assert addresses.addresses(HostKey("fails")) == (), "its fetch asks once more"
        assert addresses.addresses(HostKey(f"[{six}]")) == (six,)
        desk.now += 61.0
        assert addresses.addresses(HostKey("both")) is None, "its time is over"
        prefetch.end()  # a request went through a proxy
        assert addresses.addresses(HostKey("other")) == ()

    asyncio.run(scenario())


def test_an_inside_address_planted_in_redis_stops_no_host_whose_address_is_chosen() -> None:
    class Planted:
        async def find(self, name: str) -> ResolvedName:
            return ResolvedName(("10.0.0.1",), 300.0)

        def add(self, name: str, found: ResolvedName) -> None: ...

        def close(self) -> None: ...

    async def lookup(name: str) -> ResolvedName:
        return ResolvedName(("192.0.2.1",), 300.0)

    async def look() -> None:
        resolver = Resolver(lambda ip, host, port: ip != "10.0.0.1", lookup, shared=Planted())
        known = asyncio.Event()
        resolver.prefetch("www.example.com", known.set)
        await asyncio.wait_for(known.wait(), 5)
        found = resolver.known("www.example.com")
        if found is not None:  # None: it is looked up again
            resolver.check_known(choose_address(found, ""), "www.example.com", 80)

    asyncio.run(look())
