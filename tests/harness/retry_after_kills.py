"""Crawls that are killed within milliseconds of a 429: does a later process keep its Retry-After?

Rule: judged by the server's clock. Each life fetches a page of each of some hosts at once; the
server holds all these requests, answers one after the other, and kills the process, so that at the
kill the age of the answers is spread over the first 100 ms. In the first round the hosts send their
first Retry-After, and an age is counted from when the process has read the head. In the second they
have sent one before, and it is counted from when the server sent it: nothing may have been read.

    python -m tests.harness.retry_after_kills RUNS
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.harness.commands import crawl_command
from tests.harness.fork_server import ForkedProcess, running
from tests.harness.waiting import wait_until
from tests.servers.redis import RedisServer

HOSTS: Final = 20
SPREAD_S: Final = 0.1
BOUND_S: Final = 120.0
WAYS: Final = ("embedded", "shared", "never back")
SETTINGS: Final[Mapping[str, object]] = {
    "CRAWLER_BACKOFF_BASE_S": 0.01,
    "CRAWLER_TOTAL_TIMEOUT_S": 6,
    "CRAWLER_CONNECT_TIMEOUT_S": 3,
    "CRAWLER_LEASE_S": 15,
    "CRAWLER_FRONTIER_SHARDS": 8,
    "CRAWLER_COLUMNS": False,
    "CRAWLER_SOFT_404": False,
}
_TCP: Final = Path("/proc/net/tcp")


@dataclass(slots=True)
class Asked:
    """A request for the page of a host, which is held until it is answered."""

    host: str
    at_s: float  # monotonic
    wire: socket.socket

    def has_read(self) -> bool:
        """Return whether the process has read all that it was sent."""
        there, here = (
            f":{name[1]:04X}" for name in (self.wire.getpeername(), self.wire.getsockname())
        )
        for line in _TCP.read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if local.endswith(there) and remote.endswith(here):
                return not int(queues.partition(":")[2], 16)
        return True  # its end is closed

    def answer(self, head: str) -> float:
        """Return when it was sent."""
        at_s = time.monotonic()
        self.wire.sendall(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n".encode())
        return at_s


@dataclass(slots=True)
class HoldingServer:
    """Answers requests for robots.txt at once, and holds all others."""

    hosts: Sequence[str]
    port: int = 0
    held: list[Asked] = field(default_factory=list)

    def waiting(self) -> dict[str, Asked]:
        """Return by host the requests that still wait for their answer."""
        return {each.host: each for each in list(self.held) if each.wire.fileno() >= 0}

    def first_came_s(self) -> dict[str, float]:
        return {each.host: each.at_s for each in reversed(self.held)}

    @contextmanager
    def serving(self) -> Iterator[None]:
        with ExitStack() as open_now:
            for host in self.hosts:
                listener = open_now.enter_context(socket.create_server((host, self.port)))
                self.port = listener.getsockname()[1]
                threading.Thread(target=self._accept, args=(listener, host), daemon=True).start()
            yield

    def _accept(self, listener: socket.socket, host: str) -> None:
        while True:
            try:
                wire, _ = listener.accept()
            except OSError:
                return
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(wire, host), daemon=True).start()

    def _serve(self, wire: socket.socket, host: str) -> None:
        with wire, suppress(OSError):  # the process was killed
            while request := wire.recv(65_536):
                asked = Asked(host, time.monotonic(), wire)
                if b" /robots.txt " in request:
                    asked.answer("404 Not Found")
                else:
                    self.held.append(asked)


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer, and the next request of its host."""

    way: str
    is_first: bool  # it is the first Retry-After of its host
    age_ms: float  # at the kill, since it was read or, if it is not the first one, was sent
    early_s: float  # of the next request; below 0: it came when it was allowed

    @property
    def is_inside(self) -> bool:
        return self.early_s > 0


