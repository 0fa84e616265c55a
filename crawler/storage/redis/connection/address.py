"""Where a Redis server is and how we are let in: a URL, or the file in which it stands.

Rule: no text made here holds any part of the URL but host, port and path of the server: it may
hold a password. What the URL says counts before the parameters, as it does in redis-py.
"""

from __future__ import annotations

import difflib
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from crawler.core.errors import ConfigError
from crawler.core.kinds import Kind, Unfit, number, text, whole
from crawler.core.knobs import Knob
from crawler.core.redis_url import WANT, file_of, refuse_bad_url
from crawler.storage.redis.connection.tls import PREFIX, TLS_KINDS, tls_context

PORT: Final = 6379
CONNECT_S: Final = 5.0
REPLY_S: Final = 5.0  # without a byte of what was asked for; a script of ours takes milliseconds
MOST_FILE_BYTES: Final = 4096
# Kinds are for the words of a query, where everything is text; what is not to be shown is secret.
KINDS: Final[Mapping[str, Kind[Any]]] = {
    "db": whole("databases"),
    "username": text("a text", "text", r"[^\0]+"),
    "password": text("a text", "text", r"[^\0]+"),
    "client_name": text("a text without blanks", "text", r"[!-~]+"),
    "socket_timeout": number("seconds", least=0.01),
    "socket_connect_timeout": number("seconds", least=0.01),
    **TLS_KINDS,
}
# Of redis-py's way to keep connections. Ours asks often enough to notice one that is dead.
IGNORED: Final = frozenset({"socket_keepalive", "health_check_interval"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server and the keys to it. Its text is `host:port`, or the path of its socket."""

    host: str = "localhost"
    port: int = PORT
    path: str = ""  # of a socket; then host and port mean nothing
    db: int = 0
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    client_name: str = ""
    connect_s: float = CONNECT_S
    reply_s: float = REPLY_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, params: Mapping[str, object] | None = None) -> Self:
        """*url* may be file:/path; *params* have redis-py's names. Raises ConfigError."""
        parts = _split(_url_in(path) if (path := file_of(url)) else url)
        options = {
            name: _read(name, value)
            for name, value in {**(params or {}), **_said_by(parts)}.items()
            if name not in IGNORED
        }
        return cls(
            host=unquote(parts.hostname or "localhost"),
            port=parts.port or PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            db=options.get("db", 0),
            username=options.get("username", ""),
            password=options.get("password", ""),
            client_name=options.get("client_name", ""),
            connect_s=options.get("socket_connect_timeout", CONNECT_S),
            reply_s=options.get("socket_timeout", REPLY_S),
            tls=tls_context(options) if parts.scheme == "rediss" else None,
        )

    def __str__(self) -> str:
        return self.path or node_name(self.host, self.port)

    def at(self, node: str) -> Self:
        """Another *node* ("host:port") of the same cluster, which takes the same credentials."""
        host, _, port = node.rpartition(":")
        return replace(self, host=host.strip("[]"), port=int(port), path="")

    @property
    def credentials(self) -> tuple[str, ...]:
        """What AUTH is asked with; nothing where nobody is to be named."""
        if not self.username and not self.password:
            return ()
        return (self.username, self.password) if self.username else (self.password,)


def node_name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url_in(path: str) -> str:
    """What stands in the file: others must not be able to read it, as it may hold a password."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            _refuse_public(os.fstat(file.fileno()).st_mode, path)
            return file.read(MOST_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{path}, which is to hold the URL of Redis: {error.strerror}") from None


def _at_once(path: str, flags: int) -> int:
    """Not waiting for a writer, should it be a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_public(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}, which is to hold the URL of Redis, is no file")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{path} holds the URL of Redis, and everybody on this machine may read or write it:"
            f" chmod 600 {path}"
        )


def _split(url: str) -> SplitResult:
    try:
        refuse_bad_url(url)
    except Unfit as why:
        raise ConfigError(f"the URL of Redis is not shown; want {WANT} ({why})") from None
    return urlsplit(url)


def _said_by(url: SplitResult) -> dict[str, str]:
    """The options that stand in a URL, by redis-py's names. Its query says the db first, and its
    head who asks."""
    before = {"username": unquote(url.username or ""), "password": unquote(url.password or "")}
    behind = {"db": "" if url.scheme == "unix" else url.path.strip("/")}
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    _refuse_bad_query(query, url.scheme)
    return _given(behind) | query | _given(before)


def _given(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _refuse_bad_query(query: dict[str, str], scheme: str) -> None:
    for name in query:
        if name not in KINDS.keys() | IGNORED:
            raise ConfigError(f"the URL of Redis has an unknown option{_nearest(name)}")
        if name.startswith(PREFIX) and scheme != "rediss":
            raise ConfigError(f"the URL of Redis has {name}, but TLS is what rediss:// is for")


def _nearest(name: str) -> str:
    """Never the *name*: behind a ? that is not written %3F it is a part of a password."""
    nearest = difflib.get_close_matches(name.casefold(), KINDS, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(KINDS)}"


def _read(name: str, value: object) -> Any:
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"{name} is no option of a connection to Redis")
    return Knob(f"{name} of Redis", name, None, replace(kind, secret=True), "").read(
        {f"{name} of Redis": value}
    )
