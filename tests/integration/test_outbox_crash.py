"""Lives of an outbox, each ended by `kill -9` or by a full disk: what was acknowledged is there,
what was dropped is not, and of what was under way all or nothing."""

from __future__ import annotations

import resource
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import msgspec
import pytest

from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Candidate, HostKey, StoreUnavailable
from crawler.shared.worker.outbox import Outbox
from tests.harness.killed_processes import preload, run_until_killed
from tests.harness.small_disks import SmallDisk, can_mount
from tests.harness.waiting import wait_until

LIVES = 30
MOST_MESSAGES = 300  # of one life
PAGE = 40  # links of a put

preload(__name__)


class Message(msgspec.Struct, array_like=True):
    """What the process sends: what it is about to do, and then that it is done."""

    verb: str  # put | drop
    links: list[int]
    done: bool


def page(number: int) -> list[Candidate]:
    """Over 7 shards and 3 levels."""
    first = number * PAGE
    return [
        Candidate(f"http://e.com/{n}", n, HostKey("e.com"), str(n % 7), level=n % 3)
        for n in range(first, first + PAGE)
    ]


def live(folder: Path, largest_file_bytes: int | None, pipe: Connection) -> None:
    """Puts three pages, sends some of it, and again: until killed or refused."""
    if largest_file_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file_bytes, hard))
    outbox = Outbox(RocksStore(folder), int)

    def send(verb: str, links: list[Candidate], done: bool) -> None:
        pipe.send_bytes(msgspec.msgpack.encode(Message(verb, [one.key for one in links], done)))

    try:
        for number in count():
            found = page(number)
            send("put", found, done=False)
            outbox.put(found)
            send("put", found, done=True)
            if number % 3 == 2 and (batch := outbox.head(50)):
                send("drop", batch.links, done=False)
                outbox.drop(batch)
                send("drop", batch.links, done=True)
    except StoreUnavailable:
        pipe.close()


def messages_of(
    folder: Path, messages: int | None, largest_file_bytes: int | None = None
) -> list[Message]:
    """Run a life, killed once it has sent as many *messages*, in the middle of its work, and return
    them."""
    sent = run_until_killed(live, folder, largest_file_bytes, messages=messages)
    return [msgspec.msgpack.decode(message, type=Message) for message in sent]


def emptied(outbox: Outbox) -> list[int]:
    left = []
    while batch := outbox.head(1000):
        left += [one.key for one in batch.links]
        outbox.drop(batch)
    return left


def check_outbox(messages: list[Message], left: list[int], counted: int) -> None:
    present = set(left)
    assert len(left) == len(present) == counted
    waiting: set[int] = set()
    for message in messages:
        if message.done:
            waiting = (
                waiting | set(message.links)
                if message.verb == "put"
                else waiting - {*message.links}
            )
    last = set(messages[-1].links) if not messages[-1].done else set()
    assert present - last == waiting - last
    assert last <= present or not last & present, "of the last call all or nothing"


def test_acknowledged_data_survives_thirty_kills(tmp_path: Path) -> None:
    random = Random(20260103)
    for _ in range(LIVES):
        messages = messages_of(tmp_path / "outbox", messages=random.randrange(1, MOST_MESSAGES))
        store = RocksStore(tmp_path / "outbox")
        outbox = Outbox(store, int)
        counted = len(outbox)
        check_outbox(messages, emptied(outbox), counted)
        store.close()


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    messages = messages_of(tmp_path / "outbox", messages=None, largest_file_bytes=300_000)
    assert not messages[-1].done and len(messages) > 20, "refused at last"
    store = RocksStore(tmp_path / "outbox")
    outbox = Outbox(store, int)
    counted = len(outbox)
    left = emptied(outbox)
    check_outbox(messages, left, counted)
    assert messages[-1].verb == "put" and not set(messages[-1].links) & set(left), (
        "refused is not there"
    )
    store.close()


def test_the_outbox_works_again_when_there_is_room(tmp_path: Path) -> None:
    """RocksDB looks for room every 5 s."""
    if not can_mount(tmp_path):
        pytest.skip("only root may mount a small disk")
    disk = SmallDisk(tmp_path, 1 << 20)
    store = RocksStore(tmp_path / "outbox")
    try:
        outbox = Outbox(store, int)
        refused = next(number for number in count() if not was_put(outbox, number))
        assert len(outbox) == refused * PAGE
        disk.make_room()
        wait_until(lambda: was_put(outbox, refused), 30, "a page is taken", poll_s=0.1)
        assert sorted(emptied(outbox)) == list(range((refused + 1) * PAGE))
    finally:
        store.close()
        disk.close()


def was_put(outbox: Outbox, number: int) -> bool:
    try:
        outbox.put(page(number))
    except StoreUnavailable:
        return False
    return True
