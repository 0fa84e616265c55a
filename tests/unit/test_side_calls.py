"""Claims and fingerprints on their way to Redis: calls for a shard that does not answer are bounded
and not tried each time, and what a server may have lost is sent again."""

from __future__ import annotations

import asyncio
from hashlib import sha1
from pathlib import Path

import pytest

from crawler.data.disk_room import WaitWarnings
from crawler.model.types import Claim
from crawler.shared.address import Address
from crawler.shared.client import Call, Nodes
from crawler.shared.codec import bucket_mark
from crawler.shared.contents import ContentCalls
from crawler.shared.owned.inbox import KEPT_S
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.owned.side_calls import (
    MAX_KEPT_CALLS,
    SHARD_RETRY_S,
    UNSENT_KEY,
    SideQueue,
    SideSender,
)
from tests.servers.redis import RedisServer

SHARDS = 2


def claim(number: int, shard: int = 0) -> Call:
    return Call(shard, "claim_content", (b"%d" % number, "owner", "", b""))


def dropped(figure: str) -> None:
    raise AssertionError(figure)


def waiting(*calls: Call) -> SideQueue:
    queue = SideQueue(dropped)
    for call in calls:
        queue.put(call)
    return queue


def test_calls_for_a_shard_are_sent_in_their_order() -> None:
    queue = waiting(claim(1), claim(2, shard=1), claim(3))
    assert queue.take(0.0) == [claim(1), claim(3), claim(2, shard=1)]
    assert not queue


def test_unsent_calls_are_sent_before_later_ones() -> None:
    queue = waiting(claim(1), claim(2))
    taken = queue.take(0.0)
    queue.put(claim(3))
    queue.put_back(taken, 0.0)
    assert queue.take(SHARD_RETRY_S) == [claim(1), claim(2), claim(3)]


def test_a_silent_shard_is_retried_later_and_does_not_delay_others() -> None:
    queue = waiting(claim(1))
    queue.put_back(queue.take(0.0), 0.0)
    queue.put(claim(2, shard=1))
    assert queue.take(SHARD_RETRY_S / 2) == [claim(2, shard=1)]
    assert queue and queue.is_waiting_for_retry
    assert queue.take(SHARD_RETRY_S) == [claim(1)]
    assert not queue.is_waiting_for_retry


def test_calls_for_a_shard_that_answers_are_sent_at_once() -> None:
    queue = waiting(claim(1))
    queue.put_back(queue.take(0.0), 0.0)
    queue.on_answer(0)
    assert queue.take(0.1) == [claim(1)]


@pytest.mark.parametrize("script", MAX_KEPT_CALLS)
def test_the_oldest_of_too_many_are_dropped_and_counted(script: str) -> None:
    counted: list[str] = []
    queue = SideQueue(counted.append)
    calls = [Call(0, script, (f"{n}", "x", b"y")) for n in range(MAX_KEPT_CALLS[script] + 3)]
    other = Call(0, "outbox", ("w", 1))
    for call in [other, *calls]:
        queue.put(call)
    assert counted == [UNSENT_KEY + script] * 3
    queue.put_back(queue.take(0.0), 0.0)
    assert queue.take(SHARD_RETRY_S) == [other, *calls[3:]]


DIGESTS = [sha1(b"%d" % number).digest() for number in range(40)]
LOST, ON_DISK = DIGESTS[:20], DIGESTS[20:]


def test_what_a_server_may_have_lost_by_a_restart_is_sent_again(tmp_path: Path) -> None:
    clock = [0.0]
    calls = ContentCalls("s", SHARDS)
    queue = SideQueue(dropped)

    def claims_on(digests: list[bytes]) -> None:
        for digest in digests:
            made = Claim(digest, f"http://a/{digest.hex()}", "f.warc.gz:17", 1e9, digest)
            queue.send_later(calls.claim(digest, 0, made))

    async def missing(nodes: Nodes) -> list[bytes]:
        replies = await nodes.run([calls.find_owner(bucket_mark(digest)) for digest in DIGESTS])
        return [digest for digest, reply in zip(DIGESTS, replies, strict=True) if not reply[1]]

    async def scenario(server: RedisServer) -> None:
        nodes = Nodes(Address.parse(server.url), OwnedScripts(), "t", SHARDS)
        sender = SideSender(nodes, queue, lambda: clock[0], lambda fault: dropped(str(fault)))
        await nodes.open()
        claims_on(ON_DISK)
        assert await sender.send()
        clock[0] += KEPT_S + 1
        before = server.aof_bytes()
        claims_on(LOST)
        assert await sender.send()
        assert sender.is_idle() and await missing(nodes) == []
        server.kill()
        server.cut_aof(server.aof_bytes() - before)
        server.start()
        claims_on([sha1(b"another page").digest()])
        while not sender.is_idle():
            await sender.send()
            clock[0] += SHARD_RETRY_S
        assert await missing(nodes) == []
        await nodes.close()

    with RedisServer(tmp_path, appendfsync="always") as server:
        asyncio.run(scenario(server))


def test_a_fault_is_logged_once_though_the_worker_was_paused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clock = [0.0]
    troubles = WaitWarnings(lambda: clock[0])
    for now, does in (
        *((0.0, "meet"), (0.5, "look")),
        *((9.0, "look"), (9.1, "meet"), (10.0, "look")),  # it stood still until then
        *((11.0, "look"), (12.0, "look")),
    ):
        clock[0] = now
        troubles.report("redis", "no answer") if does == "meet" else troubles.log_recovered()
    assert caplog.messages == ["Waiting: no answer"]
    for now in (12.5, 13.5):
        clock[0] = now
        troubles.log_recovered()
    assert caplog.messages == ["Waiting: no answer", "Going on: redis"]
