"""A real scrapyd on loopback with this project deployed to it as an egg, as its user would.

Rule: nothing of the source tree is on its path: what runs, runs from the egg.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until

WAIT_S: Final = 300.0  # each job compiles what reads pages, where an egg is new
PORT_TRIES: Final = 3  # a port that was free a moment ago may be taken
BUILT_FROM: Final = (
    "pyproject.toml",
    "setup.py",
    "scrapy.cfg",
    "requirements.txt",
    "README.md",
    "LICENSE",
)
CONFIG: Final = """\
[scrapyd]
bind_address = 127.0.0.1
http_port = {port}
poll_interval = 0.2
max_proc = 4
jobs_dir = jobs
"""


class Scrapyd:
    """Its web API, and its folder: `logs/`, `jobs/` and the log of the server itself."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}/"

    def ask(self, what: str, **query: object) -> Any:
        return self._answer(f"{what}.json?{urlencode(query, doseq=True)}", None)

    def post(self, what: str, **form: object) -> Any:
        return self._answer(f"{what}.json", urlencode(form, doseq=True).encode())

    def _answer(self, what: str, form: bytes | None) -> Any:
        with urlopen(self.url + what, form, timeout=WAIT_S) as got:  # noqa: S310  # http, ours
            answer = json.load(got)
        assert answer["status"] == "ok", answer
        return answer

    def schedule(self, job: str, **arguments: object) -> None:
        self.post("schedule", project="crawler", spider="web", jobid=job, **arguments)

    def cancel(self, job: str, **signal: str) -> str | None:
        """The state it was in."""
        before: str | None = self.post("cancel", project="crawler", job=job, **signal)["prevstate"]
        return before

    def jobs(self, state: str) -> set[str]:
        """State: pending, running or finished."""
        return {job["id"] for job in self.ask("listjobs")[state]}

    def wait_for(self, job: str) -> None:
        wait_until(
            lambda: job in self.jobs("finished"), WAIT_S, f"job {job} has ended", poll_s=0.05
        )

    def log(self, job: str) -> str:
        return (self.folder / "logs" / "crawler" / "web" / f"{job}.log").read_text()

    def own_log(self) -> str:
        """With what its jobs printed."""
        return (self.folder / "scrapyd.log").read_text()

    def data(self, job: str) -> Path:
        """Return the default data directory of a job."""
        return self.folder / "jobs" / "crawler" / "web" / job


@contextmanager
def scrapyd_with_project(folder: Path) -> Iterator[Scrapyd]:
    (folder / "server").mkdir()
    process, server = _started(folder / "server")
    try:
        _deploy(folder / "project", server.url)
        yield server
    finally:
        try:
            for job in server.jobs("running"):
                server.cancel(job, signal="KILL")
                server.wait_for(job)
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _environment() -> dict[str, str]:
    foreign = ("SCRAPY", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def _started(folder: Path) -> tuple[subprocess.Popen[bytes], Scrapyd]:
    for _ in range(PORT_TRIES):
        with socket.create_server(("127.0.0.1", 0)) as free:
            server = Scrapyd(folder, free.getsockname()[1])
        process = _run(server)
        if _lives(process, server):
            return process, server
    raise OSError(f"scrapyd does not start: {server.own_log()[-2000:]}")


def _lives(process: subprocess.Popen[bytes], server: Scrapyd) -> bool:
    wait_until(
        lambda: process.poll() is not None or _answers(server),
        WAIT_S,
        "scrapyd answers",
        poll_s=0.05,
    )
    return process.poll() is None


def _run(server: Scrapyd) -> subprocess.Popen[bytes]:
    (server.folder / "scrapyd.conf").write_text(CONFIG.format(port=server.port))
    with (server.folder / "scrapyd.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "scrapyd"],
            cwd=server.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _answers(server: Scrapyd) -> bool:
    try:
        server.ask("daemonstatus")
    except (URLError, ConnectionError):
        return False
    return True


def _deploy(project: Path, url: str) -> None:
    """By scrapyd-deploy, from a copy: it builds in place."""
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "crawler", project / "crawler", ignore=no_caches)
    for name in BUILT_FROM:
        shutil.copy(PROJECT / name, project)
    config = project / "scrapy.cfg"
    config.write_text(config.read_text().replace("http://localhost:6800/", url))
    done = subprocess.run(
        [sys.executable, "-m", "scrapyd_client.deploy"],
        cwd=project, env=_environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
