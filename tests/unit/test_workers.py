"""Many workers of one machine: what each is started with, when again, and what all have done."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from crawler.config.arguments import OTHER_READS, RUN_BEGAN
from crawler.config.settings import PolitenessSettings, SharedSettings
from crawler.data.data_dir import worker_folders
from crawler.data.runs import CountedRuns
from crawler.data.seed_fates import SeedTable
from crawler.model.choices import RedisFsync
from crawler.model.counts import Counts, DeadUrl, Figures, HostPages, OverBudget
from crawler.model.types import ConfigError, HostKey, HostWork, Pace, Standing
from crawler.report.end_forecast import CrawlMoment, EndInWords
from crawler.report.screen import ProgressFigures
from crawler.report.summary import (
    ArchiveFiles,
    EndedRun,
    HostLeft,
    RoundFigures,
    Summary,
    encoded,
    summary_of,
    text,
)
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.codec import KILLED, WorkerRecord
from crawler.shared.longest import OwnHostsWriter
from crawler.shared.owned.scripts import OwnedScripts
from crawler.workers.redis_server import (
    ListenAddress,
    max_memory_bytes,
    new_address,
    redis_program,
    saved_address,
    write_conf,
)
from crawler.workers.workers import (
    MAX_PAUSE_S,
    STABLE_AFTER_S,
    ShareArguments,
    WorkerProcess,
    Workers,
    arguments_of_later,
    split_limits,
    worker_arguments,
    worker_folder,
)
from crawler.workers.workforce_figures import (
    WorkforceReader,
    WorkforceRun,
    read_summary,
    summary_of_all,
    workers_line,
    workers_sentence,
)
from tests.servers.redis import RedisServer

TYPED = ShareArguments(
    spider="web",
    arguments=("seeds=a=b", "max_pages=9", "deny=x", "deny=y"),
    settings=("CRAWLER_DATA_DIR=mine", "LOG_LEVEL=DEBUG"),
    options=("-L", "INFO"),
)
FIGURES = ProgressFigures(
    Figures({"pages": 1234, "error/dns": 1, "bytes": 8_500_000}),
    Counts(waiting=56700, later=80, undecided=9, leased=17),
    pages_per_s=75.3,
    workers=4,
)


@pytest.mark.parametrize(
    ("total", "workers", "parts"),
    [
        pytest.param(9, 3, [3, 3, 3], id="even"),
        pytest.param(11, 3, [4, 4, 3], id="what is over goes to the first"),
        pytest.param(2, 4, [1, 1], id="who would have nothing to do is not there"),
    ],
)
def test_limits_are_divided(total: int, workers: int, parts: list[int]) -> None:
    limits = {"max_pages": total, "max_bytes": 1000}
    assert [each["max_pages"] for each in split_limits(limits, workers)] == parts
    assert split_limits({}, workers) == [{}] * workers


def test_the_arguments_of_the_command_are_passed_to_each_worker(tmp_path: Path) -> None:
    folder = worker_folder(tmp_path, 2)
    given = worker_arguments(TYPED, folder, {"max_pages": 3}, {"CRAWLER_FRONTIER_URL": "file:/u"})
    assert given[:4] == ["crawl", "web", "-L", "INFO"]
    assert [
        value for word, value in zip(given[4::2], given[5::2], strict=True) if word == "-a"
    ] == [*("seeds=a=b", "deny=x", "deny=y", "max_pages=3")]
    settings = dict(pair.split("=", 1) for pair in given[5::2])
    assert settings["CRAWLER_DATA_DIR"] == str(folder), "of two the last one counts"
    assert settings["LOG_LEVEL"] == "DEBUG"
    assert settings["CRAWLER_FRONTIER_URL"] == "file:/u"


def test_only_the_first_worker_adds_what_is_asked_for_again() -> None:
    typed = replace(TYPED, arguments=("only=urls.txt", f"{RUN_BEGAN}=1.5"))
    assert arguments_of_later(typed).arguments == (*typed.arguments, f"{OTHER_READS}=yes")
    assert arguments_of_later(TYPED) == TYPED, "a spider of another kind has no such argument"


def test_without_a_limit_the_arguments_stay_as_they_are(tmp_path: Path) -> None:
    assert "max_pages=9" in worker_arguments(TYPED, tmp_path, {}, {})


def test_folders_come_by_their_numbers(tmp_path: Path) -> None:
    for name in ("10", "9", "1.stderr", "share.lock"):
        (tmp_path / "workers" / name).mkdir(parents=True)
    assert worker_folders(tmp_path) == [worker_folder(tmp_path, 9), worker_folder(tmp_path, 10)]


def test_a_worker_that_dies_repeatedly_is_restarted_after_growing_intervals() -> None:
    worker = WorkerProcess(1, Path("nowhere"), lambda: None)
    pauses = [worker.schedule_restart(now=0.0) for _ in range(7)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, MAX_PAUSE_S, MAX_PAUSE_S]
    assert worker.schedule_restart(now=STABLE_AFTER_S + 1) == 1.0, "it had lived well"


def test_a_stop_cancels_a_pending_restart(tmp_path: Path) -> None:
    messages: list[str] = []
    worker = WorkerProcess(1, tmp_path / "1", lambda: ["version"])
    force = Workers([worker], messages.append)
    worker.schedule_restart(now=0.0)
    assert not force.is_over
    force.stop()
    force.poll(now=100.0)
    assert force.is_over and worker.starts == 0


def test_the_first_reason_is_the_one_that_counts() -> None:
    force = Workers([], lambda _: None)
    force.fail("the disk is full")
    force.fail("Redis is gone")
    assert force.failure == "the disk is full"
    assert force.is_stopping


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        pytest.param(
            80,
            "1,234 pages | 75.3/s | 4 workers | 17 under way | 56,789 waiting | 1 error | 8.5 MB",
            id="all of it does not fit into 80 columns",
        ),
        pytest.param(
            200,
            "1,234 pages | 75.3/s | 4 workers | 17 under way | 56,789 waiting | 1 error | 8.5 MB",
            id="room for all",
        ),
        pytest.param(30, "1,234 pages | 75.3/s", id="the most important first"),
        pytest.param(5, "", id="no room at all"),
    ],
)
def test_the_line_fits_its_terminal(columns: int, shown: str) -> None:
    drawn = workers_line(FIGURES, columns)
    assert shown.startswith(drawn)
    assert len(drawn) < columns
    assert (drawn == shown) is (len(shown) < columns)


def test_the_sentence_for_a_log() -> None:
    assert workers_sentence(FIGURES) == (
        "1,234 pages (75.3 a second) by 4 workers, 17 URLs under way, 56,789 URLs waiting, 1 error,"
        " 8.5 MB"
    )


def test_a_redis_of_our_own_is_shut_to_others(tmp_path: Path) -> None:
    address = new_address(None)
    assert len(address.password) == 64 and address.password not in repr(address)
    write_conf(
        tmp_path, address, SharedSettings(redis_fsync=RedisFsync.ALWAYS, redis_max_bytes=8 << 20)
    )
    lines = (tmp_path / "redis.conf").read_text().splitlines()
    assert {"bind 127.0.0.1", "appendfsync always", "maxmemory-policy noeviction"} <= {*lines}
    assert "maxmemory 10485760" in lines, "new links wait on disk from 0.8 of it on"
    assert saved_address(tmp_path) == address
    assert new_address(address) == address, "who was left may still ask there"


def test_half_of_the_memory_is_for_redis() -> None:
    assert max_memory_bytes(SharedSettings()) > 64 << 20


def test_a_damaged_configuration_gives_no_address(tmp_path: Path) -> None:
    assert saved_address(tmp_path) is None
    (tmp_path / "redis.conf").write_text("port many\nrequirepass x\n")
    assert saved_address(tmp_path) is None


def test_a_port_that_is_taken_is_not_used() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _LISTENER], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        taken = ListenAddress(int(other.stdout.readline()), "secret")
        found = new_address(taken)
        other.kill()
    assert found.port != taken.port
    assert found.password == taken.password


_LISTENER = "import socket; s = socket.create_server(('127.0.0.1', 0));"
_LISTENER += "print(s.getsockname()[1], flush=True); input()"


def test_no_redis_server_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"no redis-server is on the PATH: install 7\.0 or newer"):
        redis_program("/nowhere", places=())


def test_a_summary_of_a_run_before_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_bytes(encoded(part()))
    written_at = (tmp_path / "summary.json").stat().st_mtime
    assert read_summary(tmp_path, written_at - 1) == part()
    assert read_summary(tmp_path, written_at + 1) is None
    assert read_summary(tmp_path / "nowhere", 0) is None


def part(pages: int = 3, reason: str = "finished", host: str = "a.example") -> Summary:
    """What one worker wrote."""
    counters = {
        **dict.fromkeys(("bytes", "duplicates", "near_duplicates", "flaw/empty"), 1),
        "pages": pages,
        "status/2xx": pages,
        "put_back_at_open": 4,
        "error/dns": 2,
        "links/new": 1,
        "links/seen": 2,
        "links/over_budget": 3,
        "patterns/unfetched": 4,
        "refused/scheme": 1,
        "politeness/rest/gap": 2,
        "politeness/given_up": 1,
        "robots/fetched": 1,
        "robots/disallowed": 2,
        "robots/unreachable": 3,
    }
    figures = Figures(
        counters,
        [HostPages(host, pages)],
        [OverBudget("S", 9, "a.example", 3)],
        [DeadUrl(f"http://{host}/", "no")],
    )
    ended = EndedRun(
        spider="web",
        reason=reason,
        ended=f"it is {reason}",
        began_at=0.0,
        ended_at=1.0,
        compiling_s=0.0,
        figures=figures,
        counts=Counts(4, 4, 4, 4, 4, 4, 1),
        counted=CountedRuns(),
        seeds=SeedTable(),
        data_dir=Path("elsewhere"),
        archive=ArchiveFiles("", 9, 9),
    )
    return msgspec.json.decode(encoded(summary_of(ended)), type=Summary)


def ran(**changed: object) -> WorkforceRun:
    given: dict[str, object] = {
        "spider": "web",
        "data_dir": Path("crawl-data"),
        "began_at": 1000.0,
        "ended_at": 1010.0,
        "is_stopped": False,
        "failure": "",
        "counts": Counts(0, 0, 0, 0, 20, 18, 2),
        "killed": [],
    }
    return WorkforceRun(**{**given, **changed})  # type: ignore[arg-type]  # the names are Run's own


def test_the_workers_figures_are_added_up(tmp_path: Path) -> None:
    (tmp_path / "warc").mkdir()
    (tmp_path / "warc" / "a.warc.gz").write_bytes(b"12345")
    whole = summary_of_all(ran(), [part(3), part(5, host="b.example")], [tmp_path])
    assert (whole.pages, whole.pages_per_s, whole.answers) == (8, 0.8, {"2xx": 8})
    compiled = [msgspec.structs.replace(part(4), compiling_s=each) for each in (6.0, 5.0)]
    assert summary_of_all(ran(), compiled, [tmp_path]).pages_per_s == 1.6
    assert [each.host for each in whole.top_hosts] == ["b.example", "a.example"]
    assert (whole.links.new, whole.links.refused, whole.links.left) == (2, {"scheme": 2}, 8)
    assert whole.links.top_over_budget == [OverBudget("S", 9, "a.example", 6)]
    assert (whole.politeness.rests, whole.robots.unreachable) == ({"gap": 4}, 6)
    assert (whole.archive.files, whole.archive.bytes) == (1, 5)
    assert (whole.frontier.done, whole.frontier.put_back_at_open) == (18, 8)
    assert (whole.dead_letters, len(whole.dead_letters_new)) == (2, 2)
    assert whole.data_dir == "crawl-data"


def test_what_a_round_of_all_has_left_over_is_listed_once() -> None:
    first = RoundFigures(4, 90, {"count": 2}, [HostLeft("a.example", 9), HostLeft("b.example", 4)])
    again = RoundFigures(4, 100, {"count": 1}, [HostLeft("a.example", 8), HostLeft("c.example", 7)])
    parts = [
        msgspec.structs.replace(part(), rounds=rounds) for rounds in (first, again, RoundFigures())
    ]
    run = ran(counts=Counts(waiting=1_020))
    lines = text(summary_of_all(run, parts, [])).splitlines()
    at = next(at for at, line in enumerate(lines) if "rounds" in line)
    assert [" ".join(line.split()) for line in lines[at : at + 6]] == [
        "rounds 2 over; 100 URLs in the last one, number 4",
        "2: as many URLs as it may have were fetched",
        "left over 9 a.example",
        "7 c.example",
        "4 b.example",
        "1,000 other hosts",
    ]


def test_a_killed_worker_is_counted_by_its_last_record() -> None:
    dead = WorkerRecord(name="w", session="w.1", host="h", pid=1, pages=7, bytes=70, errors=2)
    whole = summary_of_all(ran(killed=[dead]), [part(3)], [])
    assert (whole.pages, whole.bytes, whole.errors) == (10, 71, {"dns": 2, KILLED: 2})


@pytest.mark.parametrize(
    ("run", "reasons", "reason"),
    [
        pytest.param(ran(), ["finished", "finished"], "finished", id="nothing is left"),
        pytest.param(ran(), ["finished", "max_pages"], "max_pages", id="some stopped before"),
        pytest.param(
            ran(is_stopped=True), ["shutdown", "finished"], "shutdown", id="it was asked to stop"
        ),
        pytest.param(
            ran(failure="no room"),
            ["shutdown", "store_failed"],
            "store_failed",
            id="the cause counts before its consequence",
        ),
        pytest.param(ran(failure="no room"), ["shutdown"], "store_failed", id="without a record"),
    ],
)
def test_the_reason_of_the_end(run: WorkforceRun, reasons: list[str], reason: str) -> None:
    assert summary_of_all(run, [part(reason=each) for each in reasons], []).reason == reason


def test_the_end_is_told_by_the_clock_of_the_hosts() -> None:
    pace = Pace(1.0, standing=Standing.ANSWERS, fetches=9, log_fetch_s=-3.0, log_variance=0.1)
    work = HostWork(HostKey("a.example"), 30, time.time() + 600, pace, is_leased=False)

    async def scenario(server: RedisServer) -> EndInWords:
        nodes = Nodes(Address.parse(server.url), OwnedScripts(), "crawl", 1)
        await nodes.open()
        await OwnHostsWriter(nodes, "w", monotonic).write([work], [pace])
        reader = WorkforceReader(nodes, PolitenessSettings())
        reader.figures(1, monotonic())
        await reader.refresh([])
        reader.counts = Counts(30, 0, 0, 1, 60, 30, 0)
        before = reader._forecast._moments
        before.append(CrawlMoment(time.time() - 90, Counts(60, 0, 0, 1, 60, 0, 0), 0, 60))
        before.popleft()
        ends = reader.figures(1, monotonic()).ends
        await reader.close()
        return ends

    with RedisServer() as server:
        ends = asyncio.run(scenario(server))
    assert re.fullmatch(r"ends in 10 min \d+ s \(.*\)", ends.when), ends
    assert ends.why == "a.example, 30 URLs at 0.2 s"
