"""`python -m bench.console`: what looking at a large crawl, and acting on it, costs the crawl.

Rule: a real crawl, paused, whose frontier holds many hosts and URLs; its console is asked over HTTP
by another process. The seconds are from a request to its answer. How long the event loop is held is
judged from outside, too: by the slowest answer to a small request, of which one follows the other
meanwhile. The last lines are the CPU of the crawl with nobody looking, and with one page open.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from scrapy.utils.project import get_project_settings

from bench.crawls import PROJECT
from bench.frontier.page import Embedded, candidate, fill
from crawler.config.settings import read_config
from crawler.data.data_dir import CONSOLE, DataDir
from crawler.frontier.open import frontier_limits
from crawler.policy.admission import identity_of_urls

SECONDS: Final = 1.0
HELD_MS: Final = 20.0
_QUIET_S: Final = 30.0
_LONGEST_S: Final = 1_800.0
_SMALL: Final = "/api/overview"


def prepare(folder: Path, hosts: int, waiting: int) -> None:
    """Make a data directory with *waiting* URLs of *hosts* hosts."""
    settings = get_project_settings()
    config = read_config({name: settings[name] for name in settings})
    DataDir(folder, identity_of_urls(config), "web").close()
    with closing(Embedded(folder, frontier_limits(config), time.time())) as frontier:
        fill(frontier, waiting, hosts, 0)
    (folder / "rules.toml").write_text("paused = true\n")


class Crawl:
    """The process of the crawl, and requests to its console."""

    def __init__(self, folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "scrapy",
            "crawl",
            "web",
            "-a",
            "seeds=https://host0.example/",
            "-s",
        ]
        command += [f"CRAWLER_DATA_DIR={folder}", "-s", "CRAWLER_HTTP=127.0.0.1:6890"]
        command += ["-s", "CRAWLER_CONTACT=ops@w3.org", "-s", "CRAWLER_PROGRESS=off"]
        self._log = (folder / "bench.log").open("ab")
        (folder / CONSOLE).unlink(missing_ok=True)
        self.process = subprocess.Popen(command, cwd=PROJECT, stderr=self._log, stdout=self._log)
        deadline = time.monotonic() + _LONGEST_S
        while not (folder / CONSOLE).exists():
            assert self.process.poll() is None, f"the crawl has ended: {folder / 'bench.log'}"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        self.port = int((folder / CONSOLE).read_text().rpartition(":")[2])

    def ask(self, path: str, body: object = None) -> tuple[float, Any]:
        """Return the seconds until the answer, and the answer."""
        begun = time.perf_counter()
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)) as link:
            if body is None:
                link.request("GET", path)
            else:
                sent = json.dumps(body)
                link.request("POST", path, sent, {"Content-Type": "application/json"})
            answer = link.getresponse()
            found = json.loads(answer.read())
            assert answer.status == http.client.OK, found
        return time.perf_counter() - begun, found

    @contextmanager
    def probed(self) -> Iterator[Callable[[], float]]:
        """Ask for something small all the time; yields a function that returns the slowest answer
        so far, in seconds."""
        slowest, is_over = [0.0], threading.Event()

        def probe() -> None:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)) as link:
                while not is_over.is_set():
                    begun = time.perf_counter()
                    link.request("GET", _SMALL)
                    link.getresponse().read()
                    slowest.append(time.perf_counter() - begun)
                    time.sleep(0.001)

        thread = threading.Thread(target=probe)
        thread.start()
        try:
            yield lambda: max(slowest)
        finally:
            is_over.set()
            thread.join()

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process so far, of all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def close(self) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(120)
        self.process.kill()
        self.process.wait()
        self._log.close()


def measured(crawl: Crawl, name: str, path: str, body: object = None) -> bool:
    """Ask three times, print the middle and the hold, and return whether both are within bars."""
    with crawl.probed() as slowest:
        asked = sorted(crawl.ask(path, body)[0] for _ in range(1 if body else 3))
        held = slowest()
    took = asked[len(asked) // 2]
    is_good = took <= SECONDS and held * 1000 <= HELD_MS
    note = "" if is_good else "  missed"
    print(f"{name:45} {took:8.3f} s {held * 1000:8.1f} ms{note}", flush=True)
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=float, default=1e6)
    parser.add_argument("--waiting", type=float, default=1e7)
    parser.add_argument("--folder", type=Path, required=True, help="kept, and used again")
    options = parser.parse_args()
    folder = options.folder / f"{options.hosts:g}-{options.waiting:g}"
    if not (folder / "filled").exists():
        shutil.rmtree(folder, ignore_errors=True)
        prepare(folder, int(options.hosts), int(options.waiting))
        (folder / "filled").touch()
    with closing(Crawl(folder)) as crawl:
        return print_all(crawl)


def print_all(crawl: Crawl) -> int:
    url, host = candidate(77, 3).url, "host77.example"
    print(f"{'':45} {'answer':>10} {'loop held':>11}   bars {SECONDS:g} s, {HELD_MS:g} ms")
    with crawl.probed() as slowest:
        time.sleep(_QUIET_S)
        print(f"{'nothing else asked':45} {'':>10} {slowest() * 1000:8.1f} ms")
    good = [
        measured(crawl, "overview", "/api/overview"),
        measured(crawl, "hosts, by what waits", "/api/hosts"),
        measured(crawl, "hosts, by failures", "/api/hosts?sort=failures"),
        measured(crawl, "hosts, by name", "/api/hosts?sort=name"),
        measured(crawl, "hosts, with 999 in their names", "/api/hosts?match=999"),
        measured(crawl, "hosts, the last in order", "/api/hosts?top=20&offset=9980"),
        measured(crawl, "hosts, the last by name", "/api/hosts?sort=name&top=20&offset=999980"),
        measured(crawl, "one host", f"/api/hosts?host={host}"),
        measured(crawl, "why", f"/api/why?url={quote(url)}"),
        measured(crawl, "dead letters", "/api/dead"),
        measured(crawl, "outcomes", "/api/outcomes"),
        measured(crawl, "audit", "/api/audit"),
        measured(crawl, "rules", "/api/rules"),
        measured(crawl, "delay of a host", "/api/delay", {"targets": [host], "value": "5s"}),
        measured(crawl, "pause of a domain", "/api/pause", {"targets": ["*.host78.example"]}),
        measured(crawl, "refuse a host", "/api/refuse", {"targets": ["host79.example"]}),
        measured(crawl, "refuse a pattern of URLs", "/api/refuse", {"targets": ["*/page-7-*"]}),
        measured(
            crawl,
            "refuse a pattern, only counted",
            "/api/refuse",
            {"targets": ["*/page-8-*"], "dry_run": True},
        ),
        measured(crawl, "add a URL", "/api/add", {"targets": ["https://host80.example/new"]}),
    ]
    with crawl.probed() as slowest:
        begun = time.perf_counter()
        while any(row["touched"] is None for row in crawl.ask("/api/audit")[1] if _is_work(row)):
            time.sleep(0.5)
        took = time.perf_counter() - begun
        print(
            f"{'the pass over what waits, behind it':45} {took:8.1f} s {slowest() * 1000:8.1f} ms"
        )
    for name, looks in (("nobody looks", False), ("one page is open", True)):
        print(f"{name:45} {_looked_at(crawl, is_open=looks):8.2f} % CPU")
    return 0 if all(good) else 1


def _is_work(row: dict[str, Any]) -> bool:
    return row["verb"] in ("refuse", "add", "level", "drop", "purge")


def _looked_at(crawl: Crawl, *, is_open: bool) -> float:
    """Return the CPU that the crawl takes, in percent of a core."""
    with closing(http.client.HTTPConnection("127.0.0.1", crawl.port, timeout=600)) as link:
        if is_open:
            link.request("GET", "/api/live")
            answer = link.getresponse()
        before, begun = crawl.cpu_s(), time.perf_counter()
        if is_open:
            while time.perf_counter() < begun + _QUIET_S:
                answer.readline()
        else:
            time.sleep(_QUIET_S)
        return 100 * (crawl.cpu_s() - before) / (time.perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(main())
