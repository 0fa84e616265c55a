"""A crawl whose shards workers own, looked at in a real redis-server: what is seen is what the
frontier of the owner has, in slices of any size; who owns what; counters that are counted again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed

from crawler.config.settings import PatternSettings, read_config
from crawler.data.data_dir import WORKER, WORKERS
from crawler.data.local_stores import MAX_PATTERNS, LocalPatternStats, RobotsRecords
from crawler.frontier import records
from crawler.frontier.dead_letters import dead_letters
from crawler.frontier.port import FrontierLimits
from crawler.frontier.reader import FrontierReader
from crawler.frontier.records import DeadLetter, RefusedRecord, decode_totals, encode
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.shards import Shards
from crawler.model.types import (
    Candidate,
    Claim,
    ConfigError,
    Dead,
    Done,
    HostKey,
    Pace,
    PutBack,
    Rest,
    RetryAt,
)
from crawler.operate.shared_client import check_shards, forget_worker
from crawler.policy.patterns import OTHER_PATTERNS, PatternStats
from crawler.policy.robots_cache import RobotsRecord, RobotsState
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.codec import WorkerRecord, pack_claim
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import CrawlFormat, encode_format, identity_of_shards
from crawler.shared.faults import ForeignData
from crawler.shared.owned.inbox import pack_links
from crawler.shared.owned.readings import OUTBOXES, new_token
from crawler.shared.owned.scripts import INBOX, SEEN_KEYS, OwnedScripts, ShardCommands
from crawler.view.hosts import HostQuery, HostSort
from crawler.view.identity import UrlIdentifier
from crawler.view.local import find_url, host_state
from crawler.view.owned import SLICE, OwnedCrawlReader, OwnedView
from crawler.view.port import HostState, KnownUrl, LaterUrl, LeasedUrl, WaitingUrl
from crawler.view.why import why
from tests.harness.frontiers import ADMIT_ALL, TIGHT, Refusing, candidate
from tests.harness.owned_world import SHARDS, OwnedWorld, open_nodes
from tests.servers.redis import RedisServer
from tests.servers.redis_glossary import READING
from tests.servers.redis_monitor import monitored
from tests.servers.redis_process import HOST

SEED = 2**63 + 12345
CONFIG = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
HOSTS = [f"{first}{second}.example" for first, second in product("abcde", "abcde")]
ANNA = WorkerRecord(name="anna", session="anna.1", host="the-machine", pid=77, outbox=3)
_names = count()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@dataclass
class Crawl:
    """A crawl in Redis, with an owner for all its shards."""

    server: RedisServer
    client: Any
    world: OwnedWorld
    added: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        crawl = CrawlFormat(SHARDS, 3, identity_of_shards(CONFIG), SEED)
        self.client.set(keys.format_key(self.world.name), encode_format(crawl))

    def reader(self, slice_entries: int = SLICE) -> OwnedCrawlReader:
        return OwnedCrawlReader(
            Address.parse(self.server.url), self.world.name, slice_entries=slice_entries
        )

    def embedded(self) -> FrontierReader:
        """Return what reads the store of the owner."""
        return FrontierReader(self.world.store, self.world.runs, Shards(SHARDS))

    def root(self, domain: str) -> str:
        return keys.root(self.world.name, int.from_bytes(Shards(SHARDS).of(domain)))

    def write_record(self, record: WorkerRecord, ago_s: float = 0.0) -> None:
        packed = msgspec.json.encode(changed(record, at=time.time() - ago_s))
        self.client.hset(keys.workers(self.world.name), record.name, packed)


@pytest.fixture
def crawl(server: RedisServer, tmp_path: Path) -> Iterator[Crawl]:
    with server.client() as client, open_nodes(server.port) as nodes:
        yield Crawl(server, client, OwnedWorld(client, nodes, tmp_path))


def live(crawl: Crawl, seed: int) -> None:
    """Let the owner of *crawl* lead a random life, with a take-over: URLs are in all places then,
    some hosts have run dry, some rest."""
    dice, now, world = Random(seed), 0.0, crawl.world
    frontier = world.reopen(now, ADMIT_ALL)
    for number in range(100):
        now += dice.random()
        found = [
            candidate(f"{number}/{at}", host=dice.choice(HOSTS), level=dice.randrange(3))
            for at in range(dice.randrange(4))
        ]
        crawl.added += found
        frontier.add(found, now)
        for lease in frontier.lease(now, dice.randrange(4)):
            if dice.random() < 0.1:
                continue  # it stays open
            pace = Pace(gap_s=dice.uniform(0, 9), failures=dice.choice((0, 0, 1, 300)))
            frontier.release(lease, Rest(dice.uniform(0, 9), pace), now)
            verdicts = (Done(), PutBack(), Dead("no"), RetryAt(now + dice.uniform(-1, 9)))
            frontier.finish(lease, dice.choice(verdicts), now)
        if number == 60:
            frontier = world.reopen(now, Refusing(lambda url: url.endswith("/2")))
    assert world.owner is not None
    changes: dict[bytes, bytes | None] = {}
    for at, prefix in enumerate((records.ARRIVED, records.UNDECIDED)):
        link = candidate(f"undecided{at}", host=HOSTS[at])
        crawl.added.append(link)
        number = records.number_in(Shards(SHARDS).of(link.host), 10**6)
        changes[records.numbered(prefix, number)] = encode([link])
    world.owner.store.write(changes)


def known(found: Candidate) -> KnownUrl:
    return KnownUrl(found.url, found.host, found.domain, found.key)


def first_of(states: list[HostState], query: HostQuery) -> list[HostState]:
    figures = {
        HostSort.WAITING: lambda state: state.waiting,
        HostSort.NEXT: lambda state: state.rest_until,
        HostSort.FAILURES: lambda state: state.pace.failures,
        HostSort.ADMITTED: lambda state: state.admitted,
        HostSort.REST: lambda state: state.pace.gap_s,
        HostSort.NAME: lambda state: 0,
    }
    fitting = [state for state in states if query.match in state.host]
    fitting.sort(key=lambda state: (-figures[query.sort](state), state.host))
    return fitting[query.offset : query.offset + query.top]


@pytest.mark.parametrize(("seed", "slice_entries"), [(0, SLICE), (1, 1), (2, 3)])
def test_what_is_seen_is_what_the_owner_has(crawl: Crawl, seed: int, slice_entries: int) -> None:
    live(crawl, seed)
    embedded = crawl.embedded()
    with crawl.reader(slice_entries) as reader:
        view = OwnedView(reader, Path("none"))
        own = embedded.counts()
        assert view.counts() == changed(own, hosts_active=own.leased, levels=())
        assert min(own.waiting, own.later, own.leased, own.dead, own.refused) > 0
        assert own.undecided == 2
        states = [host_state(host, record) for host, record in embedded.hosts()]
        for top, sort, match, offset in product((3, 99), HostSort, ("", "b.ex", "*"), (0, 5)):
            query = HostQuery(top, sort, match, offset)
            assert view.hosts(query) == first_of(states, query), query
        assert view.hosts(HostQuery(host=HostKey(HOSTS[3]))) == first_of(
            states, HostQuery(1, match=HOSTS[3])
        )
        assert not view.hosts(HostQuery(host=HostKey("unknown.example")))
        letters = sorted((letter for _, letter in dead_letters(crawl.world.store)), key=age)
        assert [each.at for each in view.dead(4)] == [each.at for each in letters[:4]]
        assert sorted(view.dead(999), key=age) == letters
        urls = [known(each) for each in [*crawl.added, candidate("unknown", host=HOSTS[0])]]
        seen = [embedded.is_seen(url.key) for url in urls]
        assert view.seen(urls) == seen and set(seen) == {True, False}
        asked = Counter[type]()
        for url in urls:
            place, is_undecided = find_url(embedded, url)
            asked[type(place)] += 1
            if asked[type(place)] > 9 and not is_undecided:
                continue
            if isinstance(place, WaitingUrl):  # it is due, whatever date it had
                place = replace(place, candidate=changed(place.candidate, not_before=0.0))
            record = view.url(url, url.url.__eq__)
            assert (record.place, record.is_undecided) == (place, is_undecided)
        kinds = {WaitingUrl, LeasedUrl, LaterUrl, DeadLetter, RefusedRecord, type(None)}
        assert asked.keys() == kinds
        assert all(not each.differs for each in check_shards(reader, is_repair=False).counters)


def age(letter: DeadLetter) -> tuple[float, str]:
    return letter.at, letter.candidate.url


def test_links_that_no_owner_has_read_are_undecided(crawl: Crawl) -> None:
    """They count, as do those on disks of workers, and one can be found."""
    crawl.world.reopen(0.0).add([candidate("x", host="a.example")], 0.0)
    crawl.write_record(ANNA, ago_s=99.0)
    urgent = candidate("now", host="a.example", level=keys.URGENT_LEVEL)
    links = [candidate("y", host="a.example"), urgent]
    crawl.client.hset(f"{crawl.root('a.example')}:{INBOX}", "a name", pack_links(links))
    with crawl.reader() as reader:
        view = OwnedView(reader, Path("none"))
        assert (view.counts().waiting, view.counts().undecided) == (1, 2 + ANNA.outbox)
        found = [view.url(known(link), link.url.__eq__) for link in links]
    assert [record.is_undecided for record in found] == [True, True]
    assert [record.place for record in found] == [
        WaitingUrl(links[0], 1),
        WaitingUrl(urgent, 0, is_urgent=True),
    ]


def test_a_long_queue_is_read_in_the_order_of_its_turns(crawl: Crawl) -> None:
    """Its chunks have many URLs; the first one is under way in part."""
    crawl.world.limits = FrontierLimits()
    frontier = crawl.world.reopen(0.0)
    links = [candidate(str(number), host="a.example") for number in range(2_500)]
    frontier.add(links, 0.0)
    (lease,) = frontier.lease(0.0)
    assert lease.candidate.url == links[0].url
    with crawl.reader() as reader:
        view = OwnedView(reader, Path("none"))
        for number in (1, 2, 999, 1000, 1001, 2_499):
            place = view.url(known(links[number]), links[number].url.__eq__).place
            assert place == WaitingUrl(links[number], number - 1)
        assert all(not each.differs for each in check_shards(reader, is_repair=False).counters)


def test_who_owns_what(crawl: Crawl) -> None:
    """By their claims, whatever the workers announce; a lease is one of the shard's owner."""
    name, link = crawl.world.name, candidate("x", host="a.example")
    crawl.world.reopen(0.0).add([link], 0.0)
    assert crawl.world.owner is not None
    assert crawl.world.owner.frontier.lease(0.0)
    crawl.write_record(changed(ANNA, preferred=77))
    crawl.write_record(changed(ANNA, name="berta"))
    with crawl.reader() as reader:
        view = OwnedView(reader, Path("none"))
        assert view.unowned_shards() == SHARDS, "by a clock that is far ahead"
        number = reader.shard("a.example").number
        for shard in range(SHARDS):
            crawl.client.hset(keys.root(name, shard), "until", 1)
            owner = new_token("anna" if shard == number else "berta")
            scripts, lease_s = OwnedScripts(), 100.0 if shard != number + 1 else 0.0
            commands = ShardCommands(scripts, name, shard, owner, lease_s)
            with BlockingNodes(
                Nodes(Address(host=HOST, port=crawl.server.port), scripts, name, SHARDS, ())
            ) as nodes:
                nodes.commands([(shard, commands.claim(begins=False))])
        place = view.url(known(link), link.url.__eq__).place
        assert isinstance(place, LeasedUrl) and place.worker == "anna"
        owned = {worker.name: worker.preferred for worker in view.workers()}
        assert owned["anna"] == 1
        assert owned["berta"] + view.unowned_shards() == SHARDS - 1


