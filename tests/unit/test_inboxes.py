"""Inboxes of owned shards: their entries, what a sender does with links that no server takes, and
what is sent again to a server that has lost something, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.shards import shard_of
from crawler.model.types import Candidate, HostKey, Purpose, StoreFull
from crawler.shared.faults import ForeignData, OutOfMemory, Unreachable
from crawler.shared.keys import root
from crawler.shared.owned import inbox
from crawler.shared.owned.inbox import (
    VERDICT_DELAY_S,
    LinkPushes,
    NotedLinks,
    pack_links,
    unpack_links,
)
from crawler.shared.owned.mirror import Changes, Mirror
from crawler.shared.owned.owner import OwnedShard, SendingRounds
from crawler.shared.owned.scripts import (
    INBOX,
    InboxCommands,
    PlainCommand,
    ShardCommands,
    read_claim_reply,
)
from crawler.shared.worker.outbox import Outbox, Overflow
from crawler.simulate.redis_model import RedisModel
from tests.harness.frontiers import candidate
from tests.harness.owned_world import SCRIPTS, noted

NAME = "owned"
LEASE_S = 10.0
OTHERS = 1  # a shard of another worker, with `HOST`
HOST = "h2"
MADE = (
    candidate("a", level=2),
    candidate("b", level=2, depth=3),
    Candidate("https://www.b.de/", 7, HostKey("www.b.de"), "b.de", 1),
    Candidate("ftp://b.de/x", 8, HostKey("b.de"), "b.de", not_before=12.5),
    candidate("c", request=b"packed", needs_seen_test=False, may_be_archived=True),
    candidate("d", chain=(1, 2), attempts=3, modified=4.5, is_sitemap=True, index_hops=1),
    candidate("e", purpose=Purpose.ROBOTS, authority="http://a:80", requisite=1, seed="http://s"),
)


def link(name: str) -> Candidate:
    return candidate(name, host=HOST)


def test_an_entry_has_all_of_its_links() -> None:
    by_url = {each.url: each for each in unpack_links(pack_links(MADE))}
    assert by_url == {each.url: each for each in MADE}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"z" + pack_links(MADE)[1:], id="another kind"),
        pytest.param(pack_links(MADE)[:-1], id="cut off"),
        pytest.param(b"l\x91\x94\xa1a\x00\x00\x91\xc4\x01\xff", id="a link that is none"),
        pytest.param(b"l\x91\x94\xa1\xff\x00\x00\x90", id="a host that is no text"),
    ],
)
def test_bytes_that_are_no_entry_are_foreign(entry: bytes) -> None:
    with pytest.raises(ForeignData, match="entry of an inbox"):
        unpack_links(entry)


class FullDisk(Outbox):
    """An outbox that a test may let be full."""

    is_full = False

    def put(self, found: Any) -> None:
        if self.is_full:
            raise StoreFull("the disk is full")
        super().put(found)


async def always() -> bool:
    return True


class OneWorker:
    """A worker with some shards over a model of a server."""

    def __init__(self, *owned: int) -> None:
        self.redis = RedisModel(SCRIPTS)
        self.now = 100.0
        self.faults: list[Exception] = []
        self.outbox = FullDisk(MemoryStore(), lambda domain: shard_of(domain, 2))
        overflow = Overflow(
            outbox=self.outbox, is_full=lambda _: False, ensure_noted=always, sync=None
        )
        self.pushes = LinkPushes(
            lambda shard: InboxCommands(SCRIPTS, NAME, shard),
            2,
            b"me",
            overflow,
            self.faults.append,
        )
        self.rounds = SendingRounds(self.pushes, lambda _: "the server")
        for number in owned:
            commands = ShardCommands(SCRIPTS, NAME, number, f"token{number}", LEASE_S)
            claimed: Any = read_claim_reply(self.ask(commands.claim(begins=True)))
            mirror = Mirror(claimed.seq, noted)
            shard = OwnedShard(commands, claimed, self.now, mirror, nothing)
            shard.note_loaded(0.0)
            self.rounds.shards[number] = shard

    def ask(self, command: Any) -> Any:
        self.redis.now_ms = round(self.now * 1000)
        return self.redis.ask(command)

    def push(self, *names: str) -> NotedLinks:
        """Push links to the shard of others."""
        (result,) = self.pushes.add([link(name) for name in names])
        return result

    def send(self, *, is_reached: bool = True) -> list[Any]:
        asks = self.rounds.next_commands(self.now)
        replies = [self.ask(each) if is_reached else Unreachable("down") for _, each in asks]
        self.rounds.on_replies(replies, self.now, self.now)
        self.pushes.store_unsent()
        return replies

    def urls(self) -> list[str]:
        """Return the links in the inbox of the shard of others."""
        entries = self.redis.hash_of(f"{root(NAME, OTHERS)}:{INBOX}").values()
        return sorted(each.url[-1] for entry in entries for each in unpack_links(entry))


def nothing() -> Iterator[Changes]:
    yield from ()


@pytest.fixture
def worker() -> OneWorker:
    return OneWorker()


def test_a_push_is_repeated_until_it_is_acknowledged_and_changes_nothing(worker: OneWorker) -> None:
    pushes, position = worker.push("1", "2")
    worker.send()  # it learns the run
    assert pushes.acked < position
    asks = worker.rounds.next_commands(worker.now)
    lost = [worker.ask(each) for _, each in asks]
    worker.rounds.on_replies([Unreachable("lost") for _ in lost], worker.now, worker.now)
    assert pushes.acked < position
    assert worker.send() == [[b"ok"]]
    assert pushes.acked == position
    assert len(worker.redis.hash_of(f"{root(NAME, OTHERS)}:{INBOX}")) == 1
    assert worker.urls() == ["1", "2"]
    worker.push("2", "3")
    worker.send()
    assert worker.urls() == ["1", "2", "3"], "what is known is not sent again"
    worker.pushes.forget_known()
    worker.push("3")
    worker.send()
    assert worker.urls() == ["1", "2", "3", "3"], "it may be admitted by now"


def test_links_for_a_full_server_are_acknowledged_when_the_outbox_is_safe(
    worker: OneWorker,
) -> None:
    pushes, position = worker.push("1")
    worker.send()
    worker.redis.is_full = True
    worker.outbox.is_full = True
    worker.send()
    assert worker.pushes.is_congested and pushes.acked < position
    assert {type(each) for each in worker.faults} == {OutOfMemory, StoreFull}
    worker.outbox.is_full = False
    worker.send()
    assert not worker.pushes.is_congested and len(worker.outbox) == 1
    assert pushes.acked < position, "it may not be noted yet"
    worker.pushes.note_secured()
    assert pushes.acked == position


def test_too_many_links_for_a_server_that_is_down_go_to_the_outbox(
    worker: OneWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MAX_UNSENT_LINKS", 3)
    worker.push("1", "2", "3")
    worker.send(is_reached=False)
    assert len(worker.outbox) == 0
    worker.push("4")
    worker.send(is_reached=False)
    assert len(worker.outbox) == 4


def test_links_leave_the_outbox_when_they_are_on_the_disk_of_the_server(worker: OneWorker) -> None:
    worker.outbox.put([link("1")])
    worker.redis.is_full = True
    for _ in range(3):
        worker.send()
        worker.now += 2.0
    assert len(worker.outbox) == 1 and worker.urls() == []
    worker.redis.is_full = False
    for _ in range(2):
        worker.send()
        worker.now += 1.0
    assert worker.urls() == ["1"]
    worker.redis.restart()
    worker.send()
    assert len(worker.outbox) == 1, "the server may have lost it"
    for _ in range(int(VERDICT_DELAY_S) + 4):
        worker.send()
        worker.now += 1.0
    assert len(worker.outbox) == 0
    worker.redis.restart()
    worker.redis.is_full = True
    for _ in range(3):
        worker.send()
        worker.now += 1.0
    assert len(worker.outbox) == 1, "a server that may have lost it takes it no more"


@pytest.mark.parametrize("is_pushed", [True, False], ids=["an inbox", "a shard of its own"])
def test_what_a_server_has_lost_is_sent_again_links_before_verdicts(is_pushed: bool) -> None:
    """The server restarts when only the shard of the verdict has something to be sent."""
    worker = OneWorker(0, *([] if is_pushed else [OTHERS]))
    verdicts = worker.rounds.shards[0].mirror
    for _ in range(2):
        worker.send()
    worker.redis.keep()
    if is_pushed:
        worker.push("1")
    else:
        links = worker.rounds.shards[OTHERS].mirror
        links.note_command(PlainCommand("HSET", "link", ("1", 1)))
    kind = INBOX if is_pushed else "link"
    for _ in range(2):
        worker.send()
    verdicts.note_command(PlainCommand("HSET", "verdict", ("page", 1)))
    worker.send()
    worker.redis.restart(loses_all=True)
    verdicts.note_command(PlainCommand("HSET", "verdict", ("another page", 1)))
    for _ in range(5):
        replies = []
        for _, command in worker.rounds.next_commands(worker.now):
            replies.append(worker.ask(command))
            if worker.redis.hash_of(f"{root(NAME, 0)}:verdict"):
                assert worker.redis.hash_of(f"{root(NAME, OTHERS)}:{kind}")
        worker.rounds.on_replies(replies, worker.now, worker.now)
    assert len(worker.redis.hash_of(f"{root(NAME, 0)}:verdict")) == 2


@pytest.mark.parametrize("has_lease", [True, False])
def test_after_a_restart_an_owner_whose_lease_was_over_has_lost_its_shard(has_lease: bool) -> None:
    """Another one may have owned it meanwhile, and the server may have lost that."""
    worker = OneWorker(0)
    (shard,) = worker.rounds.shards.values()
    worker.send()
    worker.now += LEASE_S / 2 if has_lease else LEASE_S + 0.1
    worker.redis.restart()
    worker.send()
    assert shard.is_owned == has_lease


def test_links_go_to_the_inbox_of_a_shard_until_its_claim_is_on_disk() -> None:
    worker = OneWorker(0)
    (shard,) = worker.rounds.shards.values()
    for _ in range(2):
        worker.send()
        assert not shard.takes_links
        worker.now += VERDICT_DELAY_S - 0.5
    worker.send()
    assert shard.takes_links
