"""URLs pushed into a real Redis while the crawl runs: each reaches the frontier, whichever worker
dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis
from redis.crc import key_slot
from scrapy_redis.spiders import RedisMixin

from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.faults import (
    FAULTS,
    ForeignData,
    OutOfMemory,
)
from crawler.shared.keys import Scripts
from crawler.shared.worker.feeds import (
    Feed,
    OpenedHosts,
    PushedItem,
)
from tests.servers.redis import RedisServer

KEY = "web:start_urls"
TAKEN, REFUSED = "{web:start_urls}:taken", "{web:start_urls}:refused"
LEASE_S = 100.0
# Scripts read their time from a key, so that nobody has to wait for a lease to end.
TOLD = Scripts("local function wall() return tonumber(redis.call('GET', 'now') or 0) end")

Turn = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def turn() -> Iterator[Turn]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def nodes(server: RedisServer, client: redis.Redis, turn: Turn) -> Iterator[Nodes]:
    nodes = Nodes(Address.parse(server.url), Scripts(), "t", 4, (30, LEASE_S, keys.SCHEMA))
    turn(nodes.open())
    yield nodes
    turn(nodes.close())


@pytest.fixture
def feed(nodes: Nodes) -> Feed:
    return Feed(nodes, TOLD, KEY, "one", LEASE_S)


@pytest.fixture
def other(nodes: Nodes) -> Feed:
    """Of another worker."""
    return Feed(nodes, TOLD, KEY, "two", LEASE_S)


def texts(items: list[PushedItem]) -> list[bytes]:
    return [item.text for item in items]


def refused(client: redis.Redis) -> list[dict[str, str]]:
    return [json.loads(entry) for entry in client.lrange(REFUSED, 0, -1)]


def dumped(client: redis.Redis) -> dict[bytes, bytes]:
    return {key: client.dump(key) for key in client.scan_iter()}


PUSHES = [
    pytest.param(lambda client: client.rpush(KEY, "a", "b", "c"), "abc", id="list: oldest first"),
    pytest.param(lambda client: client.sadd(KEY, "a", "b", "c"), "", id="set: in any order"),
    pytest.param(
        lambda client: client.zadd(KEY, {"b": 2, "c": 1, "a": 3}), "abc", id="zset: highest first"
    ),
]


@pytest.mark.parametrize(("push", "order"), PUSHES)
def test_it_is_taken_whatever_its_type(
    client: redis.Redis,
    feed: Feed,
    turn: Turn,
    push: Callable[[redis.Redis], object],
    order: str,
) -> None:
    push(client)
    assert turn(feed.length()) == 3
    items = turn(feed.take(2)) + turn(feed.take(200))
    assert sorted(texts(items)) == [b"a", b"b", b"c"]
    assert not order or b"".join(texts(items)).decode() == order
    assert not client.exists(KEY) and turn(feed.length()) == 3, "taken, not gone"
    turn(feed.remove(items))
    assert turn(feed.length()) == 0
    assert turn(feed.take(200)) == []


@pytest.mark.parametrize(("push", "order"), PUSHES)
def test_scrapy_redis_takes_the_same(
    client: redis.Redis,
    feed: Feed,
    turn: Turn,
    push: Callable[[redis.Redis], object],
    order: str,
) -> None:
    """Of scrapy-redis' own spider, on the same key."""
    theirs = RedisMixin()
    theirs.server = client
    pops = {
        b"list": theirs.pop_list_queue,
        b"zset": theirs.pop_priority_queue,
        b"set": client.spop,
    }
    push(client)
    by_them = pops[client.type(KEY)](KEY, 200)
    push(client)
    by_us = texts(turn(feed.take(200)))
    assert (by_us == by_them) if order else (sorted(by_us) == sorted(by_them))


def test_what_a_dead_worker_took_is_taken_again_after_its_lease(
    client: redis.Redis, feed: Feed, other: Feed, turn: Turn
) -> None:
    client.rpush(KEY, "a", "b")
    mine = turn(feed.take(1))
    client.set("now", LEASE_S - 1)
    assert texts(turn(other.take(200))) == [b"b"], "not before"
    client.set("now", LEASE_S)
    theirs = turn(other.take(200))
    assert texts(theirs) == [b"a"]
    turn(feed.remove(mine))
    assert turn(feed.hold(mine)) == [], "it was told so"
    assert turn(feed.length()) == 2, "the late one has changed nothing"
    turn(feed.refuse([(mine[0], "late")]))
    assert refused(client) == []
    turn(other.remove(theirs))
    assert turn(feed.length()) == 1


def test_a_batch_stays_with_the_worker_that_holds_it(
    client: redis.Redis, feed: Feed, other: Feed, turn: Turn
) -> None:
    client.rpush(KEY, "a")
    mine = turn(feed.take(1))
    for now in range(0, 500, 60):
        client.set("now", now)
        assert turn(feed.hold(mine)) == mine
        assert turn(other.take(200)) == []


def test_no_reply_is_longer_than_a_megabyte_and_a_little(
    client: redis.Redis, feed: Feed, turn: Turn
) -> None:
    client.rpush(KEY, *("x" * 60_000 for _ in range(50)))
    assert len(turn(feed.take(200))) == 18
    assert client.llen(KEY) == 32


