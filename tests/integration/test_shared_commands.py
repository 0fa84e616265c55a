"""`scrapy frontier` on a crawl that workers share: its output, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec.structs import replace
from scrapy.cmdline import execute
from scrapy.settings import Settings

from crawler.config.settings import Config, read_config
from crawler.frontier.open import frontier_limits
from crawler.model.counts import Counts
from crawler.model.types import (
    Candidate,
    Claim,
    Dead,
    Done,
    Lease,
    Pace,
    Rest,
    RetryAt,
    Verdict,
)
from crawler.model.url import authority_of
from crawler.operate.shared_client import Recount
from crawler.policy.robots_cache import RobotsRecord, RobotsState
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Call, Nodes
from crawler.shared.codec import WorkerRecord, pack_candidate, pack_robots
from crawler.shared.crawl_format import CrawlFormat, encode_format, identity_of_shards
from crawler.shared.keys import Scripts
from crawler.shared.shard import ShardOperations, shard_of
from crawler.shared.worker.join import quiet_s
from crawler.shared.worker.patterns import field_of
from crawler.view.identity import UrlIdentifier
from crawler.view.shared import MAX_SEARCHED, RedisCrawlReader
from crawler.workers.workforce_figures import WorkforceReader
from tests.harness.crawling import crawl
from tests.harness.script_frontier import ScriptFrontier
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, page, site
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_glossary import READING, Glossary
from tests.servers.redis_monitor import monitored

SHARDS = 5
PHRASE = "kept: {}/@"  # no text may show it
SEED = 2**63 + 12345
CONFIG: Config = read_config({})
NAMER = UrlIdentifier(CONFIG, SEED)
OPENING = (30.0, 100.0, keys.SCHEMA)
_names = count()


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(password=PHRASE) as server:
        yield server


@dataclass
class Crawl:
    """One in Redis, begun by us; each test has its own."""

    url: str
    client: Any
    link: BlockingNodes
    name: str
    data: Path

    def __post_init__(self) -> None:
        ours = CrawlFormat(SHARDS, 3, identity_of_shards(CONFIG), SEED)
        self.client.set(keys.format_key(self.name), encode_format(ours))
        self.ops = ShardOperations("anna.1234", SHARDS, frontier_limits(CONFIG), 100.0)
        self.frontier = ScriptFrontier(self.link, self.ops)

    def add(self, *urls: str, **given: Any) -> list[Candidate]:
        found = [candidate(url, **given) for url in urls]
        self.frontier.add(found, time.time())
        return found

    def lease(self, url: str) -> Lease:
        """*url*, which must be the next of its host."""
        (lease,) = self.frontier.lease(time.time(), 1)
        assert lease.candidate.url == url
        return lease

    def finish(self, url: str, verdict: Verdict) -> None:
        """After one fetch; the host may be asked again at once."""
        self.add(url)
        lease = self.lease(url)
        self.frontier.release(lease, Rest(0.0, Pace()), time.time())
        self.frontier.finish(lease, verdict, time.time())

    def write_record(self, record: WorkerRecord, ago_s: float = 0.0) -> None:
        now = float(self.client.time()[0])
        packed = msgspec.json.encode(replace(record, at=now - ago_s, started=now - ago_s - 10))
        self.client.hset(keys.workers(self.name), record.name, packed)

    def robots(self, authority: str, kind: RobotsState) -> str:
        record = RobotsRecord(authority, kind, 0.0, 0.0, body=b"", reason="status 503")
        domain = NAMER.identify(f"{authority}/").domain
        key = keys.robots(self.name, shard_of(domain, SHARDS), authority)
        self.client.set(key, pack_robots(record), ex=3600)
        return key

    def command(self, *asked: str) -> subprocess.CompletedProcess[str]:
        return frontier(self.settings(), *asked)

    def answer(self, *asked: str) -> Any:
        reply = self.command(*asked, "--json")
        assert reply.returncode == 0, reply.stderr
        return json.loads(reply.stdout)

    def settings(self) -> dict[str, str]:
        return {
            "CRAWLER_FRONTIER_URL": self.url,
            "CRAWLER_FRONTIER_NAME": self.name,
            "CRAWLER_DATA_DIR": str(self.data),
        }


@pytest.fixture
def shared(server: RedisServer, tmp_path: Path) -> Iterator[Crawl]:
    with server.client() as client, begun(server.url, client, tmp_path) as crawl:
        yield crawl


@contextmanager
def begun(url: str, client: Any, folder: Path) -> Iterator[Crawl]:
    name = f"crawl{next(_names)}"
    with BlockingNodes(Nodes(Address.parse(url), Scripts(), name, SHARDS, OPENING)) as link:
        yield Crawl(url, client, link, name, folder / "none")


def candidate(url: str, **given: Any) -> Candidate:
    named = NAMER.identify(url)
    return Candidate(url=url, key=named.key, host=named.host, domain=named.domain, **given)


def worker(name: str, **given: Any) -> WorkerRecord:
    return WorkerRecord(name=name, session=f"{name}.1234", host="the-machine", pid=77, **given)


def frontier(given: dict[str, str], *asked: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which is a second quicker."""
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
        execute(list(command), settings)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(command, ended.value.code, out.getvalue(), err.getvalue())


