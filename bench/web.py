"""The synthetic web that both crawlers are measured on: 30 KB pages with 40 links, without end.

Rule: cheap to serve, so that the crawler is what is measured. Nothing is stored: a page is put
together from prepared pieces by numbers drawn from a hash of its name, so the same web comes
back in every run. `python -m bench.web` prints its address and serves until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
from hashlib import shake_128
from typing import Final, cast

import uvloop

LINKS: Final = 40
ABROAD: Final = 4  # one link of so many leads to another host
PAGE_BYTES: Final = 30_000
PIECES: Final = 256  # one byte of a draw chooses a piece of text
WORDS: Final = 2_000
ROBOTS: Final = b"User-agent: *\nDisallow: /private/\n"
COUNT_PATH: Final = b"/-/count"  # answers how many pages were served so far
PORT_TRIES: Final = 20
MOST_SOCKETS: Final = 1_000  # of more hosts one socket serves all


def addresses(hosts: int) -> list[str]:
    """Every host its own address, because a host is what politeness is about."""
    return [
        f"127.{3 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"
        for number in range(hosts)
    ]


class Pages:
    """Makes pages. Costs about 30 us each, and no memory that grows."""

    def __init__(
        self, origins: list[str], pages: int, links: int = LINKS, page_bytes: int = PAGE_BYTES
    ) -> None:
        self._links = links
        self._origins = [origin.encode() for origin in origins]
        self._pages = pages
        dice = random.Random(0)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(dice.choices(letters, k=dice.randint(2, 11))) for _ in range(WORDS)]
        letters_a_link = page_bytes // links - 45  # the rest of a paragraph is its link
        self._texts = [_text(dice, words, letters_a_link) for _ in range(PIECES)]

    def page(self, host: int, name: bytes) -> bytes:
        """Its first links lead abroad; *name* need not be a number."""
        digest = shake_128(b"%d/%b" % (host, name)).digest(self._links * 8)
        draws = memoryview(digest).cast("Q")
        origins, pages, texts = self._origins, self._pages, self._texts
        parts = [b"<!doctype html><title>Page ", name, b"</title><h1>Page ", name, b"</h1>"]
        for position, draw in enumerate(draws):
            is_abroad = ABROAD * position < self._links
            origin = origins[(draw >> 32) % len(origins)] if is_abroad else b""
            link = b'<p><a href="%b/a/%d.html">more</a> ' % (origin, draw % pages)
            parts += (link, texts[draw >> 56])
        return b"".join(parts)


def _text(dice: random.Random, words: list[str], letters: int) -> bytes:
    text = ""
    while len(text) < letters:
        text += dice.choice(words) + " "
    return text.encode() + b"</p>\n"


class Connection(asyncio.Protocol):
    """One request a packet, which is how every client sends a GET of this size."""

    served = 0  # of all connections

    def __init__(self, pages: Pages, numbers: dict[str, int], latency_s: float = 0.0) -> None:
        self._pages = pages
        self._latency_s = latency_s
        self._numbers = numbers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._host = self._numbers[transport.get_extra_info("sockname")[0]]

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        if path == b"/robots.txt":
            self._answer(b"text/plain", ROBOTS)
        elif path == COUNT_PATH:
            self._answer(b"text/plain", b"%d" % Connection.served)
        else:
            Connection.served += 1
            self._answer(b"text/html; charset=utf-8", self._pages.page(self._host, path[1:]))

    def _answer(self, kind: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        parts = (head % (kind, len(body)), body)
        if self._latency_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self._latency_s, self._transport.writelines, parts)
        else:
            self._transport.writelines(parts)


async def serve(options: argparse.Namespace) -> None:
    names = addresses(options.hosts)
    loop = asyncio.get_running_loop()
    sockets = _listen(names) if len(names) <= MOST_SOCKETS else [_listen_to_all()]
    port: int = sockets[0].getsockname()[1]
    origins = [f"http://{name}:{port}" for name in names]
    made = Pages(origins, options.pages, options.links, options.page_bytes)
    numbers = {name: number for number, name in enumerate(names)}
    for each in sockets:
        await loop.create_server(
            lambda: Connection(made, numbers, options.latency_s), sock=each, backlog=1024
        )
    print(port, flush=True)
    await asyncio.Event().wait()


def _listen(names: list[str]) -> list[socket.socket]:
    """One port on all addresses: what is free on one may be taken on another."""
    for _ in range(PORT_TRIES):
        sockets: list[socket.socket] = []
        try:
            for name in names:
                port = sockets[0].getsockname()[1] if sockets else 0
                sockets.append(socket.create_server((name, port), backlog=1024))
        except OSError:
            for each in sockets:
                each.close()
        else:
            return sockets
    raise OSError("no port is free on all addresses of the synthetic web")


def _listen_to_all() -> socket.socket:
    """All addresses of the loopback device, and of no other."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    listening.bind(("0.0.0.0", 0))  # noqa: S104  # the device alone
    listening.listen(4096)
    return listening


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    # A million pages: nearly every link is new, to the shorter and the longer crawl alike.
    parser.add_argument("--pages", type=int, default=5_000, help="of each host")
    parser.add_argument("--links", type=int, default=LINKS, help="of a page")
    parser.add_argument("--page-bytes", type=int, default=PAGE_BYTES)
    parser.add_argument("--latency-s", type=float, default=0.0, help="before each answer")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
