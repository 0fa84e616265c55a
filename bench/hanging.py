"""Good hosts beside hosts that hang: how many pages a second the good ones keep.

Rule: the servers are processes of their own, and the pages are counted by the server of the good
hosts. A host hangs in one of three ways: it accepts and never answers (`silent`), it drops the SYN
(`dropped`), or its pages drip a byte a second (`drip`). `python -m bench.hanging` runs the good
hosts alone, then beside each kind, then beside all kinds mixed; it ends with 1 where a promise is
broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from hashlib import shake_128
from pathlib import Path
from typing import Final, cast

from bench.crawls import PROJECT
from bench.measure import CrawlFailed
from bench.redis_server import redis_server

SILENT: Final = "silent"
DROPPED: Final = "dropped"
DRIP: Final = "drip"
KINDS: Final = (SILENT, DROPPED, DRIP)
MIXED: Final = "mixed"
KEPT: Final = 0.9  # of the pages/s that the good hosts have alone
MOST_MB: Final = 400.0
COUNT_PATH: Final = b"/-/count"
OPENED: Final = b"Spider opened"
_DRIP_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n"
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"


@dataclass(frozen=True, slots=True)
class Measured:
    """The good hosts beside others, from when the spider is opened."""

    pages_per_s: float
    first_page_s: float  # 0: there was none
    peak_mb: float
    cpu_s: float


def addresses(network: int, hosts: int) -> list[str]:
    return [f"127.{network}.{number // 250}.{number % 250 + 1}" for number in range(hosts)]


class _Good(asyncio.Protocol):
    """Each page links to the next twenty."""

    served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        if path == COUNT_PATH:
            self._answer(b"text/plain", b"%d" % _Good.served)
        elif path == b"/robots.txt":
            self._answer(b"text/plain", b"User-agent: *\nDisallow: /private/\n")
        else:
            _Good.served += 1
            number = int(path[2:]) if path[2:].isdigit() else 0
            host = self._transport.get_extra_info("sockname")[0].encode()
            # Unlike all others: a copy of a page is not followed.
            text = shake_128(host + path).hexdigest(4_000).replace("0", " ").encode()
            links = b"".join(b'<a href="/n%d">%d</a> ' % (n, n) for n in range(number, number + 20))
            self._answer(b"text/html", b"<title>%b</title><p>%b%b" % (path, text, links))

    def _answer(self, kind: bytes, body: bytes) -> None:
        self._transport.write(_HEAD % (kind, len(body), body))


class _Silent(asyncio.Protocol):
    """Accepts, and never answers."""


class _Drip(asyncio.Protocol):
    """robots.txt is answered; of a page a byte a second."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._dripping: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if data.split(b" ", 2)[1] == b"/robots.txt":
            self._transport.write(_HEAD % (b"text/plain", 0, b""))
        else:
            self._transport.write(_DRIP_HEAD)
            self._drip()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._dripping is not None:
            self._dripping.cancel()

    def _drip(self) -> None:
        self._transport.write(b"x")
        self._dripping = asyncio.get_running_loop().call_later(1.0, self._drip)


