"""The password of a shared frontier is in no output, no log and no file of a crawl."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.command import crawl_command
from tests.ready import Begun, running

UNSPOKEN = "s3cr3t-d0-n0t-t3ll"
# Nobody answers there. Whether that ends a crawl or lets it wait, it has said so by then.
CLOSED = "127.0.0.1:1"
PATIENCE_S = 60.0
URL = f"redis://:{UNSPOKEN}@{CLOSED}"

FRONTIERS: Mapping[str, Mapping[str, str]] = {
    "ours": {"CRAWLER_FRONTIER_URL": URL},
    "scrapy-redis': a URL": {"REDIS_URL": URL},
    "scrapy-redis': params": {"REDIS_PARAMS": json.dumps({"password": UNSPOKEN, "port": 1})},
    "in a file": {"CRAWLER_FRONTIER_URL": "file:{folder}/url"},
    "in a file that holds no URL": {"CRAWLER_FRONTIER_URL": "file:{folder}/no_url"},
    "for a port, which is refused": {"CRAWLER_FRONTIER_URL": f"redis://127.0.0.1:{UNSPOKEN}"},
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """What crawls that get nowhere have put out, logged and kept; all at once, for the time."""
    folders = {where: tmp_path_factory.mktemp("crawl") for where in FRONTIERS}
    with ExitStack() as stack:
        begun = [
            stack.enter_context(running(command(folder, FRONTIERS[where]), folder / "shown"))
            for where, folder in folders.items()
        ]
        for process in begun:
            end(process)
        yield {where: contents(folder) for where, folder in folders.items()}


def command(folder: Path, settings: Mapping[str, str]) -> list[str]:
    (folder / "url").write_text(URL)
    (folder / "no_url").write_text(f"127.0.0.1:{UNSPOKEN}")
    given = {name: value.replace("{folder}", str(folder)) for name, value in settings.items()}
    ending = {"CRAWLER_RETRIES": 0, "CRAWLER_ROBOTS_TRIES": 1}
    logging = {"LOG_LEVEL": "DEBUG", "LOG_FILE": folder / "log"}
    return crawl_command(
        folder / "data", {**ending, **logging, **given}, seeds=f"http://{CLOSED}/", max_pages=1
    )


def end(process: Begun) -> None:
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
def test_nothing_shows_the_password(where: str, told: Mapping[str, str]) -> None:
    assert "Overridden settings" in told[where] or "CRAWLER_FRONTIER_URL is" in told[where]
    assert UNSPOKEN not in told[where]