def test_a_dead_worker_is_forgotten_with_its_notes(crawl: Crawl) -> None:
    crawl.world.reopen(0.0)
    notes = [f"{keys.root(crawl.world.name, shard)}:{OUTBOXES}" for shard in range(SHARDS)]
    for note in notes:
        crawl.client.sadd(note, "anna", "berta")
    crawl.write_record(ANNA)
    with crawl.reader() as reader:
        with pytest.raises(ConfigError, match="anna is alive"):
            forget_worker(reader, "anna")
        with pytest.raises(ConfigError, match="no worker berta"):
            forget_worker(reader, "berta")
        crawl.write_record(ANNA, ago_s=99.0)
        assert forget_worker(reader, "anna").outbox == ANNA.outbox
        assert OwnedView(reader, Path("none")).workers() == []
    assert [crawl.client.smembers(note) for note in notes] == [{b"berta"}] * SHARDS


def test_counters_that_drifted_are_found_and_not_repaired(crawl: Crawl) -> None:
    crawl.world.reopen(0.0).add([candidate("x", host=host) for host in HOSTS], 0.0)
    root = crawl.root(HOSTS[0])
    totals = decode_totals(crawl.client.hget(root, "totals"))
    names = ("waiting", "later", "leased", "seen", "dead", "refused")
    for by, name in enumerate(names, 1):
        setattr(totals, name, getattr(totals, name) + by)
    crawl.client.hset(root, "totals", encode(totals))
    with crawl.reader() as reader:
        found = check_shards(reader, is_repair=False)
        with pytest.raises(ConfigError, match="counts again when it takes a shard over"):
            check_shards(reader, is_repair=True)
    differing = {each.name: each.stored - each.counted for each in found.counters if each.differs}
    assert differing == {name: by for by, name in enumerate(names, 1)}
    assert (found.is_correct, found.uncounted) == (False, [])