def test_counts(shared: Crawl) -> None:
    shared.finish("http://a.example/done", Done())
    shared.finish("http://b.example/dead", Dead("no"))
    shared.add("http://a.example/1", "http://a.example/2", "http://c.example/")
    shared.write_record(worker("anna", state="working", outbox=3))
    shared.write_record(worker("berta", state="working", outbox=4), ago_s=3600)
    answer = shared.answer("counts")
    assert {name: answer["counts"][name] for name in ("waiting", "seen", "done", "dead")} == {
        "waiting": 3,
        "seen": 5,
        "done": 1,
        "dead": 1,
    }
    assert (answer["workers"], answer["outbox"]) == (1, 7)
    shown = shared.command("counts").stdout
    assert shown.startswith(f"the crawl {shared.name} in Redis at 127.0.0.1:")
    assert "1 worker at work" in shown
    assert re.search(r"^undecided +7 ", shown, re.M) and re.search(r"^left +10 ", shown, re.M)
    assert asyncio.run(counts_of_supervisor(shared)).left == 10


async def counts_of_supervisor(shared: Crawl) -> Counts:
    nodes = Nodes(Address.parse(shared.url), Scripts(), shared.name, SHARDS, OPENING)
    reader = WorkforceReader(nodes, CONFIG.politeness)
    await reader.begin(30.0, pytest.fail)
    await reader.close()
    return reader.counts


def test_hosts(shared: Crawl) -> None:
    shared.add(*(f"http://a.example/{n}" for n in range(3)), level=0)
    shared.add(*(f"http://a.example/low{n}" for n in range(4)), level=2)
    shared.add(*(f"http://b.example/{n}" for n in range(3)))
    shared.add(*(f"http://c.example/{n}" for n in range(2)))
    found = shared.answer("hosts", "--top", "2")
    assert [(host["host"], host["waiting"]) for host in found] == [
        ("a.example", 7),
        ("b.example", 3),
    ]
    by_name = shared.answer("hosts", "--sort", "name", "--match", "EXAMPLE", "--offset", "1")
    assert [host["host"] for host in by_name] == ["b.example", "c.example"]
    lease = shared.frontier.lease(time.time(), 1)[0]
    (leased,) = shared.answer("hosts", "--host", lease.candidate.host)
    assert leased["place"] == "leased"
    shared.frontier.release(lease, Rest(500.0, Pace(gap_s=9.0, failures=2)), time.time())
    (resting,) = shared.answer("hosts", "--host", lease.candidate.host)
    assert (resting["place"], resting["gap_s"], resting["failures"]) == ("resting", 9.0, 2)
    assert 400 < resting["next_at"] - time.time() <= 500
    unknown = shared.command("hosts", "--host", "nobody.example")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "has no host nobody.example" in unknown.stderr