def _listener() -> socket.socket:
    """On all addresses of this machine at once."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", 0))  # noqa: S104  # each of 127.0.0.0/8 is a host
    return listener


async def _serve(kind: str) -> None:
    loop = asyncio.get_running_loop()
    listener = _listener()
    port: int = listener.getsockname()[1]
    filling = []
    if kind == DROPPED:
        # Nothing is ever accepted: with its queue full the kernel drops what comes after.
        listener.listen(0)
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            filling.append(one)
    else:
        made = {"good": _Good, SILENT: _Silent, DRIP: _Drip}[kind]
        await loop.create_server(made, sock=listener, backlog=4096)
    print(port, flush=True)
    await asyncio.Event().wait()


@contextmanager
def server(kind: str) -> Iterator[int]:
    """Its port."""
    command = [sys.executable, "-m", "bench.hanging", "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _served(port: int) -> int:
    url = f"http://127.1.0.1:{port}{COUNT_PATH.decode()}"
    with urllib.request.urlopen(url) as answer:
        return int(answer.read())


def _status(process: int) -> tuple[float, float]:
    """Peak memory in MB, CPU in seconds."""
    status = Path(f"/proc/{process}/status").read_text()
    peak_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    times = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()
    return int(peak_kb) / 1024, (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    good: int, seeds: Sequence[str], seconds: float, settings: dict[str, str], log: Path | None
) -> Measured:
    """One crawl of *seeds*, ended by force after *seconds*. *good*: the port of those counted."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        listed = Path(folder, "seeds.txt")
        listed.write_text("".join(f"{seed}\n" for seed in seeds))
        command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={listed}"]
        given = {"CRAWLER_DATA_DIR": str(Path(folder, "data")), **settings}
        for name, value in given.items():
            command += ["-s", f"{name}={value}"]
        told = log or Path(folder, "log")
        told.unlink(missing_ok=True)
        with (
            told.open("wb") as output,
            subprocess.Popen(command, stdout=output, stderr=output, cwd=PROJECT) as process,
        ):
            try:
                while OPENED not in told.read_bytes():
                    if process.poll() is not None:
                        raise CrawlFailed(told.read_text(errors="replace")[-3_000:])
                    time.sleep(0.05)
                started, first_page_s = time.monotonic(), 0.0
                while time.monotonic() < started + seconds:
                    time.sleep(0.2)
                    if not first_page_s and _served(good):
                        first_page_s = time.monotonic() - started
                pages = _served(good)
                peak_mb, cpu_s = _status(process.pid)
            finally:
                process.kill()
    return Measured(pages / seconds, first_page_s, peak_mb, cpu_s)


def beside(
    kinds: Sequence[str], good_hosts: int, hanging: int, options: argparse.Namespace
) -> Measured:
    """*hanging* hosts in all, of *kinds* in turn, in a random order among the good ones."""
    settings = {
        "CRAWLER_MIN_DELAY_S": str(options.gap),
        "CRAWLER_DELAY_FACTOR": "0",
        **dict(each.split("=", 1) for each in options.set),
    }
    ports: dict[str, int] = {}
    with contextmanager(_servers)(["good", *kinds], ports) as _:
        seeds = [f"http://{host}:{ports['good']}/" for host in addresses(1, good_hosts)]
        for number, host in enumerate(addresses(2, hanging if kinds else 0)):
            seeds.append(f"http://{host}:{ports[kinds[number % len(kinds)]]}/")
        random.Random(0).shuffle(seeds)
        if options.hanging_first:
            seeds.sort(key=lambda seed: seed.startswith("http://127.1."))
        shared = redis_server(append_only=True) if options.shared else nullcontext()
        with shared as redis:
            if redis is not None:
                settings["CRAWLER_FRONTIER_URL"] = redis.url
            return measure(ports["good"], seeds, options.seconds, settings, options.log)


def _servers(kinds: Sequence[str], ports: dict[str, int]) -> Iterator[None]:
    if not kinds:
        yield
        return
    with server(kinds[0]) as port:
        ports[kinds[0]] = port
        yield from _servers(kinds[1:], ports)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hanging", description=__doc__)
    parser.add_argument("--serve", choices=("good", *KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--good", type=int, default=20, help="hosts that answer")
    parser.add_argument("--hanging", type=int, default=1_000, help="hosts that hang")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each crawl")
    parser.add_argument(
        "--gap", type=float, default=0.3, help="seconds between two fetches of a host"
    )
    parser.add_argument("--only", nargs="+", choices=(*KINDS, MIXED), default=(*KINDS, MIXED))
    parser.add_argument("--shared", action="store_true", help="with the frontier in Redis")
    parser.add_argument("--hanging-first", action="store_true", help="before all good seeds")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--log", type=Path, help="the crawls' output is kept there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    if options.serve:
        asyncio.run(_serve(options.serve))
        return 0
    alone = beside((), options.good, 0, options)
    print(f"alone: {asdict(alone)}", flush=True)
    figures, broken = {"alone": asdict(alone)}, []
    for name in options.only:
        measured = beside(
            KINDS if name == MIXED else (name,), options.good, options.hanging, options
        )
        kept = measured.pages_per_s / alone.pages_per_s
        print(f"{name}: {kept:.1%} kept, {asdict(measured)}", flush=True)
        figures[name] = {"kept": kept, **asdict(measured)}
        if kept < KEPT or measured.peak_mb > MOST_MB:
            broken.append(f"{name}: {kept:.1%} kept, {measured.peak_mb:.0f} MB")
    print(json.dumps(figures))
    for promise in broken:
        print(f"broken: {promise}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
