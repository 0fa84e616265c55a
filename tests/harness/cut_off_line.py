"""A crawl in a network namespace whose line is cut off for a while: run as
`unshare -rn python -m tests.harness.cut_off_line FOLDER`. Prints what came of it as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.harness.crawling import crawl

HOSTS: Final = 30  # more than tell a line that is down from servers that are
PAGES: Final = 8  # of each host
CUT_AFTER: Final = 100  # answers
CUT_S: Final = 3.0


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        self.answers["all"] += 1
        links = "".join(f"<a href='/{n}'>{n}</a>" for n in range(1, PAGES))
        body = f"<title>{self.path}</title>{self.headers['Host']} {self.path} {links}".encode()
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The crawl's log is enough."""


def set_line(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def packets() -> int:
    """Sent over the line so far. A server's answers would not do: it goes on with what came before
    the cut."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    counters = next(line for line in lines if line.lstrip().startswith("lo:"))
    return int(counters.split()[10])


def cut_for_a_while(found: dict[str, int]) -> None:
    while Pages.answers["all"] < CUT_AFTER:
        time.sleep(0.01)
    set_line("down")
    sent = packets()
    time.sleep(CUT_S)
    found["packets while it was cut off"] = packets() - sent
    set_line("up")


def main() -> None:
    folder = Path(sys.argv[1])
    set_line("up")
    server = ThreadingHTTPServer(("0.0.0.0", 0), Pages)  # of a network of its own
    found: dict[str, Any] = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=cut_for_a_while, args=(found,), daemon=True).start()
    seeds = folder / "seeds.txt"
    hosts = (f"127.0.1.{n + 1}" for n in range(HOSTS))
    seeds.write_text("".join(f"http://{host}:{server.server_port}/\n" for host in hosts))
    settings = {"CRAWLER_MIN_DELAY_S": 0.2, "CRAWLER_PAUSE_S": 300.0, "CRAWLER_PAUSE_MAX_S": 300.0}
    done = crawl(folder / "data", settings=settings, seeds=str(seeds))
    fates = Counter(outcome.fate for outcome in done.outcomes)
    paused = {name: count for name, count in done.stats.items() if "pause" in name}
    found |= {
        "reason": done.reason,
        "fates": fates,
        "paused": paused,
        "answers": Pages.answers["all"],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