def test_why_of_a_waiting_url(shared: Crawl) -> None:
    shared.add(*(f"http://a.example/{n}" for n in range(9)), level=1)
    answer = shared.answer("why", "http://a.example/6?utm_source=x")
    assert (answer["seen"], answer["waiting"], answer["level"]) == (True, 6, 1)
    shown = shared.command("why", "http://a.example/6").stdout
    assert "waits behind 6 URLs of its host at level 1" in shown


def test_why_of_an_urgent_url(shared: Crawl) -> None:
    shared.add("http://a.example/1")
    shared.add("http://a.example/now", level=keys.URGENT_LEVEL)
    answer = shared.answer("why", "http://a.example/now")
    assert (answer["urgent"], answer["waiting"], answer["level"]) == (True, 0, None)
    assert "before all levels" in shared.command("why", "http://a.example/now").stdout


def test_why_of_a_leased_url(shared: Crawl) -> None:
    shared.add("http://a.example/x")
    shared.lease("http://a.example/x")
    shown = shared.command("why", "http://a.example/x").stdout
    assert "by the worker anna" in shown, "its session says so"
    shared.write_record(replace(worker("anna at home"), session="anna.1234"))
    answer = shared.answer("why", "http://a.example/x")
    assert answer["worker"] == "anna at home", "as it calls itself"
    assert abs(answer["leased_at"] - time.time()) < 60


def test_why_of_a_url_to_be_retried(shared: Crawl) -> None:
    shared.finish("http://a.example/x", RetryAt(time.time() + 600))
    answer = shared.answer("why", "http://a.example/x")
    assert 500 < answer["later_at"] - time.time() <= 600
    assert answer["attempts"] == 1


def test_why_of_a_dead_letter(shared: Crawl) -> None:
    shared.finish("http://a.example/x", Dead("status 503, tried 4 times"))
    answer = shared.answer("why", "http://a.example/x")
    assert answer["dead_reason"] == "status 503, tried 4 times"


def test_why_of_a_stopped_pattern(shared: Crawl) -> None:
    asked = NAMER.identify("http://a.example/day/7")
    pages = (asked.host, field_of("/day/#"), 120, 20, 100)
    shared.link.run([Call(shard_of(asked.domain, SHARDS), "add_stats", (1000, *pages))])
    settings = {**shared.settings(), "CRAWLER_CONTACT": "ops@w3.org"}
    answer = json.loads(frontier(settings, "why", asked.url, "--json").stdout)
    assert (answer["rule"], answer["pattern"]) == ("pattern", "/day/#")
    assert (answer["pattern_pages"], answer["pattern_new"], answer["pattern_barren"]) == (
        120,
        20,
        100,
    )
    assert 3000 < answer["pattern_try_at"] - time.time() < 3700
    shown = frontier(settings, "why", asked.url).stdout
    assert "pattern /day/#: nothing new in its last 100 pages" in shown
    other = frontier(settings, "why", "http://a.example/night/7").stdout
    assert "the rules admit it" in other


@pytest.mark.parametrize(
    ("setting", "rule", "name"),
    [
        ("CRAWLER_MAX_URLS_PER_DOMAIN", "domain_budget", "a.example"),
        ("CRAWLER_MAX_URLS_PER_HOST", "host_budget", "www.a.example"),
    ],
)
def test_why_of_a_url_over_budget(shared: Crawl, setting: str, rule: str, name: str) -> None:
    shared.add("http://www.a.example/1", "http://www.a.example/2")
    settings = {**shared.settings(), "CRAWLER_CONTACT": "ops@w3.org", setting: "2"}
    url = "http://www.a.example/3"
    answer = json.loads(frontier(settings, "why", url, "--json").stdout)
    assert (answer["seen"], answer["rule"]) == (False, rule)
    shown = frontier(settings, "why", url).stdout
    assert f"has its full number of URLs: 2 of {name} ({setting} is 2)" in shown
    assert "rules admit it" in frontier({**settings, setting: "3"}, "why", url).stdout


