"""From what is pushed to the inbox of its shard: workers that agree, wait, die; and a Redis that
does too."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import redis

from crawler.model.choices import ScopeChoice
from crawler.model.types import CrawlerError
from crawler.shared.pushed import (
    ITEMS_PER_BATCH,
    MAX_BATCHES,
    STAGE_TRANSITIONS,
    BatchStage,
    PushedBatch,
)
from tests.harness.pushed_url_workers import (
    KEY,
    LEASE_S,
    TAKEN,
    URGENT,
    PushedUrlWorkers,
    RunLoop,
    taken,
)
from tests.servers.redis import RedisServer

REFUSED = "{web:start_urls}:refused"


@pytest.fixture
def crew(server: RedisServer, client: redis.Redis, run_loop: RunLoop) -> Iterator[PushedUrlWorkers]:
    crew = PushedUrlWorkers(server.url, run_loop)
    yield crew
    crew.close()


def test_a_pushed_url_is_moved_from_its_key_to_the_inbox_of_its_shard(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    worker = crew.add()
    client.rpush(KEY, "https://a.example/", json.dumps({"url": "b.example", "meta": {"id": 1}}))
    worker.tick()
    assert crew.waiting() == ["https://a.example/", "https://b.example/"]
    assert not client.exists(KEY) and taken(client) == 0
    assert worker.stats.counters == {"pushed/taken": 2}


def test_many_are_taken_in_one_tick(client: redis.Redis, crew: PushedUrlWorkers) -> None:
    worker = crew.add()
    client.rpush(KEY, *(f"https://{n}.example/" for n in range(5 * ITEMS_PER_BATCH)))
    worker.tick()
    assert len(crew.waiting()) == 5 * ITEMS_PER_BATCH
    assert not client.exists(KEY) and taken(client) == 0


def test_nothing_is_taken_that_the_frontier_cannot_take(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    worker = crew.add()
    worker.may_take = False
    client.rpush(KEY, "https://a.example/")
    worker.tick()
    assert client.llen(KEY) == 1 and worker.pushed_urls.may_have_more()


def test_unusable_items_are_logged_counted_and_kept(
    client: redis.Redis, crew: PushedUrlWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = crew.add(ScopeChoice.HOST)
    worker.tick()
    client.rpush(KEY, '{"link": 1}', "http://10.0.0.1/", "x" * 70_000, "a" * 5000 + " b")
    with caplog.at_level(logging.WARNING):
        worker.tick()
        worker.announce()
        worker.tick()
    reasons = [json.loads(entry)["why"] for entry in client.lrange(REFUSED, 0, -1)]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "addresses that are not public need a setting",
        "white space in the URL",
        "no URL in it, under the name url",
        "longer than 65536 bytes",
    ]
    assert taken(client) == 0 and not client.exists(KEY)
    assert worker.stats.counters["pushed/refused"] == 4
    assert worker.stats.counters["refused/inside_address"] == 1
    assert len(caplog.messages) == 4
    assert max(map(len, caplog.messages)) < 500


def test_the_log_names_the_first_few(
    client: redis.Redis, crew: PushedUrlWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = crew.add()
    client.rpush(KEY, *(f"no URL {n}" for n in range(1500)))
    with caplog.at_level(logging.WARNING):
        worker.tick()
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == (
        f"Further refused items are counted, not logged; they are in {REFUSED}"
    )
    assert worker.stats.counters["pushed/refused"] == 1500
    assert client.llen(REFUSED) == 1000


def test_no_page_of_a_new_host_is_fetched_before_every_worker_has_opened_it(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    one, two = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    for worker in (one, two):
        worker.tick()
    client.rpush(KEY, "https://a.example/")
    one.tick()
    one.announce()
    one.tick()
    assert crew.waiting() == [] and taken(client) == 1, "the other worker has not read it"
    assert one.pushed_urls.may_have_more()
    two.tick()
    one.tick()
    assert crew.waiting() == [], "it has read it, but not reported it"
    two.announce()
    assert two.admits("https://a.example/link")
    one.tick()
    assert crew.waiting() == ["https://a.example/"] and taken(client) == 0


def test_a_host_that_waits_for_all_keeps_others_of_it_waiting(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    """The second batch opens nothing: its host is open here already, but not elsewhere."""
    one, two = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    for url in ("https://a.example/1", "https://a.example/2"):
        client.rpush(KEY, url)
        one.tick()
        one.announce()
    assert crew.waiting() == [] and taken(client) == 2
    two.tick()
    two.announce()
    one.tick()
    assert len(crew.waiting()) == 2 and taken(client) == 0


def test_opened_hosts_that_a_server_lost_are_written_again(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    one, two = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    client.rpush(KEY, "https://a.example/")
    one.tick()
    client.delete("t:opened")
    for worker in (one, two, one):
        worker.tick()
        worker.announce()
    assert two.admits("https://a.example/link")
    one.tick()
    assert crew.waiting() == ["https://a.example/"]


def test_a_worker_that_comes_later_knows_all_before_it_begins(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    one = crew.add(ScopeChoice.DOMAIN)
    client.rpush(KEY, *(f"https://{n}.example/" for n in range(3 * ITEMS_PER_BATCH)))
    for _ in range(3):
        one.tick()
        one.announce()
    two = crew.add(ScopeChoice.DOMAIN)
    assert not two.origins.is_complete
    two.tick()
    assert two.origins.is_complete and two.woken == 1
    assert two.admits("https://www.599.example/") and not two.admits("https://600.example/")
    assert two.pushed_urls.opened_mark == one.pushed_urls.opened_mark


def test_where_all_hosts_are_in_scope_no_worker_waits(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    one, _ = crew.add(), crew.add()
    client.rpush(KEY, "https://a.example/")
    one.tick()
    assert crew.waiting() == ["https://a.example/"] and not client.exists("t:opened")


@pytest.mark.parametrize("scope", [ScopeChoice.ANY, ScopeChoice.HOST])
def test_pushed_urls_do_not_allow_loopback(
    client: redis.Redis, crew: PushedUrlWorkers, scope: ScopeChoice
) -> None:
    one = crew.add(scope)
    client.rpush(KEY, "http://127.0.0.1:8000/")
    for _ in range(3):
        one.tick()
        one.announce()
    assert crew.waiting() == []
    assert not one.admits("http://127.0.0.1:8000/link")
    (refused,) = client.lrange(f"{{{KEY}}}:refused", 0, -1)
    assert b"not public" in refused


def test_items_of_a_dead_worker_are_taken_by_another(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    """The lease is by the server's clock: it is set far into the past here."""
    one, two = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    client.rpush(KEY, "https://a.example/")
    one.tick()
    crew.workers.remove(one)
    for _ in range(2):
        two.tick()
        two.announce()
    assert crew.waiting() == []
    ((field, value),) = ((f, v) for f, v in client.hgetall(TAKEN).items() if f != b"schema")
    client.hset(TAKEN, field, b"1000.0 " + value.partition(b" ")[2])
    two.tick()
    assert crew.waiting() == ["https://a.example/"] and taken(client) == 0


