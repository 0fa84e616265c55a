"""A few fixed answers by path on a loopback address of their own, with a log of the requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Answer:
    body: str | bytes = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    hang: bool = False  # never answer


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


# A callable gets the count of its hits; None leaves the answer to the default.
Routes = Mapping[str, Answer | Callable[[int], Answer | None]]


def not_here(asked: Asked) -> Answer:
    return Answer("not here", 404)


@dataclass(slots=True)
class Site:
    root: str
    asked: list[str] = field(default_factory=list)  # paths, in order of arrival
    hits: dict[str, int] = field(default_factory=dict)

    def url(self, path: str) -> str:
        return self.root + path


@contextmanager
def site(
    address: str, routes: Routes, default: Callable[[Asked], Answer] = not_here
) -> Iterator[Site]:
    """Serve *routes* on *address* at a free port; *default* answers on other paths."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(self.command, self.path, self.headers.items(), self.rfile.read(length))
            web.asked.append(self.path)
            hit = web.hits[self.path] = web.hits.get(self.path, 0) + 1
            route = routes.get(self.path)
            found = (route(hit) if callable(route) else route) or default(asked)
            if found.hang:
                stop.wait(60)
                return
            if found.wait_s:
                time.sleep(found.wait_s)
            body = found.body.encode() if isinstance(found.body, str) else found.body
            self.send_response(found.status)
            for name, value in found.headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-type" for name, _ in found.headers):
                self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = answer

        def log_message(self, *_: object) -> None:
            """The log is `Site.asked`."""

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    web = Site(f"http://{address}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


def page(*links: str, text: str = "") -> Answer:
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return Answer(f"<html><title>{text}</title><body>{text} {anchors}</body></html>")