def test_why_of_a_done_url_with_its_claim(shared: Crawl) -> None:
    url = "http://a.example/x"
    claim = Claim(b"digest", url, "crawl-1.warc.gz:77", at=time.time())
    shared.finish(url, Done(claim=claim))
    shared.finish("http://a.example/y", Done())
    assert shared.answer("why", url)["kept_record"] == "crawl-1.warc.gz:77"
    assert "with content of its own, archived at crawl-1.warc.gz:77" in (
        shared.command("why", url).stdout
    )
    shown = shared.command("why", "http://a.example/y").stdout
    assert "seen; what came of it is in the log of the worker that fetched it" in shown


def test_why_of_an_unseen_url(shared: Crawl) -> None:
    shared.write_record(worker("berta", outbox=1234), ago_s=60)
    shown = shared.command("why", "http://a.example/x").stdout
    assert "not seen" in shown
    assert "1,234 links on workers' disks" in shown


def test_every_key_is_found_in_its_bucket(shared: Crawl) -> None:
    """A hash table of linear hashing whose buckets were split more than once."""
    urls = [f"http://a.example/{n}" for n in range(2000)]
    shared.add(*urls)
    found = [shared.answer("why", url) for url in urls[::400]]
    assert [answer["seen"] for answer in found] == [True] * 5
    assert [answer["waiting"] for answer in found] == [0, 400, 800, 1200, 1600]
    assert not shared.answer("why", "http://a.example/2000")["seen"]


