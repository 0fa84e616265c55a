"""The guarantees of the shared frontier alone: sessions that expire, servers that restart, exact
sets in few bytes. Over a real redis-server whose time is given by the test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
import redis
from xxhash import xxh3_64_intdigest

from crawler.model.types import (
    Candidate,
    Claim,
    ConfigError,
    Done,
    HostKey,
    Lease,
    Pace,
    PutBack,
    Rest,
    RetryAt,
    Standing,
)
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.shard import (
    MAX_SHARDS,
    FinishedLease,
    ReleasedLease,
    ShardOperations,
    read_added,
    read_held,
    read_ids,
    read_leases,
    shard_of,
    shard_of_lease,
)
from tests.harness.frontiers import TIGHT, candidate, drain, rest
from tests.harness.redis_world import NAME, SHARDS, RedisWorld, TimedFrontier, TimedLink
from tests.servers.redis import RedisServer, used_memory

LEASE_S = 60.0


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def world(client: redis.Redis) -> RedisWorld:
    world = RedisWorld(client)
    world.reopen(0.0)
    return world


def worker(world: RedisWorld, name: str, now: float = 0.0) -> TimedFrontier:
    """Return a worker whose session expires unless it renews it."""
    return TimedFrontier(
        TimedLink(world.client), ShardOperations(name, SHARDS, world.limits, LEASE_S), None, now
    )


def link(world: RedisWorld, now: float) -> TimedLink:
    timed_link = TimedLink(world.client)
    timed_link.set_time(now)
    return timed_link


def test_leases_of_a_silent_worker_are_returned(world):
    dead, other = worker(world, "dead"), worker(world, "other")
    dead.add([candidate("x"), candidate("y")], 0.0)
    (lost,) = dead.lease(0.0)
    assert drain(other, LEASE_S - 0.1) == []
    world.check(other)
    assert drain(other, LEASE_S) == [], "its host rests as long as the fetch can have taken"
    (again,) = drain(other, LEASE_S + TIGHT.min_gap_s)
    assert again.candidate == msgspec.structs.replace(lost.candidate, may_be_archived=True), (
        "at the head"
    )
    assert not dead.release(lost, rest(0), LEASE_S + 3)
    assert not dead.finish(lost, Done(), LEASE_S + 3)
    world.check(other)
    assert other.finish(again, Done(), LEASE_S + 3)


@pytest.mark.parametrize(
    ("archived", "lost"),
    [
        pytest.param(None, {"x": True, "y": True}, id="the archive was not searched"),
        pytest.param([], {"x": False, "y": False}, id="nothing of it is archived"),
        pytest.param(["y"], {"x": False, "y": True}, id="one answer is"),
    ],
)
def test_a_url_whose_lease_was_lost_is_marked_as_possibly_archived(world, archived, lost):
    dead, beside = worker(world, "dead"), worker(world, "beside")
    dead.add([candidate(name, host=name) for name in "xy"], 0.0)
    open_ = {lease.candidate.host: lease for lease in dead.lease(0.0, 2)}
    beside.add([candidate("z", host="z")], 0.0)
    assert len(beside.lease(0.0)) == 1
    return_dead_leases(
        world, LEASE_S + 1, [open_[name] for name in archived] if archived else archived
    )
    last = worker(world, "w")
    returned = [*drain(last, LEASE_S + 9), *drain(last, LEASE_S + 19)]
    found = {one.candidate.host: one.candidate.may_be_archived for one in returned}
    assert found == {**lost, "z": True}, "the archive of the other worker was not searched"


def return_dead_leases(world: RedisWorld, now: float, archived: list[Lease] | None) -> None:
    """Return the leases of `dead` as far as possible at once: two of three sessions expire at the
    same time."""
    ops, timed_link = ShardOperations("next", SHARDS, world.limits, LEASE_S), link(world, now)
    for shard in range(SHARDS):
        numbers = None
        if archived is not None:
            numbers = [one.id // MAX_SHARDS for one in archived if shard_of_lease(one) == shard]
        while timed_link.run([ops.return_leases(shard, "dead", numbers)])[0][1]:
            pass


@pytest.mark.parametrize(
    ("verdict", "is_lost"),
    [
        pytest.param(RetryAt(0.0), True, id="tried again"),
        pytest.param(PutBack(), True, id="put back"),
        pytest.param(Done(1.0), False, id="visited again"),
    ],
)
def test_a_url_stays_possibly_archived_until_it_is_finished(world, verdict, is_lost):
    dead = worker(world, "dead")
    dead.add([candidate("x")], 0.0)
    dead.lease(0.0)
    return_dead_leases(world, 1.0, None)
    other = worker(world, "other", 9.0)
    (again,) = drain(other, 9.0)
    other.release(again, rest(0), 9.0)
    other.finish(again, verdict, 9.0)
    (again,) = drain(other, 19.0)
    assert again.candidate.may_be_archived == is_lost


def test_an_expired_session_is_refused_before_its_leases_are_returned(world):
    slow = worker(world, "slow")
    slow.add([candidate("x")], 0.0)
    (lease,) = slow.lease(0.0)
    assert not slow.release(lease, rest(0), LEASE_S)
    assert not slow.finish(lease, Done(), LEASE_S)
    assert slow.counts().leased == 1, "nothing was changed"


def test_a_heartbeat_keeps_all_leases_of_a_worker(world):
    slow, other = worker(world, "slow"), worker(world, "other")
    slow.add([candidate("x"), candidate("x", host="b")], 0.0)
    leases = drain(slow, 0.0)
    for now in (40.0, 80.0, 120.0):
        link(world, now)
        slow.renew(leases, now)
        assert drain(other, now) == []
    assert all(slow.finish(lease, Done(), 170.0) for lease in leases)


def test_a_worker_that_lost_its_leases_gets_an_answer_and_may_continue(world):
    ops = ShardOperations("slow", SHARDS, TIGHT, LEASE_S)
    shard = shard_of("a", SHARDS)
    timed_link = link(world, 0.0)
    timed_link.run(ops.add([candidate(name) for name in "xyz"], 0.0))
    (reply,) = timed_link.run([ops.lease(shard, {Standing.NEW: 1})])
    assert len(read_leases(reply, shard).leases) == 1
    timed_link.set_time(LEASE_S + 1)
    (reply,) = timed_link.run([ops.lease(shard, {Standing.NEW: 1})])
    leased = read_leases(reply, shard)
    assert leased.has_expired
    assert leased.leases == []
    timed_link.set_time(LEASE_S + 100)
    (reply,) = timed_link.run([ops.lease(shard, {Standing.NEW: 1})])
    leased = read_leases(reply, shard)
    assert not leased.has_expired
    assert [lease.candidate.url for lease in leased.leases] == ["http://a/x"]


def test_a_heartbeat_reports_once_that_all_leases_were_returned(world):
    slow, other = worker(world, "slow"), worker(world, "other")
    slow.add([candidate("x")], 0.0)
    (lease,) = slow.lease(0.0)
    assert drain(other, LEASE_S + 10) == [], "it has come back, and its host rests"
    (again,) = drain(other, LEASE_S + 20)
    other.finish(again, Done(), LEASE_S + 20)
    ops = ShardOperations("slow", SHARDS, TIGHT, LEASE_S)
    timed_link = link(world, LEASE_S + 20)
    beats = [timed_link.run([ops.renew_leases(shard_of("a", SHARDS))])[0][1:] for _ in range(2)]
    assert beats == [[1, 0], [0, 0]]
    assert not slow.finish(lease, Done(), LEASE_S + 20)


def test_the_leases_of_a_big_dead_session_are_returned_in_slices(world):
    dead, other = worker(world, "dead"), worker(world, "other")
    dead.add([candidate("x", host=f"h{n}") for n in range(50)], 0.0)
    assert len(drain(dead, 0.0)) == 50
    other.lease(LEASE_S)
    assert other.counts().leased >= 50 - SHARDS * TIGHT.due_slice, "a call is bounded"
    back = [one for seconds in range(60) for one in drain(other, LEASE_S + seconds)]
    assert len({one.candidate.url for one in back}) == len(back) == 50
    world.check(other)


def test_orphans_are_known_and_can_be_handed_back(world):
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    shard = shard_of("a", SHARDS)
    timed_link = link(world, 0.0)
    timed_link.run(ops.add([candidate("x")], 0.0))
    (reply,) = timed_link.run([ops.lease(shard, {Standing.NEW: 1})])
    (orphan,) = read_leases(reply, shard).leases
    (reply,) = timed_link.run([ops.list_leases(shard)])
    assert read_ids(reply, shard) == {orphan.id}
    (reply,) = timed_link.run([ops.put_back_unused(shard, [orphan.id])])
    assert read_held(reply) == [True]
    (again,) = drain(worker(world, "w"), TIGHT.min_gap_s)
    assert again.candidate == orphan.candidate


def restarted(timed_link: TimedLink, run_id: str = "b" * 40, quiet_s: float = 30.0) -> None:
    """Open each shard as the first worker does after a restart of the server."""
    opening = (run_id, quiet_s, LEASE_S, keys.SCHEMA)
    timed_link.run([Call(shard, "open", opening) for shard in range(SHARDS)])


def test_a_server_started_again_leases_nothing_until_all_fetches_are_over(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    restarted(link(world, 10.0))
    assert drain(frontier, 39.9) == []
    assert frontier.wake_at() == pytest.approx(40.0)
    assert len(drain(frontier, 40.0)) == 1


def test_a_second_opening_of_the_same_run_changes_nothing(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    restarted(link(world, 10.0))
    restarted(link(world, 35.0))
    assert len(drain(frontier, 40.0)) == 1


def test_after_a_restart_no_number_of_a_lease_that_may_be_lost_is_used_again(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("x", host="b")], 0.0)
    before = drain(frontier, 0.0)
    restarted(link(world, 1.0))
    frontier.add([candidate("y", host="c")], 1.0)
    (lease,) = drain(frontier, 31.0)
    assert lease.id - max(one.id for one in before) > 1_000_000


def test_a_restart_gives_every_session_its_time_to_return(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    (lease,) = drain(frontier, 0.0)
    restarted(link(world, 1000.0))
    assert frontier.finish(lease, Done(), 1000.0 + LEASE_S - 1)


def test_a_repeated_rest_is_never_shorter(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(10), 0.0)
    frontier.finish(lease, Done(), 0.0)
    timed_link = link(world, 1.0)
    shard = shard_of("a", SHARDS)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    for seconds in (50.0, 5.0):
        timed_link.run([ops.rest(shard, [ReleasedLease(lease, Rest(seconds, Pace(seconds)), 1.0)])])
        world.check(frontier)
    assert drain(frontier, 49.9) == []
    (lease,) = drain(frontier, 50.0)
    assert lease.pace.gap_s == 50.0


def test_a_repeated_rest_holds_a_host_that_was_already_due(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    forgotten = Lease(0, candidate("z"), Pace(), 0.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    link(world, 0.0).run([ops.rest(shard_of("a", SHARDS), [ReleasedLease(forgotten, rest(7))])])
    assert drain(frontier, 6.9) == []
    assert len(drain(frontier, 7.0)) == 1


def test_a_clock_set_back_neither_shortens_a_rest_nor_stops_time(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("y")], 1000.0)
    (lease,) = frontier.lease(1000.0)
    frontier.release(lease, rest(10), 1000.0)
    frontier.finish(lease, Done(), 1000.0)
    assert drain(frontier, 500.0) == []
    assert drain(frontier, 509.9) == []
    assert len(drain(frontier, 510.0)) == 1


def test_a_poll_that_finds_nothing_writes_nothing(world, client):
    """Each worker polls each shard four times a second: 16 kB/s of append-only file for each."""
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(10), 0.0)
    timed_link = link(world, 5.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    polls = [ops.lease(shard, {Standing.NEW: 1}) for shard in range(SHARDS)]
    timed_link.run(polls)
    before = changes(client)
    for _ in range(3):
        assert all(read_leases(reply, 0).leases == [] for reply in timed_link.run(polls))
    assert changes(client) == before


def changes(client: redis.Redis) -> int:
    """How often anything was written since the server started."""
    return int(client.info("persistence")["rdb_changes_since_last_save"])


def test_what_a_release_reports_late_counts_from_the_end_of_the_fetch(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    timed_link = link(world, 6.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    shard = shard_of("a", SHARDS)
    timed_link.run([ops.release(shard, [ReleasedLease(lease, rest(10), age_s=4.0)])])
    timed_link.run([ops.finish(shard, [FinishedLease(lease, Done())], 6.0)])
    frontier = worker(world, "w", 6.0)
    assert drain(frontier, 11.9) == []
    assert len(drain(frontier, 12.0)) == 1


def test_retries_in_the_past_wait_at_once(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, RetryAt(-5.0), 0.0)
    (again,) = drain(frontier, 0.0)
    assert again.candidate.attempts == 1


def test_the_first_claim_on_a_digest_stands_and_frees_its_reservation(world):
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    timed_link = link(world, 0.0)
    assert timed_link.run([ops.reserve(b"d", 1, 60.0)])[0][1] == b"yours"
    assert timed_link.run([ops.reserve(b"d", 1, 60.0)])[0][1] == b"yours", "asked again by the same"
    assert timed_link.run([ops.reserve(b"d", 2, 60.0)])[0][1] == b"wait"
    timed_link.run([ops.claim(b"d", 1, Claim(b"d", "http://a/1"))])
    timed_link.run([ops.claim(b"d", 2, Claim(b"d", "http://a/2"))])
    assert timed_link.run([ops.reserve(b"d", 2, 60.0)])[0][1] == b"claimed"
    assert world.claim(b"d").url == "http://a/1"


def many(number: int, hosts: int = 100) -> list[Candidate]:
    """URLs of 90 characters."""
    found = []
    for n in range(number):
        host = f"www.host{n % hosts:05}.example"
        url = f"https://{host}/{n:0>{81 - len(host)}}"
        key = xxh3_64_intdigest(url.encode())
        found.append(Candidate(url=url, key=key, host=HostKey(host), domain=host))
    assert len(found[0].url) == 90
    return found


def test_seen_is_exact_and_stays_in_small_integer_sets(world):
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    timed_link = link(world, 0.0)
    found = many(30_000)
    first = [read_added(reply) for reply in timed_link.run(ops.add(found, 0.0))]
    assert sum(one.new for one in first) == len(found)
    again = [read_added(reply) for reply in timed_link.run(ops.add(found, 0.0))]
    assert sum(one.seen for one in again) == len(found)
    names = list(world.client.scan_iter(f"{NAME}:*:s:*"))
    sizes = [world.client.scard(name) for name in names]
    members = {int(each) for name in names for each in world.client.smembers(name)}
    assert members == {c.key - (1 << 64) if c.key >> 63 else c.key for c in found}
    assert min(sizes) > 50, "small ones take thrice as much"
    assert max(sizes) < 450, "beyond 512 one takes seven times as much"
    assert {world.client.object("encoding", name) for name in names} == {b"intset"}
    used = sum(world.client.memory_usage(name) for name in names)
    assert used / len(found) <= 12.0


def test_a_waiting_url_takes_little(world):
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    timed_link = link(world, 0.0)
    timed_link.run(ops.add(many(100), 0.0))
    before = used_memory(world.client)
    timed_link.run(ops.add(many(20_000)[100:], 0.0))
    added = 19_900
    grown = used_memory(world.client) - before
    assert grown / added <= 120 + 12, "120 for it, 12 to know it"


def test_foreign_items_in_a_queue_lose_no_url(world):
    timed_link = link(world, 0.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    name = keys.queue(NAME, shard_of("b", SHARDS), 1, "b")
    world.client.set(name, "not ours")
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            timed_link.run(ops.add([candidate("x", host="b")], 0.0))
    assert world.client.get(name) == b"not ours"
    world.client.delete(name)
    (reply,) = timed_link.run(ops.add([candidate("x", host="b")], 0.0))
    assert read_added(reply).new == 1, "it was not marked seen"
    world.check(worker(world, "w"))


@pytest.mark.parametrize("kind", "mhrlwdcn")
def test_a_shard_is_not_opened_over_what_is_not_ours(client, kind):
    client.flushall()
    name = f"{keys.root(NAME, 1)}:{kind}"
    client.set(name, "somebody's")
    with pytest.raises(redis.ResponseError, match=r"FOREIGN|WRONGTYPE"):
        restarted(TimedLink(client))
    assert client.get(name) == b"somebody's"


def test_another_schema_is_refused_and_left_as_it_is(world):
    world.client.hset(keys.totals(NAME, 0), "schema", "99")
    with pytest.raises(redis.ResponseError, match=r"SCHEMA .*schema 99"):
        restarted(link(world, 0.0))
    assert world.client.hget(keys.totals(NAME, 0), "run") == b"a" * 40


def test_put_back_of_a_buffered_lease_costs_its_host_nothing(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, Rest(0.0, lease.pace, "unused"), 0.0)
    frontier.finish(lease, PutBack(), 0.0)
    assert len(drain(frontier, 0.0)) == 1


def test_budgets_hold_across_workers(world):
    world.limits = replace(world.limits, max_urls_per_domain=3)
    one, other = worker(world, "one"), worker(world, "other")
    assert one.add([candidate(n) for n in "ab"], 0.0).new == 2
    added = other.add([candidate(n) for n in "abcd"], 0.0)
    assert (added.new, added.seen, added.over_budget) == (1, 2, 1)


def test_a_lease_handed_back_shortens_no_rest(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    shard = shard_of("a", SHARDS)
    timed_link = link(world, 0.0)
    timed_link.run([ops.rest(shard, [ReleasedLease(lease, rest(3600))])])
    timed_link.run([ops.put_back_unused(shard, [lease.id])])
    assert drain(worker(world, "w"), 3599.9) == []


def test_a_rest_of_another_worker_does_not_shorten_the_rest_after_an_interrupted_fetch(world):
    dead = worker(world, "dead")
    dead.add([candidate("x")], 0.0)
    (lease,) = dead.lease(0.0)
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    shard = shard_of("a", SHARDS)
    link(world, 1.0).run([ops.rest(shard, [ReleasedLease(lease, rest(0.5))])])
    link(world, 8.0).run([ops.return_leases(shard, "dead")])
    frontier = worker(world, "w", 8.0)
    assert drain(frontier, 11.9) == [], "8 s, and a gap of half of it"
    assert len(drain(frontier, 12.0)) == 1


def test_the_rest_after_an_interrupted_fetch_counts_from_its_latest_possible_end(world):
    """A lease may have waited at its worker."""
    dead = worker(world, "dead")
    dead.add([candidate("x")], 0.0)
    dead.lease(0.0)
    waits = ShardOperations("w", SHARDS, TIGHT, LEASE_S, wait_s=5.0)
    link(world, 30.0).run([waits.return_leases(shard_of("a", SHARDS), "dead")])
    frontier = worker(world, "w", 30.0)
    assert drain(frontier, 31.9) == []
    assert len(drain(frontier, 32.0)) == 1, "begun at 5, ended at 15, 5 s of gap: long over"
    link(world, 32.0)


def test_an_unreadable_record_becomes_a_dead_letter(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x"), candidate("y")], 0.0)
    shard = shard_of("a", SHARDS)
    world.client.lset(keys.queue(NAME, shard, 1, "a"), 0, b"\xc1rubbish")
    ops = ShardOperations("w", SHARDS, TIGHT, LEASE_S)
    timed_link = link(world, 0.0)
    (reply,) = timed_link.run([ops.lease(shard, {Standing.NEW: 1})])
    leased = read_leases(reply, shard)
    assert leased.leases == []
    (reply,) = timed_link.run([ops.finish_unreadable(shard, leased.unreadable, 0.0)])
    assert read_held(reply) == [True]
    (letter,) = world.letters()
    assert "rubbish" in letter.candidate.url
    assert [one.candidate.url for one in drain(worker(world, "w"), 9.0)] == ["http://a/y"]


def test_more_levels_than_a_shard_can_hold_are_refused():
    rules = replace(TIGHT, level_shares=(1.0,) * 16)
    with pytest.raises(ConfigError, match="16 levels"):
        ShardOperations("w", SHARDS, rules, LEASE_S)


def test_a_removed_queue_does_not_block_its_host(world):
    frontier = worker(world, "w")
    frontier.add([candidate("x")], 0.0)
    world.client.delete(keys.queue(NAME, shard_of("a", SHARDS), 1, "a"))
    assert drain(frontier, 0.0) == []
    frontier.add([candidate("y")], 1.0)
    assert [one.candidate.url for one in drain(frontier, 1.0)] == ["http://a/y"]


def test_the_hosts_with_most_left_to_do_are_few_keys_however_many_there_are(
    world: RedisWorld, client: redis.Redis
) -> None:
    frontier = world.reopen(0.0)
    urls = {f"h{number}": 1 + number % 7 for number in range(900)} | {"large": 30}
    for host, n in urls.items():
        frontier.add([candidate(f"{at}", host=host) for at in range(n)], 0.0)
    for shard in range(SHARDS):
        kept = client.zrange(keys.longest(NAME, shard), 0, -1, desc=True, withscores=True)
        assert 150 <= len(kept) <= 200
        here = [n for host, n in urls.items() if shard_of(host, SHARDS) == shard]
        assert [score for _, score in kept[:50]] == sorted(here, reverse=True)[:50]