def test_waiting_items_stay_held(client: redis.Redis, crew: PushedUrlWorkers) -> None:
    one, _ = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    client.rpush(KEY, "https://a.example/")
    one.tick()
    ((field, before),) = ((f, v) for f, v in client.hgetall(TAKEN).items() if f != b"schema")
    crew.now = LEASE_S / 2
    one.tick()
    after = client.hget(TAKEN, field)
    assert float(after.split()[0]) > float(before.split()[0])


def test_the_number_of_held_items_is_bounded(client: redis.Redis, crew: PushedUrlWorkers) -> None:
    one, _ = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    client.rpush(
        KEY, *(f"https://{n}.example/" for n in range((MAX_BATCHES + 2) * ITEMS_PER_BATCH))
    )
    for _ in range(3):
        one.tick()
    assert (
        taken(client) == MAX_BATCHES * ITEMS_PER_BATCH and client.llen(KEY) == 2 * ITEMS_PER_BATCH
    )


def test_urgent_urls_are_known_as_such(client: redis.Redis, crew: PushedUrlWorkers) -> None:
    worker = crew.add()
    client.rpush(KEY, "https://a.example/1", "https://a.example/2")
    worker.tick()
    client.rpush(URGENT, "https://a.example/2")
    worker.tick()
    waiting = ["https://a.example/1", "https://a.example/2", "https://a.example/2 now"]
    assert crew.waiting() == waiting