def test_looking_changes_nothing(crawl: Crawl) -> None:
    live(crawl, 3)
    link = crawl.added[0]
    with crawl.reader() as reader, monitored(crawl.server) as seen:
        view = OwnedView(reader, Path("none"))
        look_at_all(view)
        check_shards(reader, is_repair=False)
        why(link.url, view, CONFIG, {"scope": "any"})
        view.pattern_stats(known(link), "/#")
        view.workers()
    assert {each.name for each in seen.asked} <= {*READING, "HMGET"}


class BusyShard(OwnedCrawlReader):
    """Batches are written to shard 1 while it is counted."""

    def ask(self, key: str, command: str, *args: Argument) -> Any:
        root = keys.root(self.name, 1)
        if key == f"{root}:{SEEN_KEYS}":
            self.link.command(root, "HINCRBY", root, "seq", 1)
        return super().ask(key, command, *args)


def test_a_shard_that_changes_is_not_counted(crawl: Crawl) -> None:
    crawl.world.reopen(0.0).add([candidate("x", host=host) for host in HOSTS], 0.0)
    with BusyShard(Address.parse(crawl.server.url), crawl.world.name) as reader:
        found = check_shards(reader, is_repair=False)
    assert found.uncounted == [1]
    assert {each.shard for each in found.counters} == {0, 2}


