"""What one host can make a crawl take and compute by framing alone: bytes that are of no body.

Rule: the server is a process of its own, and counts what it could send; the crawl is the real
command with all defaults but its retries. `python -m bench.framing` prints a table, and ends with 1
where a host could send more than its bound.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.crawls import PROJECT
from bench.measure import CrawlFailed

CHUNKED: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE: Final = b"x" * 16_000
KINDS: Final[dict[str, tuple[bytes, bytes]]] = {  # what comes first, and then for ever
    "extensions": (CHUNKED, b"1;" + LINE + b"\r\na\r\n"),
    "one extension": (CHUNKED + b"1;", LINE),
    "chunks of 1 byte": (CHUNKED, b"1\r\na\r\n" * 10_000),
    "chunks of 1 byte, LF": (CHUNKED, b"1\na\n" * 10_000),
    "chunks of 1 and 2 bytes": (CHUNKED, b"1\r\na\r\n2\r\nab\r\n" * 5_000),
    "extended chunks of 1 byte": (CHUNKED, b"1;\r\na\r\n" * 10_000),
    "trailers": (CHUNKED + b"0\r\n", b"X-Trailer: 1\r\n" * 1_000),
    "header lines": (b"HTTP/1.1 200 OK\r\n", b"X-Line: 1\r\n" * 1_000),
    "interim answers": (b"", b"HTTP/1.1 103 Hints\r\n\r\n" * 1_000),
    "empty lines": (b"", b"\r\n" * 10_000),
    "after the end": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", LINE),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", LINE),
}
BUFFERS_BYTES: Final = 8 << 20
"""What the kernel takes for a client that reads no more: 6 MB in, and our small buffer out."""
ROBOTS: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Taken:
    kind: str
    sent_bytes: int  # by all connections
    cpu_s: float  # of the crawl, its start and end among it
    wall_s: float

    def broken(self, cap_bytes: int) -> str:
        """Empty: it is within its bound."""
        most = cap_bytes + BUFFERS_BYTES
        if self.sent_bytes <= most:
            return ""
        return f"{self.kind}: {self.sent_bytes:,} bytes were taken, of {most:,} at most"


def measured(kind: str, cap_bytes: int, total_timeout_s: float = 30.0) -> Taken:
    """One crawl of one page, which has no end."""
    serving = [sys.executable, "-m", "bench.framing", "--serve", kind]
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(
            serving, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdin and server.stdout
        try:
            url = json.loads(server.stdout.readline())
            began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            crawl(url, Path(home), cap_bytes, total_timeout_s)
            after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began_s
            server.stdin.close()  # says that it is over
            sent_bytes = json.loads(server.stdout.readline())
        finally:
            server.kill()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(kind, sent_bytes, cpu_s, wall_s)


def crawl(url: str, home: Path, cap_bytes: int, total_timeout_s: float) -> None:
    settings = {
        "CRAWLER_DATA_DIR": home / "data",
        "CRAWLER_HTML_MAX_BYTES": cap_bytes,
        "CRAWLER_OTHER_MAX_BYTES": cap_bytes,
        "CRAWLER_TOTAL_TIMEOUT_S": total_timeout_s,
        "CRAWLER_RETRIES": 0,
        "CRAWLER_PROGRESS": "off",
    }
    told = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "scrapy", "crawl", "web", "-a", f"seeds={url}"]
    command += [part for each in told for part in ("-s", each)]
    with (home / "log").open("wb") as log:
        # One that brought no page at all ends with 1.
        subprocess.run(command, cwd=PROJECT, stdout=log, stderr=log, check=False, timeout=300)
    if not (home / "data" / "outcomes.jsonl").exists():
        raise CrawlFailed((home / "log").read_text()[-2000:])


class Server:
    """Sends for ever what its kind says; a process of its own."""

    def __init__(self, kind: str) -> None:
        self.sent_bytes = 0
        self._first, self._more = KINDS[kind]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/page"

    def serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            try:
                if b"/robots.txt" in client.recv(65_536).partition(b"\r\n")[0]:
                    client.sendall(ROBOTS)
                    return
                client.sendall(self._first)
                while True:
                    self.sent_bytes += client.send(self._more)
            except OSError:
                return  # they have had enough


def serve(kind: str) -> None:
    server = Server(kind)
    threading.Thread(target=server.serve, daemon=True).start()
    print(json.dumps(server.url), flush=True)
    sys.stdin.read()  # until it is closed
    print(json.dumps(server.sent_bytes), flush=True)


def table(rows: Sequence[Taken]) -> str:
    head = f"{'':28}{'MB taken':>10}{'CPU s':>8}{'s':>8}"
    lines = (
        f"{row.kind:28}{row.sent_bytes / 1e6:>10.2f}{row.cpu_s:>8.2f}{row.wall_s:>8.2f}"
        for row in rows
    )
    return "\n".join((head, *lines))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.framing", description=__doc__)
    parser.add_argument("--serve", choices=KINDS, help="be the server (for the benchmark itself)")
    parser.add_argument("--cap", type=int, default=2 << 20, metavar="BYTES")
    parser.add_argument("--only", choices=KINDS, nargs="+", metavar="KIND", default=[*KINDS])
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    rows = [measured(kind, options.cap) for kind in options.only]
    print(table(rows))
    broken = [said for row in rows if (said := row.broken(options.cap))]
    for each in broken:
        print(f"broken: {each}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
