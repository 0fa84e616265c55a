"""A server that answers with what it was sent, and holds one path back until it is asked again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo:
    """Its books: what was asked for, in order of arrival."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.asked: list[str] = []
        self.held = threading.Event()  # somebody waits for *hold*
        self.closing = threading.Event()


@contextmanager
def echo(address: str, hold: str) -> Iterator[Echo]:
    """Serve on *address* at a free port. The first request for the path *hold* gets no answer,
    and paths that begin with "/missing" are 404."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            books.asked.append(self.path)
            if self.path == hold and books.asked.count(hold) == 1:
                books.held.set()
                books.closing.wait(60)
                self.close_connection = True
                return
            told = {
                "method": self.command,
                "headers": self.headers.items(),
                "body": body.decode("latin-1"),
            }
            is_page = not self.path.startswith(("/missing", "/robots.txt"))
            content = json.dumps(told).encode()
            self.send_response(200 if is_page else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            """The log is `Echo.asked`."""

    server = ThreadingHTTPServer((address, 0), Handler)
    books = Echo(f"http://{address}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield books
    finally:
        books.closing.set()
        server.shutdown()
        server.server_close()
