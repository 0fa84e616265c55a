"""The password of a shared frontier is in no output, no log and no file of a crawl."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.commands import crawl_command
from tests.harness.fork_server import ForkedProcess, running
from tests.servers.redis import RedisServer

UNSPOKEN = "s3cr3t-d0-n0t-t3ll"
CLOSED = "127.0.0.1:1"  # nothing answers there: a crawl of it ends soon
PATIENCE_S = 60.0
URL = f"redis://:{UNSPOKEN}@127.0.0.1:{{port}}"  # of a server with this password

FRONTIERS: Mapping[str, Mapping[str, str]] = {
    "ours": {"CRAWLER_FRONTIER_URL": URL},
    "scrapy-redis': a URL": {"REDIS_URL": URL},
    "scrapy-redis': params": {"REDIS_PARAMS": f'{{"password": "{UNSPOKEN}", "port": {{port}}}}'},
    "in a file": {"CRAWLER_FRONTIER_URL": "file:{folder}/url"},
    "in a file that holds no URL": {"CRAWLER_FRONTIER_URL": "file:{folder}/no_url"},
    "for a port, which is refused": {"CRAWLER_FRONTIER_URL": f"redis://127.0.0.1:{UNSPOKEN}"},
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What crawls that get nowhere have put out, logged and kept; all at once, for the time."""
    folders = {where: tmp_path_factory.mktemp("crawl") for where in FRONTIERS}
    with ExitStack() as stack:
        port = stack.enter_context(RedisServer(password=UNSPOKEN)).port
        commands = {where: command(folders[where], FRONTIERS[where], port) for where in FRONTIERS}
        begun = [
            stack.enter_context(running(commands[where], folder / "shown"))
            for where, folder in folders.items()
        ]
        for process in begun:
            end(process)
        yield {where: contents(folder) for where, folder in folders.items()}


def command(folder: Path, settings: Mapping[str, str], port: int) -> list[str]:
    (folder / "url").write_text(URL.replace("{port}", str(port)))
    (folder / "no_url").write_text(f"127.0.0.1:{UNSPOKEN}")
    for name in ("url", "no_url"):
        (folder / name).chmod(0o600)
    given = {
        name: value.replace("{folder}", str(folder)).replace("{port}", str(port))
        for name, value in settings.items()
    }
    ending = {"CRAWLER_RETRIES": 0, "CRAWLER_ROBOTS_TRIES": 1}
    logging = {"LOG_LEVEL": "DEBUG", "LOG_FILE": folder / "log"}
    return crawl_command(
        folder / "data", {**ending, **logging, **given}, seeds=f"http://{CLOSED}/", max_pages=1
    )


def end(process: ForkedProcess) -> None:
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def contents(folder: Path) -> str:
    """All that is written under *folder*, but for what was put there before."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return "".join(
        file.read_bytes().decode("latin-1") for file in files if file.name not in ("url", "no_url")
    )


@pytest.mark.parametrize("where", FRONTIERS)
def test_nothing_shows_the_password(where: str, outputs: Mapping[str, str]) -> None:
    expected = ("Overridden settings", "CRAWLER_FRONTIER_URL is", "the URL of Redis is not shown")
    assert any(each in outputs[where] for each in expected)
    assert UNSPOKEN not in outputs[where]
