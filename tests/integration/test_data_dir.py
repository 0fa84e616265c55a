"""The data directory between two crawls: one at a time, and a damaged one is left as it is, also
one without its frontier.

What else can be wrong with one is in test_bad_input.py.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.data.data_dir import DataDir, InheritedLock
from crawler.model.types import DataDirError
from tests.harness.archive_judges import read_folder
from tests.harness.commands import crawl_command
from tests.harness.comparing import file_digests
from tests.harness.crawling import crawl
from tests.harness.fork_server import ForkedProcess, run, running
from tests.harness.waiting import wait_until
from tests.servers.loopback import Reply, Site, page, site

PATHS = [f"/{number}" for number in range(40)]
WAIT_S = 30.0


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    routes = {path: page(*PATHS[3 * at + 1 : 3 * at + 4]) for at, path in enumerate(PATHS)}
    routes |= {"/slow": lambda hit: Reply(hang=True) if hit == 1 else page()}
    with site("127.0.0.77", routes) as served:
        yield served


def is_up(process: ForkedProcess) -> bool:
    assert process.poll() is None, "the crawl has ended before"
    return True


def command(data: Path, web: Site) -> list[str]:
    return crawl_command(data, seeds=web.url(PATHS[0]))


@pytest.fixture(scope="module")
def killed(web: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of a crawl that was killed half-way: its content is in RocksDB's log."""
    data = tmp_path_factory.mktemp("killed") / "data"
    half = len(web.asked) + len(PATHS) // 2
    with running(command(data, web), data.parent / "log") as process:
        wait_until(lambda: is_up(process) and len(web.asked) >= half, WAIT_S)
        process.kill()
    return data