def test_a_long_queue_is_searched_up_to_a_limit(shared: Crawl) -> None:
    shared.add("http://a.example/first", "http://a.example/last")
    shard = shard_of("a.example", SHARDS)
    queue = keys.queue(shared.name, shard, 1, "a.example")
    other = pack_candidate(candidate("http://a.example/other"))
    for _ in range(10):
        shared.client.linsert(queue, "AFTER", shared.client.lindex(queue, 0), other)
    last = shared.client.rpop(queue)
    for _ in range(MAX_SEARCHED // 10_000):
        shared.client.rpush(queue, *[other] * 10_000)
    shared.client.rpush(queue, last)
    assert shared.answer("why", "http://a.example/first")["waiting"] == 0
    answer = shared.answer("why", "http://a.example/last")
    assert (answer["waiting"], answer["unsearched"]) == (None, 12)
    assert "12 waiting URLs of its host were not looked at" in (
        shared.command("why", "http://a.example/last").stdout
    )


def test_the_oldest_dead_letters_come_first(shared: Crawl) -> None:
    for n in range(4):
        shared.finish(f"http://{n}.example/", Dead(f"reason {n}"))
    found = shared.answer("dead", "--limit", "3")
    assert [letter["reason"] for letter in found] == ["reason 0", "reason 1", "reason 2"]
    shown = shared.command("dead", "--limit", "3").stdout
    assert "3 of 4 dead letters" in shown
    again = f"retry URL -s CRAWLER_FRONTIER_URL=... -s CRAWLER_FRONTIER_NAME={shared.name}"
    assert again in shown, "what was typed, but for the password"


def test_a_dead_letter_is_put_back_while_the_crawl_runs(shared: Crawl) -> None:
    for path in ("one", "two"):
        shared.finish(f"http://a.example/{path}", Dead("no answer"))
    shared.write_record(worker("anna", state="working"))
    assert shared.answer("retry", "http://a.example/one") == {"put_back": 1}
    lease = shared.lease("http://a.example/one")
    assert lease.candidate.attempts == 0
    assert shared.answer("counts")["counts"]["dead"] == 1
    other = shared.command("retry", "http://a.example/one")
    assert (other.returncode, other.stdout) == (1, "")
    assert "is no dead letter" in other.stderr


def test_all_dead_letters_are_put_back_in_batches(shared: Crawl) -> None:
    urls = [f"http://{n % 7}.example/{n}" for n in range(230)]
    letters = shared.add(*urls)
    while leases := shared.frontier.lease(time.time(), 50):
        for lease in leases:
            shared.frontier.release(lease, Rest(0.0, Pace()), time.time())
            shared.frontier.finish(lease, Dead("no"), time.time())
    assert shared.answer("counts")["counts"]["dead"] == len(letters)
    shown = shared.command("retry", "--all").stdout
    assert "230 URLs put back, to be tried by workers" in shown
    counts = shared.answer("counts")["counts"]
    assert (counts["dead"], counts["waiting"]) == (0, 230)


def test_an_unreachable_robots_txt_is_forgotten_with_a_retry(shared: Crawl) -> None:
    """Else the URL would be dead again unasked."""
    gone = shared.robots("http://a.example", RobotsState.UNREACHABLE)
    kept = shared.robots("http://a.example:81", RobotsState.UNREACHABLE)
    ruled = shared.robots("http://b.example", RobotsState.RULES)
    assert shared.answer("why", "http://a.example/x")["robots"] == "unreachable"
    for host in ("a.example", "b.example"):
        shared.finish(f"http://{host}/x", Dead("robots.txt unreachable"))
    shared.answer("retry", "--all")
    assert shared.client.exists(gone) == 0
    assert shared.client.exists(kept, ruled) == 2
    assert authority_of("http://a.example/x") == "http://a.example"


def test_workers(shared: Crawl) -> None:
    shared.write_record(worker("anna", state="working", pages=50, leases=7))
    shared.write_record(worker("berta", state="stopping", pages=30, outbox=12), ago_s=3600)
    anna, berta = shared.answer("workers")
    assert (anna["name"], anna["state"], anna["pages_per_s"]) == ("anna", "working", 5.0)
    assert (berta["state"], berta["outbox"]) == ("silent", 12)
    shown = shared.command("workers").stdout
    assert "scrapy frontier workers --forget berta" in shown
    assert "--forget anna" not in shown


def test_counters_are_counted_again_and_repaired_while_the_crawl_runs(shared: Crawl) -> None:
    shared.finish("http://a.example/dead", Dead("no answer"))
    far = time.time() + 3600
    shared.add(*(f"http://{n % 7}.example/{n}" for n in range(230)), "http://b.example/leased")
    shared.add("http://c.example/later", not_before=far)
    assert len(shared.frontier.lease(time.time(), 1)) == 1
    fine = shared.command("check")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "all are right" in fine.stdout
    drifts = {"waiting": -19, "later": 2, "leased": 5, "seen": -1, "dead": 7}
    for shard, (name, by) in enumerate(drifts.items()):
        shared.client.hincrby(keys.totals(shared.name, shard), name, by)
    shared.write_record(worker("anna", state="working"))
    found = shared.command("check")
    assert found.returncode == 1
    assert "5 counters differ; scrapy frontier check --repair" in found.stdout
    assert all(f"shard {n}: {name}: " in found.stdout for n, name in enumerate(drifts))
    repaired = shared.command("check", "--repair")
    assert (repaired.returncode, repaired.stderr) == (0, "")
    assert "5 counters repaired" in repaired.stdout
    reply = shared.answer("check")
    totals = {
        name: sum(c["stored"] for c in reply["counters"] if c["name"] == name) for name in drifts
    }
    assert totals == {"waiting": 230, "later": 1, "leased": 1, "seen": 233, "dead": 1}
    assert reply["uncounted"] == []


def test_a_command_after_a_restart_lets_hosts_rest_as_long_as_a_worker_does(tmp_path: Path) -> None:
    """Older fetches may still run when a command is the first client of a restarted server."""
    with RedisServer(tmp_path / "redis", appendonly="yes") as server, server.client() as client:
        with begun(server.url, client, tmp_path) as shared:
            shared.finish("http://a.example/dead", Dead("no answer"))
        server.kill()
        server.start()
        retried = shared.command("retry", "--all")
        assert (retried.returncode, retried.stderr) == (0, "")
        totals = keys.totals(shared.name, shard_of("a.example", SHARDS))
        restarted, quiet_until = map(float, client.hmget(totals, "restarted", "quiet_until"))
    assert quiet_until - restarted == pytest.approx(quiet_s(CONFIG))


def test_nothing_is_repaired_of_a_shard_that_changed_meanwhile(shared: Crawl) -> None:
    shared.add("http://a.example/1")
    shard = shard_of("a.example", SHARDS)
    before = shared.client.hgetall(keys.totals(shared.name, shard))
    shared.add("http://a.example/2")
    conditions = {"clock": before[b"clock"], "waiting": before[b"waiting"]}
    ((_, is_written),) = shared.link.run([shared.ops.repair(shard, conditions, {"waiting": 1})])
    assert is_written == 0
    assert shared.client.hget(keys.totals(shared.name, shard), "waiting") == b"2"


def test_a_shard_that_always_changes_is_reported_as_not_counted(shared: Crawl) -> None:
    shared.add("http://a.example/1")
    shard = shard_of("a.example", SHARDS)

    class Busy(RedisCrawlReader):
        def ask_each(self, asks: Sequence[tuple[str, str]]) -> list[Any]:
            shared.client.hincrby(keys.totals(self.name, shard), "done", 1)
            return super().ask_each(asks)

    with Busy(Address.parse(shared.url), shared.name, (30.0, 100.0, keys.SCHEMA)) as visit:
        recount = Recount(visit)
        recount.count()
    assert recount.uncounted == [shard]
    assert {each.shard for each in recount.counted} == {*range(SHARDS)} - {shard}


def test_a_dead_worker_is_forgotten_and_a_living_one_is_not(shared: Crawl) -> None:
    shared.write_record(worker("anna", state="working", outbox=1))
    shared.write_record(worker("berta", outbox=12), ago_s=3600)
    alive = shared.command("workers", "--forget", "anna")
    assert (alive.returncode, alive.stdout) == (1, "")
    assert "anna is alive" in alive.stderr
    assert "12 links" in shared.command("workers", "--forget", "berta").stdout
    unknown = shared.command("workers", "--forget", "berta")
    assert "has no worker berta" in unknown.stderr
    assert [one["name"] for one in shared.answer("workers")] == ["anna"]


def test_looking_changes_nothing(shared: Crawl, server: RedisServer) -> None:
    shared.finish("http://a.example/dead", Dead("no"))
    shared.finish("http://a.example/later", RetryAt(time.time() + 600))
    shared.finish("http://a.example/done", Done(claim=Claim(b"digest", "http://a.example/done")))
    shared.add("http://a.example/leased")
    shared.lease("http://a.example/leased")
    shared.add("http://a.example/waiting")
    shared.write_record(worker("anna"))
    with monitored(server) as seen:
        for asked in (
            *(["counts"], ["hosts"], ["hosts", "--host", "a.example"], ["dead"], ["workers"]),
            *(["why", f"http://a.example/{path}"] for path in ("dead", "later", "done", "leased")),
            *(["why", f"http://a.example/{path}"] for path in ("waiting", "unknown")),
        ):
            assert shared.command(*asked).returncode == 0
    assert {each.name for each in seen.asked} <= READING
    assert list(Glossary(shared.name).strangers(seen.asked)) == []
    whole = {each.words[1] for each in seen.asked if each.name == "HGETALL"}
    bounded = (
        name(shared.name, shard) for name in (keys.totals, keys.hosts) for shard in range(SHARDS)
    )
    assert whole == {key.encode() for key in bounded}


def test_a_crawl_that_is_not_there_is_not_made(shared: Crawl) -> None:
    given = {**shared.settings(), "CRAWLER_FRONTIER_NAME": "none"}
    for asked in (["counts"], ["retry", "--all"], ["workers"], ["why", "http://a.example/"]):
        reply = frontier(given, *asked)
        assert (reply.returncode, reply.stdout) == (1, "")
        assert "has no crawl none: none has begun there" in reply.stderr
    assert shared.client.keys("none*") == []


@pytest.mark.parametrize(
    ("changed", "message"),
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
    shared: Crawl, server: RedisServer, changed: dict[str, str], message: str
) -> None:
    changed = {name: value.format(port=server.port) for name, value in changed.items()}
    reply = frontier({**shared.settings(), **changed}, "why", "http://a.example/")
    assert (reply.returncode, reply.stdout) == (1, "")
    assert message in reply.stderr
    assert "wrong" not in reply.stderr
    assert "Traceback" not in reply.stderr
    assert PHRASE not in reply.stderr


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param("{name}:format", b"{", "is no format of a crawl of ours", id="a torn format"),
        pytest.param(
            "{name}:format",
            b'{"shards":1000000000,"levels":3,"identity":[]}',
            "is no format of a crawl of ours",
            id="shards without end",
        ),
        pytest.param(
            "{name}:format",
            b'{"shards":4,"levels":3,"identity":[],"schema":"77"}',
            "has schema 77",
            id="another version",
        ),
        pytest.param("{name}:workers", b"x", "of another type", id="another type"),
    ],
)
def test_foreign_data_is_refused(shared: Crawl, key: str, value: bytes, message: str) -> None:
    shared.client.set(key.format(name=shared.name), value)
    reply = shared.command("workers")
    assert (reply.returncode, reply.stdout) == (1, "")
    assert message in reply.stderr