def test_why_of_urls(crawl: Crawl, tmp_path: Path) -> None:
    """By what is in Redis, and on the disks of the workers on this machine."""
    identifier = UrlIdentifier(CONFIG, SEED)

    def link(url: str) -> Candidate:
        found = identifier.identify(url)
        return Candidate(url=url, key=found.key, host=found.host, domain=found.domain)

    crawl.world.limits = replace(TIGHT, max_urls_per_domain=2)
    frontier = crawl.world.reopen(0.0)
    frontier.add([link(f"http://www.a.example/{number}") for number in range(2)], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, Rest(0.0, Pace()), 0.0)
    frontier.finish(lease, Done(), 0.0)
    name = crawl.world.name
    crawl.client.zadd(keys.opened_hosts(name), {"a.example": 1, "b.example": 2})
    file, packed = pack_claim(Claim(b"digest", lease.candidate.url, "c.warc.gz:7", at=5.0))
    root = crawl.root("z.example")
    crawl.client.hset(root, "claims", 1)
    crawl.client.hset(f"{root}:n", mapping={"<0": file, f">{file}": 0})
    crawl.client.rpush(f"{root}:g:0", bytes(3) + packed)
    url = "http://www.a.example/3"
    for number, fetched_at in enumerate((2.0, 3.0, 1.0)):
        folder = tmp_path / WORKERS / str(number)
        folder.mkdir(parents=True)
        with closing(RocksStore(folder / WORKER)) as store:
            body = f"User-agent: *\nDisallow: /{3 if fetched_at == 3.0 else 1}".encode()
            robots = RobotsRecord(
                "http://www.a.example", RobotsState.RULES, fetched_at, time.time() + 99, body=body
            )
            RobotsRecords(store).put(robots)
    with crawl.reader() as reader:
        view = OwnedView(reader, tmp_path)
        budget = read_config({"CRAWLER_CONTACT": "ops@w3.org", "CRAWLER_MAX_URLS_PER_DOMAIN": 2})
        answer = why(url, view, budget, {"scope": "any"})
        assert (answer.seen, answer.rule, answer.robots) == (False, "domain_budget", "disallowed")
        assert view.grounds(identifier.identify(url)).opened_hosts == {"a.example"}
        first = why(lease.candidate.url, view, CONFIG, {"scope": "any"})
        assert (first.seen, first.kept_at, first.kept_record) == (True, 5.0, "c.warc.gz:7")
        assert first.host_next_at is not None
        second = why("http://www.a.example/1", view, CONFIG, {"scope": "any"})
        assert (second.seen, second.waiting, second.level) == (True, 0, 0)


