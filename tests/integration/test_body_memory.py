"""Bodies without end, many at once: the memory they take is the one that was set, and each of them
is stored to its cap.

Rule: runs of the real command beside each other, measured from outside; one of them, over small
pages, is the baseline.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType

from crawler.data.outcomes import read_outcomes
from crawler.model.types import Outcome
from tests.harness.commands import crawl_command, running
from tests.harness.measuring import peak_memory
from tests.servers.hostile_content import MEGABYTE, PDF, XML, bomb, endless
from tests.servers.hostile_kit import gzipped
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Visit

LIMIT_S: Final = 180.0  # for what takes 8 s, alone
ENDLESS: Final = tuple(f"127.0.73.{number}" for number in range(1, 17))
SMALL: Final = tuple(f"127.0.73.{number}" for number in range(17, 21))
CAP_BYTES: Final = 8 * MEGABYTE
# Of the oldest body what it has beyond the maximum, as sent and decoded, and of one that is being
# archived its record, made and packed; of each connection what was read before it paused.
BEYOND_BYTES: Final = 4 * CAP_BYTES + len(ENDLESS) * MEGABYTE
UNLIKE_BYTES: Final = 16 * MEGABYTE  # two runs of the same crawl differ by some
# Without a maximum it is 165 MB.
RUNS: Final[Mapping[str, int]] = {"two bodies": 2 * CAP_BYTES, "less than one": MEGABYTE}
QUIET: Final = "quiet"
BOMB: Final = gzipped(bomb(b"", b"\xd0\xcf" * 32, 10 * CAP_BYTES // MEGABYTE))
ODD: Final = "application/x-any"


KINDS: Final[tuple[Callable[[bytes], Reply], ...]] = (
    lambda own: endless(b"%PDF-1.7\n%" + own, b"1 0 obj\n<< >>\nendobj\n", PDF),
    lambda own: endless(b"<urlset><!--" + own + b"-->", b"<url></url>", XML),
    lambda own: endless(own, b"\xd0\xcf" * 32, ODD),
    lambda own: Reply(BOMB, content_type=ODD, headers=(("Content-Encoding", "gzip, gzip"),)),
)
BOMBS: Final = 3  # from this kind on: what is cut is not what was sent, but what is made of it


@dataclass(frozen=True, slots=True)
class Crawled:
    status: int | None
    log: str
    own_bytes: int
    data: Path
    visits: list[Visit]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """By host and path; each was asked for once."""
        found = list(read_outcomes(self.data / "outcomes.jsonl"))
        by_place = {place(outcome.url): outcome for outcome in found}
        assert len(by_place) == len(found)
        return by_place

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.data / "summary.json").read_text())
        return summary

    def truncated(self) -> dict[str, str]:
        """Why, by host and path."""
        why = {}
        for file in (self.data / "warc").glob("*.warc.gz"):
            with file.open("rb") as stream:
                for record in ArchiveIterator(stream, record_types=WarcRecordType.response):
                    headers = record.headers
                    truncated = headers.get("WARC-Truncated", "")
                    why[place(headers["WARC-Target-URI"])] = truncated
        return why


def place(url: str) -> str:
    authority, _, path = url.removeprefix("http://").partition("/")
    return f"{authority.partition(':')[0]}/{path}"


def web(ask: Ask) -> Reply:
    if ask.path == "/endless":
        return KINDS[ENDLESS.index(ask.host) % len(KINDS)](ask.host.encode())
    if ask.path == "/small":
        return Reply(b"<p>A page of " + ask.host.encode())
    return Reply(b"Nothing.", 404)


def crawled(home: Path, places: Sequence[tuple[str, str]], most: int) -> Crawled:
    home.mkdir()
    caps = ("HTML", "PDF", "SITEMAP", "OTHER")
    settings = {
        "CRAWLER_BODIES_MAX_BYTES": most,
        "CRAWLER_PARSE_TIMEOUT_S": 0.2,
        **{f"CRAWLER_{cap}_MAX_BYTES": CAP_BYTES for cap in caps},
    }
    with LoopbackWeb(web, (*ENDLESS, *SMALL)) as server:
        seeds = ",".join(server.url(host, path) for host, path in places)
        command = crawl_command(home / "data", settings, seeds=seeds)
        with running(command, home / "log") as process:
            memory = peak_memory(process, LIMIT_S)
            status = process.poll()
        log = (home / "log").read_text()
        return Crawled(status, log, memory.own, home / "data", server.visits)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Crawled]:
    home = tmp_path_factory.mktemp("bodies")
    small = [(host, "/small") for host in (*ENDLESS, *SMALL)]
    # The small page of a host comes after its endless one.
    places = [*((host, "/endless") for host in ENDLESS), *small]
    with ThreadPoolExecutor() as pool:
        jobs = {
            name: pool.submit(crawled, home / str(number), places, most)
            for number, (name, most) in enumerate(RUNS.items())
        }
        jobs[QUIET] = pool.submit(crawled, home / QUIET, small, MEGABYTE)
    return {name: job.result() for name, job in jobs.items()}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, runs: Mapping[str, Crawled]) -> tuple[Crawled, int]:
    """One, and its maximum."""
    name: str = request.param
    return runs[name], RUNS[name]


def test_a_crawl_uses_at_most_its_memory(
    run: tuple[Crawled, int], runs: Mapping[str, Crawled]
) -> None:
    done, most_bytes = run
    taken = done.own_bytes - runs[QUIET].own_bytes
    assert taken <= most_bytes + BEYOND_BYTES + UNLIKE_BYTES, f"{taken / MEGABYTE:.0f} MB"


def test_all_bodies_are_stored_to_their_caps(run: tuple[Crawled, int]) -> None:
    done, _ = run
    assert done.status == 0, done.log[-2000:]
    assert "Traceback" not in done.log
    outcomes, truncated = done.outcomes, done.truncated()
    for number, host in enumerate(ENDLESS):
        at = f"{host}/endless"
        assert (outcomes[at].fate, outcomes[at].status) == ("done", 200)
        if number % len(KINDS) < BOMBS:
            assert truncated[at] == "length"
            assert CAP_BYTES - 4_000 < outcomes[at].size < CAP_BYTES
        assert outcomes[f"{host}/small"].fate == "done"
    assert all(outcomes[f"{host}/small"].fate == "done" for host in SMALL)


def test_pauses_are_reported_and_delay_no_host(run: tuple[Crawled, int]) -> None:
    done, _ = run
    pauses = done.summary["pauses"]
    assert pauses["times"] > 0
    large = [each for at, each in done.outcomes.items() if at.endswith("/endless")]
    assert sum(outcome.seconds for outcome in large) < pauses["total_s"]
    assert sorted((visit.host, visit.path) for visit in done.visits) == sorted(
        (host, path)
        for host in (*ENDLESS, *SMALL)
        for path in ("/robots.txt", "/small", *(("/endless",) if host in ENDLESS else ()))
    )
