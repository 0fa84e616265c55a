"""Calls that wait for a shard that does not answer are bounded, and are not tried each time."""

from __future__ import annotations

import struct

import pytest

from crawler.data.disk_room import WaitWarnings
from crawler.shared.client import Call
from crawler.shared.shard import PACE
from crawler.shared.worker.outgoing import (
    MAX_KEPT_CALLS,
    SHARD_RETRY_S,
    UNSENT_KEY,
    SideQueue,
)

PACE_AFTER = bytes(PACE.size) + struct.pack("<d", 0.0)


def claim(number: int, shard: int = 0) -> Call:
    return Call(shard, "claim_content", (b"%d" % number, "owner", "", b""))


def rest(host: str, seconds: float, age_s: float = 0.0) -> Call:
    return Call(0, "rest", (3600.0, host, age_s, seconds, PACE_AFTER))


def learn(authority: str, packed: bytes = b"") -> Call:
    return Call(0, "put_robots", (authority, 1000, packed))


def dropped(figure: str) -> None:
    raise AssertionError(figure)


def waiting(*calls: Call) -> SideQueue:
    queue = SideQueue(dropped)
    for call in calls:
        queue.put(call)
    return queue


def test_calls_for_a_shard_are_sent_in_their_order() -> None:
    queue = waiting(claim(1), claim(2, shard=1), rest("a", 1.0), claim(3))
    assert queue.take(0.0) == [claim(1), rest("a", 1.0), claim(3), claim(2, shard=1)]
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
    for call in [rest("a", 1.0), *calls]:
        queue.put(call)
    assert counted == [UNSENT_KEY + script] * 3
    queue.put_back(queue.take(0.0), 0.0)
    assert queue.take(SHARD_RETRY_S) == [rest("a", 1.0), *calls[3:]]


@pytest.mark.parametrize(
    ("earlier", "later", "kept"),
    [
        pytest.param(rest("a", 1.0), rest("a", 5.0), rest("a", 5.0), id="a longer rest counts"),
        pytest.param(
            rest("a", 9.0, 1.0),
            rest("a", 5.0, 2.0),
            rest("a", 10.0, 2.0),
            id="a shorter one does not end what was asked for before",
        ),
        pytest.param(
            learn("a", b"old"), learn("a", b"new"), learn("a", b"new"), id="what was learned last"
        ),
    ],
)
def test_of_one_host_only_the_latest_waits(earlier: Call, later: Call, kept: Call) -> None:
    assert waiting(earlier, later).take(0.0) == [kept]


def test_no_rest_is_dropped() -> None:
    calls = [rest(f"{n}", 1.0) for n in range(2000)]
    assert waiting(*calls).take(0.0) == calls


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
