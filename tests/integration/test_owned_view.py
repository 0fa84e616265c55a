"""A crawl that workers share, looked at in a real redis-server: what is seen is what the frontier
of the owner has, in slices of any size; who owns what; counters that are counted again. And what
`scrapy frontier` prints of it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, closing, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace as changed
from scrapy.cmdline import execute
from scrapy.settings import Settings

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
    Again,
    Candidate,
    Claim,
    ConfigError,
    Dead,
    Done,
    HostFetch,
    HostKey,
    Pace,
    PageHistory,
    PutBack,
    Rest,
    RetryAt,
    Verdict,
)
from crawler.operate.shared_client import check_shards, forget_worker
from crawler.policy.budgets import BudgetRules
from crawler.policy.patterns import OTHER_PATTERNS, PatternStats
from crawler.policy.revisits import ChangeRate, pack_rate
from crawler.policy.robots_cache import RobotsRecord, RobotsState
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.codec import WorkerRecord, pack_claim
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import CrawlFormat, encode_format, identity_of_shards
from crawler.shared.faults import ForeignData
from crawler.shared.owned.inbox import pack_links
from crawler.shared.owned.readings import OUTBOXES, new_token, read_rests
from crawler.shared.owned.scripts import INBOX, SEEN_KEYS, OwnedScripts, ShardCommands
from crawler.view.budgets import DomainQuery
from crawler.view.hosts import HostFilter, HostQuery, HostSort
from crawler.view.identity import UrlIdentifier
from crawler.view.local import find_url, host_state
from crawler.view.owned import SLICE, OwnedCrawlReader, OwnedView
from crawler.view.port import HostState, KnownUrl, LaterUrl, LeasedUrl, WaitingUrl
from crawler.view.why import why
from tests.harness.crawling import crawl as crawled
from tests.harness.frontiers import ADMIT_ALL, TIGHT, Refusing, candidate
from tests.harness.owned_world import SCRIPTS, SHARDS, OwnedWorld
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Routes, page, site
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_glossary import READING, Glossary
from tests.servers.redis_monitor import monitored

SEED = 2**63 + 12345
CONFIG = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
HOSTS = [f"{first}{second}.example" for first, second in product("abcde", "abcde")]
IDENTIFIER = UrlIdentifier(CONFIG, SEED)
ANNA = WorkerRecord(name="anna", session="anna.1", host="the-machine", pid=77, outbox=3)
PHRASE = "kept: {}/@"  # no text may show it
_names = count()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(password=PHRASE) as server:
        yield server


def identified(url: str, **given: Any) -> Candidate:
    found = IDENTIFIER.identify(url)
    return Candidate(url=url, key=found.key, host=found.host, domain=found.domain, **given)


class Printed(NamedTuple):
    """What a command has printed, and its exit status."""

    status: int
    out: str
    err: str


def frontier(given: dict[str, Any], *asked: str) -> Printed:
    """Run the command in this process, which is a second quicker."""
    command = ["scrapy", "frontier", *asked]
    for name, value in given.items():
        command += ["-s", f"{name}={value}"]
    settings = Settings()
    settings.setmodule("crawler.settings", priority="project")
    out, err = StringIO(), StringIO()
    with (
        chdir(PROJECT),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        execute(command, settings)
    assert isinstance(ended.value.code, int)
    return Printed(ended.value.code, out.getvalue(), err.getvalue())


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
        at = time.time() - ago_s
        packed = msgspec.json.encode(changed(record, at=at, started=at - 10))
        self.client.hset(keys.workers(self.world.name), record.name, packed)

    def finish(self, url: str, verdict: Verdict) -> None:
        """Let *url*, the only one that is due, be fetched."""
        assert self.world.owner is not None
        frontier, now = self.world.owner.frontier, time.time()
        frontier.add([identified(url)], now)
        (lease,) = frontier.lease(now, 2)
        frontier.release(lease, Rest(0.0, Pace()), now)
        frontier.finish(lease, verdict, now)

    def settings(self) -> dict[str, Any]:
        return {
            "CRAWLER_FRONTIER_URL": self.server.url,
            "CRAWLER_FRONTIER_NAME": self.world.name,
            "CRAWLER_DATA_DIR": self.world.folder / "none",
        }

    def command(self, *asked: str) -> Printed:
        return frontier(self.settings(), *asked)

    def answer(self, *asked: str) -> Any:
        reply = self.command(*asked, "--json")
        assert reply.status == 0, reply.err
        return json.loads(reply.out)


@pytest.fixture
def crawl(server: RedisServer, tmp_path: Path) -> Iterator[Crawl]:
    nodes = Nodes(Address.parse(server.url), SCRIPTS, "owned", 1)
    with server.client() as client, BlockingNodes(nodes) as blocking:
        yield Crawl(server, client, OwnedWorld(client, blocking, tmp_path))


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
            frontier.release(
                lease,
                Rest(
                    dice.uniform(0, 9),
                    pace,
                    address=f"192.0.2.{number % 3}",
                    fetches=(HostFetch(is_page=True),),
                ),
                now,
            )
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
        HostSort.FETCH: lambda state: 0,
        HostSort.PAGES: lambda state: state.tally.pages,
        HostSort.BYTES: lambda state: 0,
        HostSort.SUCCESS: lambda state: -1 if state.tally.fetches else -2,
        HostSort.FAILED: lambda state: 0,
        HostSort.END: lambda state: state.waiting * max(state.pace.gap_s, 0.1),
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
        assert view.hosts(HostQuery(99, address="192.0.2.1")) == first_of(
            [state for state in states if state.address == "192.0.2.1"], HostQuery(99)
        )
        assert view.hosts(HostQuery(99, state=HostFilter.FAILING)) == first_of(
            [state for state in states if state.pace.failures], HostQuery(99)
        )
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


def test_how_fresh_the_copies_are(crawl: Crawl) -> None:
    """A page that changed at half of its visits, one that never did, one with a date, and one that
    is gone."""
    crawl.write_record(ANNA)
    now, pages = int(time.time()), [f"https://{host}/a" for host in HOSTS[:4]]
    crawl.world.reopen(now - 1.0, ADMIT_ALL)
    old, rate = now - 10 * 86_400, pack_rate(ChangeRate(2.0, 20.0))
    again = {
        pages[0]: Again(PageHistory(old, old, old, visits=6, changes=3, rate=rate)),
        pages[1]: Again(PageHistory(old, old, old, visits=6)),
        pages[2]: Again(PageHistory(now, now, now), at=now + 7 * 86_400.0),
    }
    assert crawl.world.owner is not None
    owned = crawl.world.owner.frontier
    before = PageHistory(old, old, old, rate=rate)
    owned.add([identified(url, history=before if url == pages[0] else None) for url in pages], now)
    for lease in owned.lease(now, 4):
        url = lease.candidate.url
        gone = None if url in again else PageHistory(old, old, old, visits=2, gone=3)
        owned.release(lease, Rest(0.0, Pace()), now)
        owned.finish(lease, Done(again=again.get(url), gone=gone), now)
    found = crawl.answer("fresh")
    assert (found["pages"], found["dated"], found["visits"], found["changes"]) == (3, 1, 13, 3)
    assert 0.5 < found["fresh"] < 0.9 and found["oldest_days"] == pytest.approx(10, abs=0.01)
    assert [each["host"] for each in found["patterns"]] == [HOSTS[0]]
    assert crawl.answer("fresh", HOSTS[1].upper())["pages"] == 1
    asked = crawl.answer("fresh", pages[0])
    assert (asked["by"], asked["visits"], asked["changes"]) == ("worth", 6, 3)
    assert asked["change_days"] == pytest.approx(10.0, rel=1e-3) and asked["is_own_rate"]
    assert asked["stale"] == pytest.approx(1 - (1 + 10 / 20) ** -2, rel=1e-3)
    dated = crawl.answer("fresh", pages[2])
    assert dated["due_at"] == pytest.approx(now + 7 * 86_400, abs=1)
    why = crawl.answer("why", pages[0])
    assert why["visits"]["due_at"] == why["later_at"] > 0, "not at the date 0"
    text = crawl.command("fresh", pages[0], "-s", "CRAWLER_REVISIT=adaptive").out
    assert "It is visited again when that is worth it" in text
    assert "visited 6 times, the last time 10 d 0 h ago; 3 changes found" in text
    gone = crawl.answer("fresh", pages[3])
    assert (gone["place"], gone["gone_at"], gone["visits"]) == ("gone", now, 2)
    assert gone["named_from"] == now + 30 * 86_400
    text = crawl.command("fresh", pages[3]).out
    assert "It is gone, as its last visit found" in text
    assert "why it is gone is in the log of the worker that visited it" in text
    assert re.search(r"is fetched in (30 d 0|29 d 23) h or later names it", text)
    assert "It is gone" in crawl.command("why", pages[3]).out


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
        None,
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
    name, leased = crawl.world.name, candidate("x", host="a.example")
    crawl.world.reopen(0.0).add([leased], 0.0)
    assert crawl.world.owner is not None
    assert crawl.world.owner.frontier.lease(0.0)
    crawl.write_record(changed(ANNA, shards=77))
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
                Nodes(Address.parse(crawl.server.url), scripts, name, SHARDS)
            ) as nodes:
                nodes.commands([(shard, commands.claim(begins=False))])
        place = view.url(known(leased), leased.url.__eq__).place
        assert isinstance(place, LeasedUrl) and place.worker == "anna"
        owned = {worker.name: worker.shards for worker in view.workers()}
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
    names = ("waiting", "later", "leased", "seen", "dead", "refused", "spilled", "capped")
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
    shown, refused = crawl.command("check"), crawl.command("check", "--repair")
    assert (shown.status, refused.status, refused.out) == (1, 1, "")
    number = int.from_bytes(Shards(SHARDS).of(HOSTS[0]))
    assert re.search(
        rf"(?m)^shard {number}: waiting: the counter says \d+, counted \d+$", shown.out
    )
    advice = "A worker counts again when it takes a shard over: stop all workers, start them again"
    assert f"8 counters differ. {advice}, and check again" in shown.out
    assert advice in refused.err
    crawl.world.reopen(0.0)
    again = crawl.command("check")
    assert (again.status, again.err) == (0, "")
    assert f"{10 * SHARDS} counters counted again: all are right" in again.out


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
    crawl.world.limits = replace(TIGHT, max_urls_per_domain=2)
    frontier = crawl.world.reopen(0.0)
    frontier.add([identified(f"http://www.a.example/{number}") for number in range(2)], 0.0)
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
        assert view.grounds(IDENTIFIER.identify(url)).opened_hosts == {"a.example"}
        first = why(lease.candidate.url, view, CONFIG, {"scope": "any"})
        assert (first.seen, first.kept_at, first.kept_record) == (True, 5.0, "c.warc.gz:7")
        assert first.host_next_at is not None
        second = why("http://www.a.example/1", view, CONFIG, {"scope": "any"})
        assert (second.seen, second.waiting, second.level) == (True, 0, 0)


def test_why_of_urls_over_the_budget_of_their_domain(crawl: Crawl, tmp_path: Path) -> None:
    crawl.world.limits = replace(TIGHT, budgets=BudgetRules(least=2, most=2, ranked=1))
    began = time.time()
    frontier = crawl.world.reopen(began)
    urls = [f"http://www.a.example/{number}" for number in range(150)]
    for at in range(0, len(urls), 10):
        found = [identified(url, depth=1) for url in urls[at : at + 10]]
        frontier.add(found, began, at_once=True)
    config = read_config({"CRAWLER_CONTACT": "ops@w3.org", "CRAWLER_DOMAIN_BUDGET": 2})
    config = replace(config, limits=replace(config.limits, top_domain_budget=2, top_domains=1))
    with crawl.reader() as reader:
        view = OwnedView(reader, tmp_path)
        for left in (0, 2):
            answers = [why(url, view, config, {"scope": "any"}) for url in urls]
            counts = frontier.counts()
            (domain,) = {answer.domain for answer in answers if answer.domain is not None}
            assert (domain.domain, domain.budget, domain.used) == ("a.example", 2, 2)
            assert (domain.spilled, domain.sampled_out) == (counts.spilled, counts.sampled_out)
            assert 10 < counts.spilled < 100 < counts.spilled + counts.sampled_out
            assert domain.kept_share < 1
            places = [answer.spilled for answer in answers if answer.spilled is not None]
            assert sorted(places) == list(range(counts.spilled))
            assert sum(answer.seen for answer in answers) == 2 + left
            rest = [each for each in answers if not each.seen and each.spilled is None]
            assert sum(each.sampled_out for each in rest) > len(rest) / 2, "by its key"
            assert view.domains(DomainQuery(5))[0][0] == "a.example"
            assert view.domains(DomainQuery(5, match="b.")) == []
            if not left:  # a round later two more are admitted, from the first chunk
                frontier.lease(began + 3601, 1)
                frontier.commit()


def test_a_crawl_is_not_over_while_spilled_urls_will_be_released(crawl: Crawl) -> None:
    """By what Redis has of all shards: an owner may release them later, as while it is paused."""
    world = crawl.world

    def is_left() -> bool:
        async def read() -> bool:
            nodes = Nodes(Address.parse(crawl.server.url), SCRIPTS, world.name, SHARDS)
            await nodes.open()
            rests = await read_rests(nodes, world.name, SHARDS)
            await nodes.close()
            assert rests is not None
            return any(each.is_left for each in rests)

        return asyncio.run(read())

    def fetch_one() -> None:
        (lease,) = frontier.lease(0.0)
        frontier.release(lease, Rest(0.0, Pace()), 0.0)
        frontier.finish(lease, Done(), 0.0)

    few = BudgetRules(least=1, most=1, ranked=1)
    world.limits = replace(TIGHT, budgets=few, max_urls_per_domain=2)
    frontier = world.reopen(0.0)
    frontier.add([candidate(name, host="a.example") for name in "xyz"], 0.0, at_once=True)
    fetch_one()
    counts = frontier.counts()
    assert (counts.waiting, counts.spilled, counts.capped) == (0, 2, 0)
    assert is_left()
    fetch_one()
    counts = frontier.counts()
    assert (counts.waiting, counts.spilled, counts.capped) == (0, 1, 1)
    assert not is_left()


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


# What commands print.


def test_counts_and_hosts(crawl: Crawl) -> None:
    frontier = crawl.world.reopen(time.time())
    crawl.finish("http://d.example/done", Done())
    crawl.finish("http://d.example/dead", Dead("no"))
    for host, number in (("a", 7), ("b", 3), ("c", 2)):
        links = [identified(f"http://{host}.example/{at}", level=at % 3) for at in range(number)]
        frontier.add(links, time.time())
    crawl.write_record(changed(ANNA, state="working"))
    crawl.write_record(changed(ANNA, name="berta", outbox=4), ago_s=3600)
    answer = crawl.answer("counts")
    counts = {name: answer["counts"][name] for name in ("waiting", "seen", "done", "dead")}
    assert counts == {"waiting": 12, "seen": 14, "done": 1, "dead": 1}
    assert (answer["workers"], answer["outbox"]) == (1, 7)
    shown = crawl.command("counts").out
    assert shown.startswith(f"the crawl {crawl.world.name} in Redis at 127.0.0.1:")
    assert "1 worker at work" in shown
    assert re.search(r"(?m)^undecided +7 ", shown) and re.search(r"(?m)^left +19 ", shown)
    found = crawl.answer("hosts", "--top", "2")
    assert [(host["host"], host["waiting"]) for host in found] == [
        ("a.example", 7),
        ("b.example", 3),
    ]
    by_name = ("--sort", "name", "--match", "EXAMPLE", "--offset", "1", "--top", "2")
    assert [host["host"] for host in crawl.answer("hosts", *by_name)] == ["b.example", "c.example"]
    (lease,) = frontier.lease(time.time(), 1)
    frontier.release(lease, Rest(500.0, Pace(gap_s=9.0, failures=2)), time.time())
    (resting,) = crawl.answer("hosts", "--host", lease.candidate.host)
    assert (resting["place"], resting["gap_s"], resting["failures"]) == ("resting", 9.0, 2)
    assert 400 < resting["next_at"] - time.time() <= 500
    unknown = crawl.command("hosts", "--host", "nobody.example")
    assert (unknown.status, unknown.out) == (1, "")
    assert "has no host nobody.example" in unknown.err


def test_why_says_where_a_url_is(crawl: Crawl) -> None:
    frontier = crawl.world.reopen(time.time())
    crawl.finish("http://done.example/", Done())
    crawl.finish("http://dead.example/", Dead("status 503, tried 4 times"))
    crawl.finish("http://later.example/", RetryAt(time.time() + 600))
    frontier.add([identified("http://leased.example/")], time.time())
    assert len(frontier.lease(time.time(), 2)) == 1
    links = [identified(f"http://a.example/{number}", level=1) for number in range(9)]
    urgent = identified("http://urgent.example/", level=keys.URGENT_LEVEL)
    frontier.add(links, time.time())
    crawl.client.hset(f"{crawl.root('urgent.example')}:{INBOX}", "a name", pack_links([urgent]))
    crawl.client.hset(crawl.root("leased.example"), "owner", new_token("anna"))
    crawl.write_record(changed(ANNA, outbox=1234), ago_s=60)
    for url, said in (
        ("http://a.example/6?utm_source=x", "waits behind 6 URLs of its host at level 1"),
        ("http://urgent.example/", "waits behind 0 URLs of its host, before all levels"),
        ("http://leased.example/", "by the worker anna: it is being fetched, or was when"),
        ("http://later.example/", ", after 1 failure"),
        ("http://dead.example/", " ago: status 503, tried 4 times"),
        ("http://done.example/", "what came of it is in the log of the worker that fetched it"),
        ("http://a.example/new", "it may be among 1,234 links on workers' disks"),
    ):
        shown = crawl.command("why", url)
        assert said in shown.out, shown
    later, waiting = (
        crawl.answer("why", url) for url in ("http://later.example/", "http://a.example/6")
    )
    assert 500 < later["later_at"] - time.time() <= 600
    assert (waiting["seen"], waiting["waiting"], waiting["level"]) == (True, 6, 1)


def test_the_oldest_dead_letters_come_first(crawl: Crawl) -> None:
    crawl.world.reopen(time.time())
    for number in range(4):
        crawl.finish(f"http://{number}.example/", Dead(f"reason {number}"))
    found = crawl.answer("dead", "--limit", "3")
    assert [letter["reason"] for letter in found] == ["reason 0", "reason 1", "reason 2"]
    shown = crawl.command("dead", "--limit", "3").out
    assert "3 of 4 dead letters" in shown
    again = f"retry URL -s CRAWLER_FRONTIER_URL=... -s CRAWLER_FRONTIER_NAME={crawl.world.name}"
    assert again in shown, "what was typed, but for the password"


def test_workers(crawl: Crawl) -> None:
    crawl.write_record(changed(ANNA, state="working", pages=50))
    crawl.write_record(changed(ANNA, name="berta", pages=30, outbox=12), ago_s=3600)
    anna, berta = crawl.answer("workers")
    assert (anna["name"], anna["state"], anna["pages_per_s"]) == ("anna", "working", 5.0)
    assert (berta["state"], berta["outbox"]) == ("silent", 12)
    shown = crawl.command("workers").out
    assert "scrapy frontier workers --forget berta" in shown
    assert "--forget anna" not in shown
    assert f"{SHARDS} shards without an owner" in shown
    alive = crawl.command("workers", "--forget", "anna")
    assert (alive.status, alive.out) == (1, "")
    assert "anna is alive" in alive.err
    assert "12 links" in crawl.command("workers", "--forget", "berta").out
    assert "has no worker berta" in crawl.command("workers", "--forget", "berta").err
    assert [one["name"] for one in crawl.answer("workers")] == ["anna"]


def test_a_data_directory_has_no_workers(tmp_path: Path) -> None:
    reply = frontier({"CRAWLER_DATA_DIR": tmp_path / "none"}, "workers")
    assert reply.status == 1
    assert "CRAWLER_FRONTIER_URL" in reply.err


def test_looking_changes_nothing(crawl: Crawl) -> None:
    live(crawl, 3)
    crawl.write_record(ANNA)
    with monitored(crawl.server) as seen:
        for asked in (
            *(["counts"], ["hosts"], ["hosts", "--host", HOSTS[0]], ["dead"], ["audit"]),
            *(["why", link.url] for link in crawl.added[::20]),
            *(["workers"], ["check"]),
        ):
            assert crawl.command(*asked).status == 0
    assert {each.name for each in seen.asked} <= READING
    assert list(Glossary(crawl.world.name).strangers(seen.asked)) == []


def test_a_crawl_that_is_not_there_is_not_made(crawl: Crawl) -> None:
    given = {**crawl.settings(), "CRAWLER_FRONTIER_NAME": "none"}
    for asked in (["counts"], ["retry", "--all"], ["workers"], ["why", "http://a.example/"]):
        reply = frontier(given, *asked)
        assert (reply.status, reply.out) == (1, "")
        assert "has no crawl none: none has begun there" in reply.err
    assert crawl.client.keys("none*") == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"CRAWLER_STRIP_TRACKING": "false"}, "other rules", id="other rules"),
        pytest.param(
            {"CRAWLER_FRONTIER_URL": "redis://:wrong@127.0.0.1:{port}"},
            "does not accept the user or the password",
            id="a wrong password",
        ),
        pytest.param(
            {"CRAWLER_FRONTIER_URL": "redis://:wrong@127.0.0.1:1"},
            "takes no connections",
            id="no server",
        ),
    ],
)
def test_a_server_that_cannot_be_asked_is_reported(
    crawl: Crawl, given: dict[str, str], message: str
) -> None:
    given = {name: value.format(port=crawl.server.port) for name, value in given.items()}
    reply = frontier({**crawl.settings(), **given}, "why", "http://a.example/")
    assert (reply.status, reply.out) == (1, "")
    assert message in reply.err
    assert not any(each in reply.err for each in ("wrong@", "Traceback", PHRASE))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param("{}:format", b"{", "is no format of a crawl of ours", id="a torn format"),
        pytest.param(
            "{}:format",
            b'{"shards":1000000000,"levels":3,"identity":[]}',
            "is no format of a crawl of ours",
            id="shards without end",
        ),
        pytest.param(
            "{}:format",
            b'{"shards":4,"levels":3,"identity":[],"schema":"77"}',
            "has schema 77",
            id="another version",
        ),
        pytest.param("{}:workers", b"x", "of another type", id="another type"),
    ],
)
def test_foreign_data_is_refused(crawl: Crawl, key: str, value: bytes, message: str) -> None:
    crawl.client.set(key.format(crawl.world.name), value)
    reply = crawl.command("workers")
    assert (reply.status, reply.out) == (1, "")
    assert message in reply.err


@pytest.mark.parametrize("kind", [RedisServer, RedisCluster], ids=["one server", "a cluster"])
def test_after_a_crawl(
    kind: type[RedisServer | RedisCluster], server: RedisServer, tmp_path: Path
) -> None:
    """As its worker has left it, seen from its own data directory and from another."""
    routes: Routes = {
        "/": page("/a", "/b", "/boom"),
        "/a": page("/", text="the same"),
        "/b": page("/", text="the same"),
        "/boom": lambda hit: Reply("not now", 503) if hit == 1 else page(text="at last"),
    }
    data, name = tmp_path / "data", f"crawl{next(_names)}"
    with nullcontext(server) if kind is RedisServer else RedisCluster() as redis:
        given = {"CRAWLER_FRONTIER_URL": redis.url, "CRAWLER_FRONTIER_NAME": name}
        here, elsewhere = (
            {**given, "CRAWLER_DATA_DIR": str(folder)} for folder in (data, tmp_path / "none")
        )
        with site("127.0.0.76", routes) as web:
            url = {path: web.url(path) for path in routes}
            done = crawled(data, settings={**here, "CRAWLER_RETRIES": 0}, seeds=url["/"])
            assert done.reason == "finished"
            shown = frontier(here, "why", url["/a"])
            assert "done: status 200" in shown.out, shown.err
            assert "archived at crawl-" in shown.out
            assert "robots.txt allows it" in shown.out
            kept = [frontier(elsewhere, "why", url[path]).out for path in ("/a", "/b")]
            assert sum("with content of its own, archived at crawl-" in one for one in kept) == 1
            counts = json.loads(frontier(elsewhere, "counts", "--json").out)
            assert (counts["counts"]["done"], counts["counts"]["dead"]) == (3, 1)
            assert counts["workers"] == 0
            shown = frontier(elsewhere, "workers")
            assert "without an owner: none of their hosts is contacted until" in shown.out
            put_back = frontier(elsewhere, "retry", url["/boom"])
            assert "carried out while the crawl runs" in put_back.out, put_back.err
            assert web.asked.count("/boom") == 1
            done = crawled(data, settings={**here, "CRAWLER_RETRIES": 0})
            assert done.reason == "finished"
            assert (
                "/boom" in web.asked
                and "done: status 200" in frontier(here, "why", url["/boom"]).out
            )
            assert "URLs put back" not in frontier(elsewhere, "retry", url["/boom"]).out