def test_what_is_too_long_is_refused_where_it_is(
    client: redis.Redis, feed: Feed, turn: Turn
) -> None:
    client.rpush(KEY, b"\xff" + b"x" * 70_000, "a")
    assert texts(turn(feed.take(200))) == [b"a"]
    assert feed.too_long == 1
    assert refused(client) == [{"why": "longer than 65536 bytes", "item": "?" + "x" * 199}]


def test_what_is_refused_is_kept_for_a_while(client: redis.Redis, feed: Feed, turn: Turn) -> None:
    client.rpush(KEY, *range(1100))
    while items := turn(feed.take(200)):
        turn(feed.refuse([(item, "no good") for item in items]))
    assert turn(feed.length()) == 0
    assert refused(client) == [
        {"why": "no good", "item": str(number)} for number in range(1099, 99, -1)
    ]


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        pytest.param(
            lambda client: client.set(KEY, "x"),
            "the key web:start_urls is a string; URLs are pushed to a list, a set or a zset",
            id="a text where URLs are pushed",
        ),
        pytest.param(
            lambda client: client.rpush(TAKEN, "x"),
            "the key {web:start_urls}:taken is there already, a list",
            id="another type beside it",
        ),
        pytest.param(
            lambda client: client.hset(TAKEN, "name", "value"),
            "the key {web:start_urls}:taken is there already, a hash that this version",
            id="somebody's hash beside it",
        ),
        pytest.param(
            lambda client: client.hset(TAKEN, "schema", "2"),
            "the key {web:start_urls}:taken is there already, a hash that this version",
            id="of another version",
        ),
        pytest.param(
            lambda client: client.set(REFUSED, "x"),
            "the key {web:start_urls}:refused is a string, not a list",
            id="a text where the refused are kept",
        ),
    ],
)
def test_what_is_not_ours_is_an_error_and_stays(
    client: redis.Redis,
    feed: Feed,
    turn: Turn,
    spoil: Callable[[redis.Redis], object],
    text: str,
) -> None:
    spoil(client)
    before = dumped(client)
    item = PushedItem(b"one/0.1", b"x")
    calls = (feed.take(1), feed.length(), feed.hold([item]), feed.refuse([(item, "x")]))
    for call in calls:
        with pytest.raises(ForeignData) as told:
            turn(call)
        assert text in str(told.value)
    assert dumped(client) == before


def test_doors_of_another_type_are_an_error(client: redis.Redis, nodes: Nodes, turn: Turn) -> None:
    client.sadd("t:doors", "a.example")
    doors = OpenedHosts(nodes, TOLD, "t")
    for call in (doors.open(["b.example"]), doors.since(0)):
        with pytest.raises(FAULTS):
            turn(call)
    assert client.smembers("t:doors") == {b"a.example"}


def test_without_memory_nothing_is_taken_and_what_is_taken_goes_on(
    server: RedisServer, client: redis.Redis, feed: Feed, turn: Turn
) -> None:
    client.rpush(KEY, "a", "b", "c")
    mine = turn(feed.take(2))
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemory):
            turn(feed.take(1))
        assert turn(feed.hold(mine)) == mine
        turn(feed.refuse([(mine[0], "x")]))
        turn(feed.remove(mine[1:]))
        assert turn(feed.length()) == 1
    finally:
        client.config_set("maxmemory", 0)
    assert texts(turn(feed.take(1))) == [b"c"]


def test_doors_are_read_in_the_order_in_which_they_were_opened(
    client: redis.Redis, nodes: Nodes, turn: Turn
) -> None:
    doors = OpenedHosts(nodes, TOLD, "t")
    client.set("now", 1_790_000_000)
    first = turn(doors.open(["b.example", "a.example"]))
    assert first == 1_790_000_000_000_001
    assert [mark.host for mark in turn(doors.since(0))] == ["b.example", "a.example"]
    assert turn(doors.open(["b.example"])) == first - 1, "it is open already"
    client.set("now", 1_780_000_000)  # the server's clock is set back
    second = turn(doors.open(["c.example"]))
    assert turn(doors.since(first)) == [("c.example", second)]
    assert turn(doors.since(second)) == []


def test_a_door_opened_after_a_loss_is_behind_all_that_was_read(
    client: redis.Redis, nodes: Nodes, turn: Turn
) -> None:
    """The server loses its last second: who has read b.example must not miss c.example."""
    doors = OpenedHosts(nodes, TOLD, "t")
    client.set("now", 100)
    turn(doors.open(["a.example"]))
    read = turn(doors.open(["b.example"]))
    client.zrem("t:doors", "b.example")
    client.set("now", 101)
    turn(doors.open(["c.example"]))
    assert [mark.host for mark in turn(doors.since(read))] == ["c.example"]


@pytest.mark.parametrize("key", ["web:start_urls", "{shop}:seeds", "a{b}c"])
def test_all_keys_of_a_feed_are_in_one_slot(key: str) -> None:
    slots = {key_slot(name.encode()) for name in (key, keys.taken(key), keys.refused(key))}
    assert len(slots) == 1
