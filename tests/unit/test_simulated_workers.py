"""Crawls of several workers that own shards, on a virtual clock, judged from outside; and faults
put in on purpose, which the judges must find."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from crawler.frontier import records as keys
from crawler.frontier.rounds import Rounds
from crawler.shared.owned.addresses import LeasedAddresses
from crawler.shared.owned.mirror import Changes, Mirror
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.takeover import ShardLoader
from crawler.simulate.judges import judge
from crawler.simulate.process import Policy
from crawler.simulate.redis_model import RedisModel
from crawler.simulate.run import Run
from crawler.simulate.shared_run import (
    SHARED,
    SHARED_ADDRESSES_OF_WORKERS,
    run_shared,
    shared_world,
)

SEEDS = 200
"""Worlds in which each fault must be found: the first ones."""


@pytest.mark.parametrize("first", range(0, 15, 5))
def test_a_crawl_of_several_workers_does_nothing_wrong(first: int) -> None:
    for seed in range(first, first + 5):
        found = judge(run_shared(shared_world(seed), SHARED))
        assert found == [], f"python -m crawler.simulate --shared --seed {seed}"


def test_workers_let_the_hosts_of_one_address_take_turns() -> None:
    for seed in range(10):
        found = judge(run_shared(shared_world(seed), SHARED_ADDRESSES_OF_WORKERS))
        assert found == [], f"SHARED_ADDRESSES_OF_WORKERS, seed {seed}"


def test_the_same_seed_gives_the_same_events_in_each_process() -> None:
    code = (
        "from crawler.simulate.shared_run import *;"
        " print(run_shared(shared_world(1), SHARED).log.digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    digests.add(f"{run_shared(shared_world(1), SHARED).log.digest}\n".encode())
    assert len(digests) == 1


def open_leases_not_mirrored(patch: pytest.MonkeyPatch) -> None:
    note = Mirror.note

    def note_others(mirror: Mirror, changes: Changes) -> None:
        note(mirror, {key: value for key, value in changes.items() if key[:1] != keys.OPEN})

    patch.setattr(Mirror, "note", note_others)


def no_rest_after_a_lost_second(patch: pytest.MonkeyPatch) -> None:
    original = ShardLoader.__init__

    def begin(loader: ShardLoader, shard: Any, claimed: Any, *given: Any) -> None:
        original(loader, shard, replace(claimed, is_lossy=False), *given)

    patch.setattr(ShardLoader, "__init__", begin)


def request_before_the_ack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnedShard, "may_begin", lambda shard, *_: shard.is_owned)


def address_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeasedAddresses, "may_use", lambda self, address: True)


def address_given_without_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeasedAddresses, "_rest_s", lambda self, address, uses: 0.0)


def history_begun_anew_at_a_take_over(patch: pytest.MonkeyPatch) -> None:
    original = ShardLoader._load_fields

    def forget(packed: bytes) -> bytes:
        page = keys.decode_candidate(packed)
        if page.history is not None:
            page = replace_struct(page, history=replace_struct(page.history, visits=1))
        return keys.encode(page)

    def load(loader: ShardLoader, prefix: bytes, fields: list[tuple[bytes, bytes]]) -> int:
        if prefix == keys.LATER:
            fields = [(name, forget(packed)) for name, packed in fields]
        return original(loader, prefix, fields)

    patch.setattr(ShardLoader, "_load_fields", load)


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The fault is in the model of the server."""


def more_leased_than_reserved(patch: pytest.MonkeyPatch) -> None:
    grant = Rounds.grant
    patch.setattr(Rounds, "grant", lambda self, urls: grant(self, urls + 1))


@dataclass(frozen=True)
class WorkerFault:
    name: str
    words: str  # in what is found
    put_in: Callable[[pytest.MonkeyPatch], None] = nothing
    model: Callable[..., RedisModel] = RedisModel
    first_seed: int = 0  # where it was found last: is tried first, which saves half a minute
    policy: Policy = SHARED


FAULTS = [
    WorkerFault("open leases not mirrored", "was lost", open_leases_not_mirrored),
    WorkerFault(
        "no rest after a lost second", "too early", no_rest_after_a_lost_second, first_seed=99
    ),
    WorkerFault("request before the ack", "again at", request_before_the_ack, first_seed=579),
    WorkerFault(
        "token not checked",
        "not over",
        model=partial(RedisModel, checks_token=False),
        first_seed=429,
    ),
    WorkerFault(
        "an address is not asked for",
        "was asked for at 192.0.2.",
        address_not_asked_for,
        policy=SHARED_ADDRESSES_OF_WORKERS,
    ),
    WorkerFault(
        "an address is given back without its rest",
        " s after http",
        address_given_without_rest,
        first_seed=775,
        policy=SHARED_ADDRESSES_OF_WORKERS,
    ),
    WorkerFault(
        "history begun anew at a take-over",
        "its history says",
        history_begun_anew_at_a_take_over,
        first_seed=84,
    ),
    WorkerFault(
        "more leased than was reserved", "URLs in round", more_leased_than_reserved, first_seed=18
    ),
    WorkerFault(
        "an inbox trimmed by count",
        "was lost",
        model=partial(RedisModel, deletes_by_name=False),
        first_seed=1,
    ),
]


def found_by(seed: int, fault: WorkerFault) -> list[str]:
    try:
        found: Run = run_shared(shared_world(seed), fault.policy, model=fault.model)
    except AssertionError as error:  # an invariant of the product may find it first
        return [str(error)]
    return [each for each in judge(found) if fault.words in each]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_workers_is_found(fault: WorkerFault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.put_in(monkeypatch)
    for seed in (fault.first_seed, *range(SEEDS)):
        if found := found_by(seed, fault):
            print(f"seed {seed}: {found[0]}")
            return
    raise AssertionError(f"in none of {SEEDS} worlds")
