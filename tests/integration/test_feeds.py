"""URLs pushed into a real Redis while the crawl runs: each reaches the frontier, whichever worker
dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

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
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.worker.feeds import (
    Feed,
    OpenedHosts,
    PushedItem,
)
from tests.harness.pushed_url_workers import RunLoop
from tests.servers.redis import RedisServer

KEY = "web:start_urls"
TAKEN, REFUSED = "{web:start_urls}:taken", "{web:start_urls}:refused"
LEASE_S = 100.0
# Scripts read their time from a key, so that no test waits for a lease to expire.
TIMED_SCRIPTS = Scripts("local function wall() return tonumber(redis.call('GET', 'now') or 0) end")


@pytest.fixture
def nodes(server: RedisServer, client: redis.Redis, run_loop: RunLoop) -> Iterator[Nodes]:
    nodes = Nodes(Address.parse(server.url), OwnedScripts(), "t", 4)
    run_loop(nodes.open())
    yield nodes
    run_loop(nodes.close())


@pytest.fixture
def feed(nodes: Nodes) -> Feed:
    return Feed(nodes, TIMED_SCRIPTS, KEY, "one", LEASE_S)


@pytest.fixture
def other(nodes: Nodes) -> Feed:
    """Of another worker."""
    return Feed(nodes, TIMED_SCRIPTS, KEY, "two", LEASE_S)


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
def test_urls_are_taken_from_a_key_of_any_type(
    client: redis.Redis,
    feed: Feed,
    run_loop: RunLoop,
    push: Callable[[redis.Redis], object],
    order: str,
) -> None:
    push(client)
    assert run_loop(feed.length()) == 3
    items = run_loop(feed.take(2)) + run_loop(feed.take(200))
    assert sorted(texts(items)) == [b"a", b"b", b"c"]
    assert not order or b"".join(texts(items)).decode() == order
    assert not client.exists(KEY) and run_loop(feed.length()) == 3, "taken, not gone"
    run_loop(feed.remove(items))
    assert run_loop(feed.length()) == 0
    assert run_loop(feed.take(200)) == []


@pytest.mark.parametrize(("push", "order"), PUSHES)
def test_scrapy_redis_takes_the_same(
    client: redis.Redis,
    feed: Feed,
    run_loop: RunLoop,
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
    by_us = texts(run_loop(feed.take(200)))
    assert (by_us == by_them) if order else (sorted(by_us) == sorted(by_them))


def test_items_of_a_dead_worker_are_taken_again_after_its_lease(
    client: redis.Redis, feed: Feed, other: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, "a", "b")
    mine = run_loop(feed.take(1))
    client.set("now", LEASE_S - 1)
    assert texts(run_loop(other.take(200))) == [b"b"], "not before"
    client.set("now", LEASE_S)
    theirs = run_loop(other.take(200))
    assert texts(theirs) == [b"a"]
    run_loop(feed.remove(mine))
    assert run_loop(feed.hold(mine)) == [], "the reply: it holds nothing"
    assert run_loop(feed.length()) == 2, "the late one has changed nothing"
    run_loop(feed.refuse([(mine[0], "late")]))
    assert refused(client) == []
    run_loop(other.remove(theirs))
    assert run_loop(feed.length()) == 1


def test_a_batch_stays_with_the_worker_that_holds_it(
    client: redis.Redis, feed: Feed, other: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, "a")
    mine = run_loop(feed.take(1))
    for now in range(0, 500, 60):
        client.set("now", now)
        assert run_loop(feed.hold(mine)) == mine
        assert run_loop(other.take(200)) == []


def test_no_reply_is_longer_than_a_megabyte_and_a_little(
    client: redis.Redis, feed: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, *("x" * 60_000 for _ in range(50)))
    assert len(run_loop(feed.take(200))) == 18
    assert client.llen(KEY) == 32


def test_an_item_that_is_too_long_is_refused_inside_redis(
    client: redis.Redis, feed: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, b"\xff" + b"x" * 70_000, "a")
    assert texts(run_loop(feed.take(200))) == [b"a"]
    assert feed.too_long == 1
    assert refused(client) == [{"why": "longer than 65536 bytes", "item": "?" + "x" * 199}]


def test_refused_items_are_kept_for_a_while(
    client: redis.Redis, feed: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, *range(1100))
    while items := run_loop(feed.take(200)):
        run_loop(feed.refuse([(item, "no good") for item in items]))
    assert run_loop(feed.length()) == 0
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
            id="a foreign hash beside it",
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
def test_foreign_data_is_an_error_and_stays(
    client: redis.Redis,
    feed: Feed,
    run_loop: RunLoop,
    spoil: Callable[[redis.Redis], object],
    text: str,
) -> None:
    spoil(client)
    before = dumped(client)
    item = PushedItem(b"one/0.1", b"x")
    calls = (feed.take(1), feed.length(), feed.hold([item]), feed.refuse([(item, "x")]))
    for call in calls:
        with pytest.raises(ForeignData) as raised:
            run_loop(call)
        assert text in str(raised.value)
    assert dumped(client) == before


def test_opened_hosts_of_another_type_are_an_error(
    client: redis.Redis, nodes: Nodes, run_loop: RunLoop
) -> None:
    client.sadd("t:opened", "a.example")
    opened_hosts = OpenedHosts(nodes, TIMED_SCRIPTS, "t")
    for call in (opened_hosts.open(["b.example"]), opened_hosts.since(0)):
        with pytest.raises(FAULTS):
            run_loop(call)
    assert client.smembers("t:opened") == {b"a.example"}


def test_without_memory_no_items_are_taken_and_taken_ones_continue(
    server: RedisServer, client: redis.Redis, feed: Feed, run_loop: RunLoop
) -> None:
    client.rpush(KEY, "a", "b", "c")
    mine = run_loop(feed.take(2))
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemory):
            run_loop(feed.take(1))
        assert run_loop(feed.hold(mine)) == mine
        run_loop(feed.refuse([(mine[0], "x")]))
        run_loop(feed.remove(mine[1:]))
        assert run_loop(feed.length()) == 1
    finally:
        client.config_set("maxmemory", 0)
    assert texts(run_loop(feed.take(1))) == [b"c"]


def test_opened_hosts_are_read_in_their_order(
    client: redis.Redis, nodes: Nodes, run_loop: RunLoop
) -> None:
    opened_hosts = OpenedHosts(nodes, TIMED_SCRIPTS, "t")
    client.set("now", 1_790_000_000)
    first = run_loop(opened_hosts.open(["b.example", "a.example"]))
    assert first == 1_790_000_000_000_001
    assert [mark.host for mark in run_loop(opened_hosts.since(0))] == ["b.example", "a.example"]
    assert run_loop(opened_hosts.open(["b.example"])) == first - 1, "it is open already"
    client.set("now", 1_780_000_000)  # the server's clock is set back
    second = run_loop(opened_hosts.open(["c.example"]))
    assert run_loop(opened_hosts.since(first)) == [("c.example", second)]
    assert run_loop(opened_hosts.since(second)) == []


def test_a_host_opened_after_a_loss_is_read_as_new(
    client: redis.Redis, nodes: Nodes, run_loop: RunLoop
) -> None:
    """The server loses its last second: a worker that read b.example must still read c.example."""
    opened_hosts = OpenedHosts(nodes, TIMED_SCRIPTS, "t")
    client.set("now", 100)
    run_loop(opened_hosts.open(["a.example"]))
    read = run_loop(opened_hosts.open(["b.example"]))
    client.zrem("t:opened", "b.example")
    client.set("now", 101)
    run_loop(opened_hosts.open(["c.example"]))
    assert [mark.host for mark in run_loop(opened_hosts.since(read))] == ["c.example"]


@pytest.mark.parametrize("key", ["web:start_urls", "{shop}:seeds", "a{b}c"])
def test_all_keys_of_a_feed_are_in_one_slot(key: str) -> None:
    slots = {key_slot(name.encode()) for name in (key, keys.taken(key), keys.refused(key))}
    assert len(slots) == 1
