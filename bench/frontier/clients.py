"""Clients that act at the same time, and what an act of theirs costs.

Rule: the clock runs from the word given to all until the last has answered; what they prepare
before is not measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import IO, Final

import msgspec

from bench.crawls import PROJECT
from bench.frontier.client import Act, Order, Report
from bench.redis_server import Server

LONGEST_S: Final = 300.0  # all acts of some clients; they take a minute at most


class ClientFailed(Exception):
    """A client ended before its time. What it said is on standard error."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one act of all clients."""

    done: int
    wall_s: float
    redis_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.done / self.wall_s

    @property
    def redis_us(self) -> float:
        """CPU of one of what was done."""
        return self.redis_cpu_s / self.done * 1e6


class Clients:
    def __init__(self, server: Server, pipes: list[tuple[IO[str], IO[str]]]) -> None:
        self._server = server
        self._pipes = pipes

    def act(self, act: Act, count: int, hosts: int = 0) -> Cost:
        """*count* of all clients together; of FILL, that is what they share."""
        share = count if act is Act.FILL else -(-count // len(self._pipes))
        order = msgspec.json.encode(Order(act, share, hosts)).decode()
        self._tell(order)
        self.wait()
        cpu_s, started_s = self._server.cpu_s(), time.monotonic()
        self._tell("now")
        reports = [msgspec.json.decode(line, type=Report) for line in self._heard()]
        wall_s = time.monotonic() - started_s
        done = sum(report.done for report in reports)
        if not done:
            raise ClientFailed(f"nothing to {act}")
        return Cost(done, wall_s, self._server.cpu_s() - cpu_s)

    def known(self) -> int:
        """How many URLs were ever new, as each of them counts."""
        return self.act(Act.KNOWN, 0).done // len(self._pipes)

    def wait(self) -> None:
        """Until all are through with what goes before."""
        self._heard()

    def _tell(self, line: str) -> None:
        for to_client, _ in self._pipes:
            to_client.write(f"{line}\n")
            to_client.flush()

    def _heard(self) -> list[str]:
        lines = [from_client.readline() for _, from_client in self._pipes]
        if not all(lines):
            raise ClientFailed("a client of the frontier ended; what it said stands above")
        return lines


@contextmanager
def clients(driver: str, server: Server, number: int) -> Iterator[Clients]:
    """*number* processes, each with a connection of its own."""
    started: list[subprocess.Popen[str]] = []

    def end() -> None:
        for process in started:
            process.kill()  # does nothing where it has ended

    overdue = Timer(LONGEST_S, end)
    with ExitStack() as stack:
        stack.callback(overdue.cancel)
        overdue.start()
        for each in range(number):
            process = stack.enter_context(_client(driver, server.url, str(each), str(number)))
            stack.callback(process.kill)
            started.append(process)
        connected = Clients(server, [_pipes(process) for process in started])
        connected.wait()
        yield connected


def _client(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.frontier.client", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True
    )


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None, "it was asked for"
    assert process.stdout is not None, "it was asked for"
    return process.stdin, process.stdout
