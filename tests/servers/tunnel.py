"""A proxy that tunnels: it connects to whatever CONNECT names, for those who know its secret."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

SECRET: Final = "Basic dTpw"  # noqa: S105  # of a proxy for tests
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_FORBIDDEN: Final = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Tunnel:
    port: int
    asked: list[str] = field(default_factory=list)  # the first lines, in their order

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                data = client.recv(4096)
                if not data:
                    return
                head += data
            first, *lines = head.decode().split("\r\n")
            self.asked.append(first)
            if f"Proxy-Authorization: {SECRET}" not in lines:
                client.sendall(_FORBIDDEN)
                return
            host, port = first.split(" ")[1].rsplit(":", 1)
            with closing(socket.create_connection((host, int(port)))) as server:
                client.sendall(_ESTABLISHED)
                back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
                back.start()
                _pass_on(client, server)
                back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def tunnel() -> Iterator[Tunnel]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = Tunnel(listening.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=proxy.serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield proxy
        finally:
            listening.shutdown(socket.SHUT_RDWR)