def test_records_that_are_not_ours_are_refused(shared: Crawl) -> None:
    for shard in range(SHARDS):
        shared.client.hset(keys.dead(shared.name, shard), "1", b"\xc1")
        shared.client.hset(keys.hosts(shared.name, shard), "a.example", b"short")
    read, written = "what this version does not write", "something else under our name"
    for asked in (["dead"], ["hosts"], ["retry", "--all"], ["why", "http://a.example/"]):
        reply = shared.command(*asked)
        assert (reply.returncode, reply.stdout) == (1, "")
        assert (written if asked[0] == "retry" else read) in reply.stderr


def test_a_data_directory_has_no_workers(tmp_path: Path) -> None:
    reply = frontier({"CRAWLER_DATA_DIR": str(tmp_path / "none")}, "workers")
    assert reply.returncode == 1
    assert "CRAWLER_FRONTIER_URL" in reply.stderr


def test_on_a_cluster(tmp_path: Path) -> None:
    hosts = [f"{letter}.example" for letter in "abcdefgh"]
    with (
        RedisCluster() as cluster,
        redis.RedisCluster.from_url(cluster.url) as client,
        begun(cluster.url, client, tmp_path) as shared,
    ):
        shared.finish("http://dead.example/", Dead("no"))
        shared.add(*(f"http://{host}/" for host in hosts))
        shared.write_record(worker("anna", state="working"))
        answer = shared.answer("counts")
        assert (answer["counts"]["waiting"], answer["workers"]) == (8, 1)
        assert sorted(host["host"] for host in shared.answer("hosts", "--top", "8")) == hosts
        waiting = [shared.answer("why", f"http://{host}/")["waiting"] for host in hosts]
        assert waiting == [0] * 8
        assert shared.answer("retry", "--all") == {"put_back": 1}