@pytest.fixture(scope="module")
def closed(web: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of a crawl that has finished: its content is in RocksDB's tables."""
    data = tmp_path_factory.mktemp("closed") / "data"
    assert crawl(data, seeds=web.url(PATHS[0])).reason == "finished"
    return data


def archived(data: Path, web: Site) -> set[str]:
    records = read_folder(data / "warc").values()
    return {one.url.removeprefix(web.root) for one in records if one.kind != "warcinfo"}


@pytest.mark.parametrize("name", ["crawl.lock", "outcomes.jsonl", "control.address", "runs.draft"])
@pytest.mark.parametrize("leads_somewhere", [True, False])
def test_a_link_in_place_of_a_file_is_refused_by_name(
    tmp_path: Path, name: str, leads_somewhere: bool
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    if leads_somewhere:
        elsewhere.write_text("precious")
    (data / name).symlink_to(elsewhere)
    with pytest.raises(DataDirError, match=f"{name} is a symbolic link"):
        DataDir(data)
    assert not (data / "format.json").exists(), "nothing was begun"
    assert elsewhere.read_text() == "precious" if leads_somewhere else not elsewhere.exists()
    (data / name).unlink()
    DataDir(data).close()


@pytest.mark.parametrize("name", ["crawl.lock", "outcomes.jsonl"])
def test_a_link_to_a_folder_in_place_of_a_file_is_refused_by_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataDirError, match=f"{name} is a symbolic link"):
        DataDir(tmp_path)


def test_a_link_in_place_of_the_lock_of_several_workers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "share.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataDirError, match=r"share\.lock is a symbolic link"):
        InheritedLock.take(tmp_path / "share.lock")
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_links_to_folders_and_rules_are_followed(tmp_path: Path) -> None:
    data, other_disk = tmp_path / "data", tmp_path / "disk"
    data.mkdir()
    other_disk.mkdir()
    (data / "warc").symlink_to(other_disk)
    (data / "rules.toml").symlink_to(tmp_path / "rules.toml")
    DataDir(data).close()


def test_a_second_crawl_is_refused_until_the_first_is_dead(web, tmp_path):
    # Or the host would rest as long as it was in use.
    settings = {"CRAWLER_DELAY_FACTOR": 0}
    slow = crawl_command(tmp_path / "data", settings, seeds=web.url("/slow"))
    with running(slow, tmp_path / "log") as first:
        wait_until(lambda: is_up(first) and "/slow" in web.asked, WAIT_S)
        refused = run(slow)
        assert refused.returncode == 1
        assert f"in use by another crawl (process {first.pid})" in refused.stderr
        first.kill()
        first.wait()
        continued = run(slow)
    assert continued.returncode == 0, continued.stderr[-2000:]
    assert archived(tmp_path / "data", web) == {"/slow"}, "what the dead one had under way"


def largest(data: Path, pattern: str) -> Path:
    return max((data / "frontier").glob(pattern), key=lambda file: file.stat().st_size)


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def scribble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for at in range(0, len(content) // 2, 64):
        content[at] ^= 0xFF
    file.write_bytes(content)


# What RocksDB writes anew whenever it is opened; none of it is a URL's.
BOOKKEEPING = ("CURRENT", "MANIFEST", "OPTIONS")


def kept(data: Path, *, opened: bool) -> dict[str, str]:
    """What must be as it was. *opened*: the damage was found only when it was read."""
    return {
        name: digest
        for name, digest in file_digests(data).items()
        if not (opened and (Path(name).name.startswith(BOOKKEEPING) or name.endswith(".log")))
    }


@pytest.mark.parametrize(
    ("damage", "message", "opened"),
    [
        pytest.param(cut_off, "frontier cannot be opened", False, id="a table that is cut off"),
        pytest.param(Path.unlink, "frontier cannot be opened", False, id="a table that is gone"),
        pytest.param(scribble, ".sst is damaged", True, id="a scribbled table"),
    ],
)
def test_a_damaged_frontier_is_refused_and_a_copy_put_back_works(
    web, closed, tmp_path, damage, message, opened
):
    data = tmp_path / "data"
    shutil.copytree(closed, data)
    damage(largest(data, "*.sst"))
    before, asked = kept(data, opened=opened), len(web.asked)
    for attempt in ("first", "second"):
        refused = run(command(data, web))
        assert refused.returncode == 1
        assert message in refused.stderr
        assert kept(data, opened=opened) == before, f"the {attempt} look changed something"
    shutil.copytree(closed / "frontier", data / "frontier", dirs_exist_ok=True)
    assert crawl(data, seeds=web.url(PATHS[0])).reason == "finished"
    assert len(web.asked) == asked, "all was done, and no page was requested again"


def test_a_look_at_the_lock_refuses_no_crawl(tmp_path: Path) -> None:
    """It holds the lock for an instant; a console looks again and again."""
    DataDir(tmp_path).close()
    with (tmp_path / "crawl.lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        threading.Timer(0.05, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        DataDir(tmp_path).close()


@pytest.mark.parametrize(
    "torn_bytes", [pytest.param(1, id="a byte"), pytest.param(300, id="several entries")]
)
def test_a_log_torn_at_its_end_costs_no_page(web, killed, tmp_path, torn_bytes):
    data = tmp_path / "data"
    shutil.copytree(killed, data, ignore=shutil.ignore_patterns("*.sock"))
    log = largest(data, "*.log")
    log.write_bytes(log.read_bytes()[:-torn_bytes])
    assert crawl(data, seeds=web.url(PATHS[0])).reason == "finished"
    assert archived(data, web) == set(PATHS)


def test_a_crawl_without_its_frontier_is_refused(tmp_path: Path):
    data = tmp_path / "data"
    with site("127.0.5.9", {"/": page()}) as web:
        crawl(data, seeds=web.url("/"))
        shutil.rmtree(data / "frontier")
        outcomes = (data / "outcomes.jsonl").read_bytes()
        with pytest.raises(DataDirError, match="frontier is gone"):
            crawl(data, seeds=web.url("/"))
    assert (data / "outcomes.jsonl").read_bytes() == outcomes
