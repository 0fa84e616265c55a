"""`scrapy frontier snapshot` and `check --repair`, as a user types them, beside a crawl or not.
Judged by what two crawls fetch: the one that was copied, and the one that goes on from the copy."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawler.data.outcomes import read_outcomes
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.seen import seen_manifest
from tests.harness import fork_server
from tests.harness.commands import PATIENCE_S, crawl_command
from tests.harness.waiting import wait_until
from tests.servers.loopback import Routes, Site, page, site

PAGES = 60


def frontier(data: Path, *asked: str) -> Any:
    command = [*fork_server.SCRAPY, "frontier", *asked, "-s", f"CRAWLER_DATA_DIR={data}"]
    return fork_server.run(command)


def is_asked() -> bool:
    """Return whether a command waits for a crawl that stands still: its connection to a socket is
    not accepted, so it has no inode."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return any(each.endswith("/control.sock") and each.split()[6] == "0" for each in lines)


def paths() -> list[str]:
    return [f"/{number}" for number in range(PAGES)]


@pytest.fixture
def web() -> Iterator[Site]:
    """Each page links to three more."""
    routes: Routes = {
        path: page(*paths()[3 * at + 1 : 3 * at + 4], "/0", text=path)
        for at, path in enumerate(paths())
    }
    with site("127.0.0.74", routes) as served:
        yield served


SETTINGS = {"CRAWLER_MIN_DELAY_S": 0.1, "CRAWLER_DELAY_FACTOR": 0}


