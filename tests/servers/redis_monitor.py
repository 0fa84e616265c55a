"""All commands that a Redis server runs meanwhile, as its MONITOR shows them."""

from __future__ import annotations

import codecs
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.servers.redis import ADMIN, ADMIN_PASSWORD, RedisServer
from tests.servers.redis_process import HOST

WAIT_S: Final = 60.0
_LINE: Final = re.compile(rb"\+[0-9.]+ \[[0-9]+ ([^]]*)\] (.*)")
_WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Asked:
    """One command."""

    words: tuple[bytes, ...]
    in_script: bool

    @property
    def name(self) -> str:
        return self.words[0].decode().upper()


@dataclass(slots=True)
class Monitored:
    asked: list[Asked] = field(default_factory=list)  # complete behind the `with`


@contextmanager
def monitored(server: RedisServer) -> Iterator[Monitored]:
    """A script comes before what it does."""
    seen = Monitored()
    with (
        server.client() as client,
        socket.create_connection((HOST, server.port), WAIT_S) as connection,
        connection.makefile("rb") as lines,
    ):
        connection.sendall(f"AUTH {ADMIN} {ADMIN_PASSWORD}\r\nMONITOR\r\n".encode())
        assert [lines.readline(), lines.readline()] == [b"+OK\r\n"] * 2
        yield seen
        last = secrets.token_hex(8).encode()
        client.echo(last)
        while (asked := _read(lines.readline())).words[-1:] != (last,):
            seen.asked.append(asked)


def _read(line: bytes) -> Asked:
    found = _LINE.match(line)
    assert found, line
    words = tuple(codecs.escape_decode(word)[0] for word in _WORD.findall(found[2]))
    return Asked(words, in_script=found[1] == b"lua")