def test_after_a_crawl(shared: Crawl) -> None:
    """As its worker has left it, seen from its own data directory and from another."""
    shared.client.delete(keys.format_key(shared.name))
    data = shared.data.parent / "data"
    routes = {
        "/": page("/a", "/b", "/boom"),
        "/a": page("/", text="the same"),
        "/b": page("/", text="the same"),
        "/boom": Reply("not now", 503),
    }
    given = {**shared.settings(), "CRAWLER_RETRIES": 0}
    with site("127.0.0.76", routes) as web:
        done = crawl(data, settings={**given, "CRAWLER_DATA_DIR": str(data)}, seeds=web.url("/"))
        assert done.reason == "finished"
        here = {**shared.settings(), "CRAWLER_DATA_DIR": str(data)}
        shown = frontier(here, "why", web.url("/a"))
        assert "done: status 200" in shown.stdout, shown.stderr
        assert "archived at crawl-" in shown.stdout
        assert "robots.txt allows it" in shown.stdout
        assert shared.answer("why", web.url("/a"))["seen"]
        assert shared.answer("counts")["counts"]["dead"] == 1
        assert shared.answer("retry", web.url("/boom")) == {"put_back": 1}
        assert shared.answer("why", web.url("/boom"))["waiting"] == 0
        assert shared.answer("workers") == []