def test_a_full_redis_keeps_what_is_pushed(client: redis.Redis, crew: PushedUrlWorkers) -> None:
    worker = crew.add()
    worker.tick()
    client.rpush(KEY, "https://a.example/")
    client.config_set("maxmemory", 1)
    try:
        worker.tick()
        assert client.llen(KEY) + taken(client) == 1
        assert worker.pushed_urls.may_have_more()
    finally:
        client.config_set("maxmemory", 0)
    worker.tick()
    assert crew.waiting() == ["https://a.example/"]


def test_foreign_data_ends_the_crawl_at_its_start_and_is_logged_later(
    client: redis.Redis, crew: PushedUrlWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    worker = crew.add()
    worker.tick()
    client.set(KEY, "x")
    with caplog.at_level(logging.WARNING):
        worker.tick()
        worker.tick()
    (message,) = caplog.messages
    assert "web:start_urls is a string" in message
    assert worker.pushed_urls.may_have_more()
    with pytest.raises(CrawlerError, match="web:start_urls is a string"):
        crew.add().tick()
    client.delete(KEY)
    client.rpush(KEY, "https://a.example/")
    worker.tick()
    assert crew.waiting() == ["https://a.example/"]


def test_a_crawl_with_seeds_ends_when_nothing_is_pushed(
    client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    worker = crew.add()
    assert worker.pushed_urls.may_have_more(), "it has not looked"
    worker.tick()
    assert not worker.pushed_urls.may_have_more()
    client.rpush(URGENT, "https://a.example/")
    worker.may_take = False
    worker.tick()
    assert worker.pushed_urls.may_have_more()


def test_a_crawl_without_seeds_ends_if_configured(crew: PushedUrlWorkers) -> None:
    patient, one = crew.add(only_pushed=True), crew.add(only_pushed=True, max_idle_s=30)

    def ends(at: float) -> list[bool]:
        crew.now = at
        for worker in (patient, one):
            worker.tick()
        return [not worker.pushed_urls.may_have_more() for worker in (patient, one)]

    assert ends(0) == ends(29) == [False, False]
    one.is_idle = False
    assert ends(31) == [False, False], "it is not idle"
    one.is_idle = True
    assert ends(50) == ends(79) == [False, False]
    assert ends(80) == [False, True]
    assert ends(1e9) == [False, True]


def test_a_crawl_waits_while_redis_is_down(run_loop: RunLoop) -> None:
    with RedisServer(appendfsync="always") as server:
        crew = PushedUrlWorkers(server.url, run_loop)
        worker = crew.add()
        worker.tick()
        client = server.client()
        client.rpush(KEY, "https://a.example/")
        server.kill()
        worker.tick()
        assert worker.pushed_urls.may_have_more()
        server.start()
        for _ in range(20):
            worker.tick()
            if not worker.pushed_urls.may_have_more():
                break
        assert crew.waiting() == ["https://a.example/"]
        crew.close()


def test_every_move_of_a_batch_is_one_of_the_table() -> None:
    for here in BatchStage:
        for there in BatchStage:
            batch = PushedBatch([], 0.0, stage=here)
            if there in STAGE_TRANSITIONS[here]:
                batch.move(there)
                assert batch.stage is there
            else:
                with pytest.raises(AssertionError):
                    batch.move(there)