def test_patterns(crawl: Crawl) -> None:
    crawl.world.reopen(0.0)
    assert crawl.world.owner is not None
    store = crawl.world.owner.store
    pages = LocalPatternStats(store, PatternSettings(), shards=Shards(SHARDS))
    for number in range(9):
        pages.record_page(candidate(f"day/{number}", host="a.example"), number < 3, 5.0)
    url = known(candidate("day/77", host="a.example"))
    with crawl.reader() as reader:
        view = OwnedView(reader, Path("none"))
        assert view.pattern_stats(url, "/day/#") == pages.pattern_and_stats(url.host, "/day/#")
        assert view.pattern_stats(url, "/day/#")[1].pages == 9
        assert view.pattern_stats(url, "/night/#") == ("/night/#", PatternStats())
        shard = Shards(SHARDS).of("a.example")
        of_host = records.in_shard(records.PATTERN, shard, "a.example")
        others = records.pattern_of_host(shard, url.host, OTHER_PATTERNS)
        store.write({of_host: encode((MAX_PATTERNS, 0)), others: encode(PatternStats(5, 4, 1, 2))})
        assert view.pattern_stats(url, "/night/#") == (OTHER_PATTERNS, PatternStats(5, 4, 1, 2))


@pytest.mark.parametrize("kind", ["h", "b", "o", "l", "d", "x", "u", "v", INBOX, "s", "totals"])
def test_records_that_are_not_ours_are_refused(crawl: Crawl, kind: str) -> None:
    link = candidate("x", host="a.example")
    crawl.world.reopen(0.0).add([link], 0.0)
    root, garbage = crawl.root("a.example"), b"\xc1a.example"
    if kind == "totals":
        crawl.client.hset(root, kind, garbage)
    elif kind == "s":
        crawl.client.rpush(f"{root}:s", garbage)
    elif kind == "b":
        (name,) = crawl.client.hkeys(f"{root}:b")
        crawl.client.hset(f"{root}:b", name, garbage)
    else:
        crawl.client.hset(f"{root}:{kind}", "a.example", garbage)
    with crawl.reader() as reader, pytest.raises(ForeignData, match=r"not write|cannot be read"):
        look_at_all(OwnedView(reader, Path("none")))


def look_at_all(view: OwnedView) -> None:
    view.counts()
    view.hosts(HostQuery())
    view.dead(1)
    view.url(known(candidate("y", host="a.example")), str.isupper)


def test_a_crawl_that_is_not_there(server: RedisServer) -> None:
    with pytest.raises(ConfigError, match="has no crawl nothing"):
        OwnedCrawlReader(Address.parse(server.url), "nothing")
