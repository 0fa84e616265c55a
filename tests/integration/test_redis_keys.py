"""Every key of a shared crawl is in the glossary, in the slot of its shard, and of its type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from zlib import crc32

import pytest
import redis

from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import DeadLetter, decode_letter
from crawler.model.types import (
    Claim,
    Dead,
    Done,
    HostKey,
    Lease,
    Moved,
    PutBack,
    RetryAt,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Call, Nodes
from crawler.shared.codec import bucket_mark, encode_letter, rows_of
from crawler.shared.keys import SHARD_KEYS, Scripts
from crawler.shared.shard import (
    ReleasedLease,
    ShardOperations,
    shard_of_lease,
)
from tests.harness.frontiers import Refusing, candidate, rest
from tests.harness.script_frontier import ScriptFrontier
from tests.harness.sources import PROJECT
from tests.servers.redis import RedisServer
from tests.servers.redis_glossary import WITHOUT_KEYS, Glossary
from tests.servers.redis_monitor import Asked, monitored

NAME = "glossary"
SHARDS = 3
STEPS = 400
RULES = FrontierLimits(
    min_gap_s=0.0,
    gap_factor=0.0,
    longest_fetch_s=0.01,
    max_front_reads=4,
    due_slice=4,
    max_urls_per_domain=300,
)
OPENING = (0, 100.0, keys.SCHEMA)


class Life:
    """A few hundred random things that a worker does, with every operation among them."""

    def __init__(self, link: BlockingNodes, client: redis.Redis) -> None:
        self.random = Random(11)
        self.now = 1e9
        self.leases: list[Lease] = []
        self._link = link
        self._client = client
        self._born = self._sessions = 0
        self._reopen(None)

    def step(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self._add, 6),
            (self._lease, 6),
            (self._release, 4),
            (self._finish, 6),
            (self._duplicates, 2),
            (self._near, 1),
            (self._beat, 1),
            (self._rest, 1),
            (self._robots, 1),
            (self._end, 1),
            (self._pattern_stats, 1),
            (self._revive, 1),
            (self._operate, 2),
            (self._die, 1),
        ]
        (do,) = self.random.choices([do for do, _ in steps], [weight for _, weight in steps])
        do()

    def _reopen(self, dead: str | None) -> None:
        self._sessions += 1
        # Each start has other rules than the one before.
        budget = None if self._sessions % 2 else 40
        rules = replace(RULES, max_urls_per_host=budget)
        refusing = Refusing(partial(_is_refused, self._sessions % 5))
        self._ops = ShardOperations(f"session{self._sessions}", SHARDS, rules, 100.0)
        self._frontier = ScriptFrontier(self._link, self._ops, dead, NAME, refusing)
        self.leases = []

    def _add(self) -> None:
        host = f"{self.random.choice('abcdef')}.example"
        for level in (0, 2):
            self._born += 30
            later = self.now + self.random.choice([0.0, 0.0, 0.01])
            names = range(self._born, self._born + 30)
            found = [candidate(f"{n}", host=host, level=level, not_before=later) for n in names]
            self._frontier.add(found, self.now)

    def _lease(self) -> None:
        self.leases += self._frontier.lease(self.now, 3)

    def _release(self) -> None:
        for lease in self.random.sample(self.leases, len(self.leases) // 2):
            self._frontier.release(lease, rest(self.random.choice([0.0, 0.005])), self.now)

    def _finish(self) -> None:
        self.random.shuffle(self.leases)
        while len(self.leases) > 2:
            lease = self.leases.pop()
            digest = b"digest %d" % lease.id
            verdict = self.random.choice(
                [
                    *(Done(), Done(claim=Claim(digest, lease.candidate.url)), Done(self.now + 5)),
                    *(RetryAt(self.now + 0.005), PutBack(), Dead("no reason"), Dead("nor this")),
                    Moved(candidate(f"moved{self._born}", host="z.example")),
                ]
            )
            self._frontier.finish(lease, verdict, self.now)

    def _duplicates(self) -> None:
        digest = b"reserved %d" % self.random.randrange(5)
        self._link.run([self._ops.reserve(digest, 1, 5.0)])
        self._link.run([self._ops.claim(digest, 1, None)])

    def _near(self) -> None:
        digest = b"%020d" % self.random.randrange(5)
        for shard, row in rows_of(self.random.getrandbits(64), digest, SHARDS):
            self._link.run([Call(shard, "near", row)])
        self._link.run([self._ops.find_owner(bucket_mark(digest))])

    def _beat(self) -> None:
        self._frontier.renew(self.leases, self.now)
        self._link.run([self._ops.list_leases(shard) for shard in range(SHARDS)])

    def _rest(self) -> None:
        released = [ReleasedLease(lease, rest(0.01)) for lease in self.leases[:1]]
        self._link.run([self._ops.rest(shard_of_lease(each.lease), [each]) for each in released])

    def _end(self) -> None:
        shards = range(SHARDS)
        self._link.run([self._ops.outbox(shard, "w", bool(shard)) for shard in shards])
        self._link.run([self._ops.check(shard) for shard in shards])
        self._link.run([self._ops.repair(shard, {"next": b"none"}, {}) for shard in shards])

    def _robots(self) -> None:
        shard, authority = self.random.randrange(SHARDS), f"http://{self.random.choice('abc')}"
        self._link.run(
            [
                Call(shard, "put_robots", (authority, 5000, b"ours")),
                Call(shard, "get_robots", (authority,)),
            ]
        )

    def _pattern_stats(self) -> None:
        shard, host = self.random.randrange(SHARDS), self.random.choice("abc")
        page = (host, b"%d" % self.random.randrange(9), 8, 1, 4)
        self._link.run(
            [Call(shard, "add_stats", (5, *page)), Call(shard, "get_stats", (5, *page[:2]))]
        )

    def _revive(self) -> None:
        shard = self.random.randrange(SHARDS)
        found = self._client.hgetall(keys.dead(NAME, shard))
        letters = [(int(number), decode_letter(letter)) for number, letter in found.items()]
        self._link.run([self._ops.retry_dead(shard, letters)])

    def _operate(self) -> None:
        """What acts of an operator do to a shard."""
        shard, host = self.random.randrange(SHARDS), f"{self.random.choice('abcdef')}.example"
        front = self.random.choice((1, 3))
        heads = self._client.lrange(keys.queue(NAME, shard, front, host), 0, 3)
        letter = encode_letter(DeadLetter(candidate("dropped", host=host), "dropped", self.now))
        fates = self.random.choices([b"", b"x", b"f2", b"rdenied", b"d" + letter], k=len(heads))
        dead = self._client.hkeys(keys.dead(NAME, shard))[:1]
        dated = self._client.zrange(keys.later(NAME, shard), 0, 1)
        self._link.run(
            [
                self._ops.sweep(shard, host, host, front, zip(heads, fates, strict=True)),
                self._ops.sweep_later(shard, zip(dated, (b"x", b"f2"), strict=False)),
                self._ops.forget(shard, "dead", map(int, dead)),
                *self._ops.end_rests({HostKey(host): self.now + 60.0}, self.now),
            ]
        )

    def _die(self) -> None:
        self._reopen(f"session{self._sessions}")


def _is_refused(number: int, url: str) -> bool:
    return crc32(url.encode()) % 5 == number


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def test_every_key_touched_is_in_the_glossary(server: RedisServer) -> None:
    nodes = Nodes(Address.parse(server.url), Scripts(), NAME, SHARDS, OPENING)
    with server.client() as client, BlockingNodes(nodes) as link:
        with monitored(server) as seen:
            life = Life(link, client)
            for _ in range(STEPS):
                life.step()
        kept = {key.decode(): client.type(key).decode() for key in client.scan_iter()}
    glossary = Glossary(NAME)
    ours = [each for each in seen.asked if each.in_script or each.name == "EVALSHA"]
    assert Counter(glossary.strangers(ours)) == {}
    used = {each.words[1].decode() for each in ours if each.name == "EVALSHA"}
    assert used == {Scripts().sha(name) for name in Scripts().names()}, "every operation ran"
    touched = {
        entry
        for each in ours
        if each.in_script and each.name not in WITHOUT_KEYS
        for entry in glossary.entries(each.words[1].decode("latin-1"))
    }
    assert touched == set(SHARD_KEYS)
    assert kept == {key: glossary.entries(key)[0].kind for key in kept}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        pytest.param("HGET glossary:{0}:m x", "", id="as it should be"),
        pytest.param("HGET glossary:{0}:q x", "in the glossary 0 times", id="an unknown key"),
        pytest.param("HGET other:{0}:m x", "in the glossary 0 times", id="another's key"),
        pytest.param("LPUSH glossary:{0}:m x", "said to be a hash", id="another type"),
        pytest.param("HGET glossary:{2}:m x", "in a script on glossary:{0}", id="another shard"),
        pytest.param("HGET glossary:workers x", "in a script on", id="of no shard"),
    ],
)
def test_breaches_of_the_layers_are_found(command: str, problem: str) -> None:
    script = Asked((b"EVALSHA", b"sha", b"1", b"glossary:{0}"), in_script=False)
    inner = Asked(tuple(command.encode().split()), in_script=True)
    found = list(Glossary(NAME).strangers([script, inner]))
    assert any(problem in one for one in found) if problem else not found


def test_the_prelude_has_the_same_glossary() -> None:
    """Its placeholders are shorter: the names stand in a column."""
    lua = (PROJECT / "crawler/shared/lua/shard.lua").read_text("utf-8")
    listed = re.findall(r"(?m)^--   (<root>\S*) +(\w+)  ", lua)
    ours = [(key.name, key.kind) for key in SHARD_KEYS]
    assert sorted((_bare(name), kind) for name, kind in listed) == sorted(
        (_bare(name), kind) for name, kind in ours
    )


def _bare(name: str) -> str:
    return re.sub(r"<\w+>", "<>", name)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (keys.totals("n", 1), "<root>:m"),
        (keys.hosts("n", 1), "<root>:h"),
        (keys.queue("n", 1, 2, "a"), "<root>:b:2:a"),
        (keys.resting("n", 1), "<root>:r"),
        (keys.later("n", 1), "<root>:l"),
        (keys.sessions("n", 1), "<root>:w"),
        (keys.leases("n", 1, "s"), "<root>:o:s"),
        (keys.seen("n", 1, 3), "<root>:s:3"),
        (keys.dead("n", 1), "<root>:d"),
        (keys.outboxes("n", 1), "<root>:x"),
        (keys.claims("n", 1, 4), "<root>:g:4"),
        (keys.key_files("n", 1), "<root>:n"),
        (keys.robots("n", 1, "http://a"), "<root>:t:http://a"),
        (keys.near("n", 1, 2, 3), "<root>:a:2:3"),
        (keys.pattern_stats("n", 1, "a"), "<root>:y:a"),
    ],
)
def test_names_are_made_from_the_root(made: str, name: str) -> None:
    assert made == name.replace("<root>", "n:{1}")