def test_a_crawl_goes_on_from_the_copy_of_a_running_one(tmp_path: Path, web: Site) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    (tmp_path / "foreign.cdxj").write_text(
        "".join(f'a 2 {{"url": "http://foreign.example/{n}"}}\n' for n in range(3000))
    )
    assert frontier(data, "seen", "--from", str(tmp_path / "foreign.cdxj")).returncode == 0
    command = crawl_command(data, SETTINGS, seeds=web.url("/0"))
    with fork_server.running(command, tmp_path / "log") as process:
        wait_until(lambda: len(web.asked) > PAGES // 4, PATIENCE_S)
        done_before = {each.url for each in read_outcomes(data / "outcomes.jsonl")}
        made = frontier(data, "snapshot", str(copy), "--json")
        assert made.returncode == 0, made.stderr
        asked_before = list(web.asked)
        assert process.poll() is None, "the crawl goes on"
        assert process.wait(PATIENCE_S) == 0
    log = (tmp_path / "log").read_text()
    assert "Snapshot of this moment: made" in log
    answer = json.loads(made.stdout)
    assert answer["folder"] == str(copy) and answer["seen"] > 3000 and answer["shared"] > 0
    checked = frontier(copy, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert {*web.asked} >= {*paths()}, "the crawl that was copied has lost nothing"
    assert all(web.hits[path] == 1 for path in paths()), "and done nothing twice"
    assert sorted(file.name for file in copy.iterdir()) == [
        "arguments.json",
        "format.json",
        "frontier",
        "seen",
        "settings.json",
    ]
    web.asked.clear()
    resumed = fork_server.run(crawl_command(copy, SETTINGS))
    assert resumed.returncode == 0, resumed.stderr
    assert {*web.asked} | {*asked_before} >= {*paths()}, "no URL is lost"
    assert done_before and not done_before & set(map(web.url, web.asked)), "none is done again"
    assert len(web.asked) == len({*web.asked}), "nothing twice from the copy"
    assert not [file.name for file in data.iterdir() if file.name.startswith("snapshot-")]


def test_a_command_that_is_killed_leaves_nothing_to_the_next_start(
    tmp_path: Path, web: Site
) -> None:
    data = tmp_path / "data"
    command = crawl_command(data, SETTINGS, seeds=web.url("/0"))
    asked = [*fork_server.SCRAPY, "frontier", "snapshot", str(tmp_path / "copy")]
    with fork_server.running(command, tmp_path / "log") as process:
        wait_until(lambda: len(web.asked) > 3, PATIENCE_S)
        # It stands still, so that no request is answered.
        process.send_signal(signal.SIGSTOP)
        with fork_server.running(
            [*asked, "-s", f"CRAWLER_DATA_DIR={data}"], tmp_path / "asked"
        ) as asking:
            wait_until(is_asked, PATIENCE_S)
            asking.kill()
            asking.wait()
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE_S) == 0
    assert not (tmp_path / "copy").exists()
    assert not [f for f in data.iterdir() if f.name.startswith("snapshot-") or f.suffix == ".draft"]
    assert all(web.hits[path] == 1 for path in paths())


def test_a_crawl_that_is_killed_meanwhile_does_not_stop_the_snapshot(
    tmp_path: Path, web: Site
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    command = crawl_command(data, SETTINGS, seeds=web.url("/0"))
    asked = [*fork_server.SCRAPY, "frontier", "snapshot", str(copy), "-s"]
    with fork_server.running(command, tmp_path / "log") as process:
        wait_until(lambda: len(web.asked) > 3, PATIENCE_S)
        process.send_signal(signal.SIGSTOP)
        with fork_server.running([*asked, f"CRAWLER_DATA_DIR={data}"], tmp_path / "out") as asking:
            wait_until(is_asked, PATIENCE_S)
            process.kill()
            assert asking.wait(PATIENCE_S) == 0, (tmp_path / "out").read_text()
    assert frontier(copy, "check").returncode == 0
    assert "without the archive (warc) and the logs" in (tmp_path / "out").read_text()


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    none = frontier(tmp_path / "none", "snapshot", str(tmp_path / "copy"))
    assert none.returncode == 1 and "is not a data directory" in none.stderr
    shared = frontier(
        tmp_path / "none",
        "snapshot",
        str(tmp_path / "copy"),
        "-s",
        "CRAWLER_FRONTIER_URL=redis://127.0.0.1:1/0",
    )
    assert shared.returncode == 1 and "redis-cli BGSAVE" in shared.stderr
    assert "snapshot takes one FOLDER" in frontier(tmp_path / "none", "snapshot").stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def begun(tmp_path: Path, web: Site) -> Path:
    """A crawl of which some pages are fetched and others wait, with runs of 3,000 foreign URLs."""
    data = tmp_path / "data"
    done = fork_server.run(crawl_command(data, SETTINGS, seeds=web.url("/0"), max_pages=20))
    assert done.returncode == 0, done.stderr
    index = tmp_path / "foreign.cdxj"
    index.write_text("".join(f'a 2 {{"url": "http://foreign.example/{n}"}}\n' for n in range(3000)))
    assert frontier(data, "seen", "--from", str(index)).returncode == 0
    return data


def runs_of(data: Path) -> list[Path]:
    with closing(RocksStore(data / "frontier", read_only=True)) as store:
        stored = seen_manifest(store).runs
    return [data / "seen" / file.name for run in stored for file in run.files]


def test_a_damaged_run_stops_the_crawl_and_is_repaired(
    tmp_path: Path, begun: Path, web: Site
) -> None:
    for file in runs_of(begun):
        content = bytearray(file.read_bytes())
        for begin in (0, 4096):  # of two pages
            content[begin] ^= 0xFF
        file.write_bytes(content)
    fetched = len(web.asked)
    refused = fork_server.run(crawl_command(begun, SETTINGS, seeds=web.url("/0")))
    assert refused.returncode == 1
    assert "is damaged" in refused.stderr and "frontier check --repair" in refused.stderr
    cut_off = web.asked[fetched:]
    assert len(cut_off) <= 3, "it stops at once: the start reads all"
    found = frontier(begun, "check")
    assert found.returncode == 1 and "2 pages with 1,024 keys" in found.stderr
    repaired = frontier(begun, "check", "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert "1,024 keys of seen URLs were in what is damaged" in repaired.stdout
    assert ".keys.damaged is set aside" in repaired.stdout
    assert "at most so many pages may be fetched again" in repaired.stdout
    assert "are right" in frontier(begun, "check").stdout
    index = begun.parent / "foreign.cdxj"
    taken = json.loads(frontier(begun, "seen", "--from", str(index), "--json").stdout)
    lost = int(repaired.stdout.split(" of no URL that is known")[0].split()[-1].replace(",", ""))
    assert taken["new"] == lost, "those that were lost were all of the other crawl"
    last = fork_server.run(crawl_command(begun, SETTINGS))
    assert last.returncode == 0, last.stderr
    again = [path for path in paths() if web.hits[path] != 1]
    assert {*web.asked} >= {*paths()}, "none is lost"
    assert {*again} <= {*cut_off}, "and none fetched twice but what the failure cut off"
