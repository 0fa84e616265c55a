"""What stands between a client and its HTTP server, and deals the faults of a network, of a store
and of its load balancer.

Rule: one request, one fault, chosen by the test; what is not dealt a fault passes as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

HOST: Final = "127.0.0.1"
OWN: Final = frozenset({"connection", "transfer-encoding", "expect", "keep-alive"})


class Fault(Enum):
    NONE = auto()
    DOWN = auto()  # 503
    FORBIDDEN = auto()  # 403
    UNKNOWN = auto()  # 501
    HANG = auto()  # no answer until the trouble is over, then none either
    CUT_BEFORE = auto()  # closed; the server never got it
    CUT_AFTER = auto()  # the server has done it, and no reply is sent
    FLIPPED = auto()  # a bit of what is sent arrives otherwise
    OPAQUE = auto()  # a tag in the answer that is no digest, as of what is encrypted


STATUS: Final = {Fault.DOWN: 503, Fault.FORBIDDEN: 403, Fault.UNKNOWN: 501}
CODE: Final = {503: "ServiceUnavailable", 403: "AccessDenied", 501: "NotImplemented"}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it passed."""

    number: int  # from 0
    method: str
    path: str  # with its query
    is_conditional: bool  # If-None-Match
    size_bytes: int
    authorization: str


Deal = Callable[[Call], Fault]


def no_fault(call: Call) -> Fault:
    return Fault.NONE


class TroubledNetwork:
    """From a port of its own to *port*, both on loopback."""

    def __init__(self, port: int) -> None:
        self.deal: Deal = no_fault
        self.calls: list[Call] = []
        self._to_port = port
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        network = self

        class Handler(_Handler):
            def deal(self) -> None:
                network._pass(self)

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True  # clients keep connections for later
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="trouble"
        )
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def end_trouble(self) -> None:
        """As if it were new."""
        with self._lock:
            self.deal, self.calls = no_fault, []

    def _pass(self, handler: _Handler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        call = self._noted(handler, body)
        fault = self.deal(call)
        if status := STATUS.get(fault):
            handler.refuse(status)
            return
        if fault is Fault.HANG:
            self._over.wait()
        if fault in (Fault.HANG, Fault.CUT_BEFORE):
            handler.hang_up()
            return
        if fault is Fault.FLIPPED and body:
            at = len(body) // 2
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        status, headers, answer = self._asked(handler, body)
        if fault is Fault.CUT_AFTER:
            handler.hang_up()
            return
        if fault is Fault.OPAQUE:
            headers = [(k, f'"{"0" * 32}"' if k == "ETag" else v) for k, v in headers]
        handler.answer(status, headers, answer)

    def _noted(self, handler: _Handler, body: bytes) -> Call:
        with self._lock:
            call = Call(
                number=len(self.calls),
                method=handler.command,
                path=handler.path,
                is_conditional="If-None-Match" in handler.headers,
                size_bytes=len(body),
                authorization=handler.headers.get("Authorization", ""),
            )
            self.calls.append(call)
        return call

    def _asked(self, handler: _Handler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        server = HTTPConnection(HOST, self._to_port, timeout=30)
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in OWN}
        try:
            server.request(handler.command, handler.path, body, headers)
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def deal(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.deal()

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

    def refuse(self, status: int) -> None:
        body = f"<Error><Code>{CODE[status]}</Code><Message>no</Message></Error>".encode()
        self.answer(status, [("Content-Length", str(len(body)))], body)

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        try:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in OWN:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except OSError:  # the client is gone
            self.close_connection = True

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's word
        """Nobody asked."""
