"""Where a shared frontier is: the URL of a Redis server, or of a file in which that URL stands.

Rule: pure, syntax only, and no text made here holds any part of the URL: it may hold a
password, which a slip of the pen (a # or a / that is not written %23, %2F) moves anywhere.
"""

from __future__ import annotations

import re
from typing import Final

from crawler.core.kinds import Kind, Unfit

MAX_PORT: Final = 65_535
WANT: Final = "redis://, rediss:// or unix:// as in redis://:password@host:6379/0"
WANT_FILE: Final = "or file:/path of a file that holds such a URL"
HINT: Final = "a password's / ? # @ and % are written %2F %3F %23 %40 and %25"
SERVER: Final = re.compile(
    r"rediss?://([^/?#\s]*@)?"
    r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(/[0-9]*)?(\?[^#\s]*)?"
)
SOCKET: Final = re.compile(r"unix://([^/?#\s]*@)?/[^?#\s]+(\?[^#\s]*)?")
FILE: Final = re.compile(r"file:(?://)?(?P<path>/[^/\0\r\n][^\0\r\n]*)")


def frontier_url() -> Kind[str]:
    """A Redis URL, the file of one, or the empty string: nothing is shared."""
    return Kind(f"{WANT}, {WANT_FILE}", "URL", _read_frontier, secret=True)


def redis_url() -> Kind[str]:
    """A Redis URL."""
    return Kind(WANT, "URL", _read, secret=True)


def refuse_bad_url(url: str) -> None:
    """Raise Unfit unless *url* is a Redis URL: what a setting and what a file must hold."""
    server = SERVER.fullmatch(url)
    if not (server or SOCKET.fullmatch(url)):
        raise Unfit(HINT)
    if server and server["port"] and not 0 < int(server["port"]) <= MAX_PORT:
        raise Unfit(f"a port is from 1 to {MAX_PORT}")


def file_of(url: str) -> str | None:
    """The path of the file in which the URL stands. None: *url* is the URL itself."""
    found = FILE.fullmatch(url)
    return found["path"] if found else None


def _read_frontier(value: object) -> str:
    if isinstance(value, str) and (not value or file_of(value) is not None):
        return value
    return _read(value)


def _read(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    refuse_bad_url(value)
    return value