class Crawl:
    """The lives of one crawl."""

    def __init__(self, way: str, folder: Path, settings: Mapping[str, object]) -> None:
        self._way = way
        self._folder = folder
        self._settings = settings
        self._lives = 0

    @contextmanager
    def life(self, port: int, hosts: Sequence[str]) -> Iterator[ForkedProcess]:
        seeds = self._folder / "seeds.txt"
        seeds.write_text("\n".join(f"http://{host}:{port}/page" for host in hosts))
        self._lives += 1
        number = self._lives if self._way == "never back" else 0
        data = self._folder / f"data{number}"
        command = crawl_command(data, self._settings, seeds=seeds)
        with running(command, self._folder / f"log{self._lives}") as process:
            yield process

    def log(self) -> str:
        return (self._folder / f"log{self._lives}").read_text(errors="replace")[-3000:]


def trials(
    way: str, folder: Path, first_host: str, asked_s: int, offset_s: float, **settings: object
) -> list[Trial]:
    """Return the trials of one crawl with two kills, each *offset_s* after the last answer."""
    network, _, last = first_host.rpartition(".")
    hosts = [f"{network}.{int(last) + number}" for number in range(HOSTS)]
    server = HoldingServer(hosts)
    found: list[Trial] = []
    with ExitStack() as open_now:
        open_now.enter_context(server.serving())
        given = {**SETTINGS, **settings}
        if way != "embedded":
            redis = open_now.enter_context(RedisServer())
            given["CRAWLER_FRONTIER_URL"] = redis.url
        crawl = Crawl(way, folder, given)
        pending: dict[str, tuple[float, bool, float]] = {}  # sent at, is the first, age at the kill
        for is_first, enough in ((True, HOSTS), (False, HOSTS // 2)):
            with crawl.life(server.port, hosts) as process:
                wait_until(lambda e=enough: len(server.waiting()) >= e, BOUND_S, log=crawl.log)
                held = list(server.waiting().values())
                found += judged(way, pending, server.first_came_s(), asked_s)
                server.held = []
                sent, since = _answer(held, asked_s, is_first=is_first)
                _wait_s(offset_s)
                at_s = time.monotonic()
                os.kill(process.pid, signal.SIGKILL)
                for host, sent_s in sent.items():
                    pending[host] = sent_s, is_first, 1000 * (at_s - since[host])
                process.wait()
        with crawl.life(server.port, hosts):
            wait_until(lambda: server.first_came_s().keys() >= pending.keys(), BOUND_S)
            found += judged(way, pending, server.first_came_s(), asked_s)
    return found


def judged(
    way: str,
    pending: dict[str, tuple[float, bool, float]],
    came_s: Mapping[str, float],
    asked_s: int,
) -> list[Trial]:
    """Remove from *pending* the hosts that were asked again, and return their trials."""
    return [
        Trial(way, is_first, age_ms, sent_s + asked_s - came_s[host])
        for host in [*pending]
        if host in came_s
        for sent_s, is_first, age_ms in [pending.pop(host)]
    ]


def _answer(
    held: Sequence[Asked], asked_s: int, *, is_first: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Answer all, and return by host when that was, and since when it counts."""
    sent: dict[str, float] = {}
    since: dict[str, float] = {}
    for asked in held:
        sent[asked.host] = asked.answer(f"429 Too Many Requests\r\nRetry-After: {asked_s}")
        if is_first:
            while not asked.has_read():
                pass
        since[asked.host] = time.monotonic()
        if asked is not held[-1]:
            _wait_s(SPREAD_S / len(held))
    return sent, since


def _wait_s(seconds: float) -> None:
    """Wait without a sleep, which may last a millisecond longer."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def main(runs: int, report: Callable[[str], None] = print) -> int:
    """Kill, and return how many hosts were asked too early."""
    found: list[Trial] = []
    for number in range(runs):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                # Without it a host is asked again after a lease and a fetch, here 21 s.
                asked_s = 40 if way == "never back" else 6
                offset_s = SPREAD_S / HOSTS * number / runs
                found += trials(way, Path(folder), "127.0.140.1", asked_s, offset_s)
    for way in WAYS:
        for is_first in (True, False):
            some = [each for each in found if (each.way, each.is_first) == (way, is_first)]
            inside = [each for each in some if each.is_inside]
            ages = ", ".join(f"{each.age_ms:.1f} ms: {each.early_s:.1f} s" for each in inside)
            which = "the first Retry-After" if is_first else "another one"
            report(f"{way}, {which}: {len(inside)} of {len(some)} too early {ages}")
    return sum(each.is_inside for each in found)


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
