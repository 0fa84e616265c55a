"""The Redis server that workers share: which one it is, the options of its connections, and TLS.

Rule: where CRAWLER_FRONTIER_URL is set, even to nothing, the REDIS_ settings of scrapy-redis are
ignored, as they may hold the password of another server. No text made here shows a password: of a
URL it has only host, port and path.
"""

from __future__ import annotations

import difflib
import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from scrapy.settings import BaseSettings

from crawler.config.readers import (
    MAX_PORT,
    WANT_REDIS_URL,
    InvalidValue,
    Kind,
    Setting,
    file_of,
    flag,
    integer,
    number,
    redis_url,
    refuse_bad_url,
    refuse_unknown,
    text,
)
from crawler.config.settings import Config
from crawler.model.types import ConfigError

# The options of a connection, by redis-py's names. They may be in the query of a URL, where each
# is text, and in REDIS_PARAMS.

TLS_PREFIX: Final = "ssl_"
TLS_FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
VERIFY: Final = "ssl_cert_reqs"


def _verify_mode() -> Kind[str]:
    """Return the kind of `ssl_cert_reqs`: a name, or the ssl.VerifyMode that redis-py accepts."""

    def read(value: object) -> str:
        modes = {mode: mode.name.removeprefix("CERT_").lower() for mode in ssl.VerifyMode}
        name = modes[value] if isinstance(value, ssl.VerifyMode) else str(value).lower()
        if name not in modes.values():
            raise ValueError
        return name

    return Kind("none, optional or required", "word", read)


_any_text: Final = text("a text", "text", r"[^\0]+")
OPTIONS: Final[Mapping[str, Kind[Any]]] = {
    "db": integer("databases"),
    "username": _any_text,
    "password": _any_text,
    "client_name": text("a text without blanks", "text", r"[!-~]+"),
    "socket_timeout": number("seconds", least=0.01),
    "socket_connect_timeout": number("seconds", least=0.01),
    VERIFY: _verify_mode(),
    "ssl_check_hostname": flag(),
    "ssl_password": _any_text,
    **dict.fromkeys(TLS_FILES, text("a path", "path", r"[^\0]+")),
}
# redis-py keeps idle connections alive with these. Ours sends often enough to notice a dead one.
KEEPALIVE: Final[Mapping[str, Kind[Any]]] = {
    "socket_keepalive": flag(),
    "health_check_interval": number("seconds"),
}


# Which Redis it is: by our setting, or by those of scrapy-redis.

URL_SETTING: Final = "CRAWLER_FRONTIER_URL"
PARAMS_SETTING: Final = "REDIS_PARAMS"
# scrapy-redis' names for some of the keys of REDIS_PARAMS; they take precedence over these.
SHORT_SETTINGS: Final[Mapping[str, str]] = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
}
PARAM_KINDS: Final[Mapping[str, Kind[Any]]] = {
    "url": redis_url(),
    "host": text("a host name or address", "host", r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+"),
    "port": integer("ports", least=1, most=MAX_PORT),
    "unix_socket_path": text("an absolute path", "path", r"/[^\0]+"),
    "ssl": flag(),
    **OPTIONS,
    **KEEPALIVE,
}
# These configure the client of scrapy-redis; our client is another.
IGNORED: Final = (
    "redis_cls",
    "encoding",
    "encoding_errors",
    "decode_responses",
    "protocol",
    "max_connections",
    "single_connection_client",
    "retry",
    "retry_on_timeout",
    "retry_on_error",
)
# Keys that do not apply to a URL of this scheme: redis-py refuses them there.
INAPPLICABLE_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "redis": (TLS_PREFIX,),
    "rediss": (),
    "unix": (TLS_PREFIX, "socket_keepalive"),
}


class RedisAddress(NamedTuple):
    """The URL of a Redis server and the options of its connections, as they were set."""

    url: str  # with file:/path, the URL is read from this file
    params: Mapping[str, Any]  # as redis-py names them; options in the URL take precedence

    def __repr__(self) -> str:
        return "RedisAddress(not shown, it may hold a password)"


def redis_address(settings: BaseSettings, config: Config) -> RedisAddress | None:
    """Return the Redis to share, or None if the frontier is in the data directory, or in a URL
    Frontier. Raises ConfigError."""
    if config.shared.url_frontier:
        return None
    if URL_SETTING in settings:
        address = RedisAddress(config.shared.frontier_url, {})
    else:
        address = _scrapy_redis_address(settings)
    return address if address.url else None


def _scrapy_redis_address(settings: BaseSettings) -> RedisAddress:
    if not any(settings[name] for name in (*SHORT_SETTINGS, PARAMS_SETTING)):
        return RedisAddress("", {})
    options = dict(_given_options(settings))
    host, port = options.pop("host", "localhost"), options.pop("port", DEFAULT_PORT)
    path, is_tls = options.pop("unix_socket_path", None), options.pop("ssl", False)
    url = options.pop(
        "url", f"unix://{quote(path)}" if path else f"redis://{node_name(host, port)}"
    )
    if is_tls:
        url = url.replace("redis://", "rediss://", 1)
    idle = INAPPLICABLE_PARAMS[url.partition(":")[0]]
    return RedisAddress(url, {key: options[key] for key in options if not key.startswith(idle)})


def _given_options(settings: BaseSettings) -> Iterator[tuple[str, Any]]:
    """Yield the keys of PARAM_KINDS that are set, each read as its kind; of a repeated key the last
    counts."""
    for key, value in _params(settings).items():
        # None means "not set" in redis-py, except for certificates: there it means "not checked".
        if key in PARAM_KINDS and (value is not None or key == VERIFY):
            yield key, _read(f"{PARAMS_SETTING}[{key!r}]", key, value)
    for name, key in SHORT_SETTINGS.items():
        if settings[name]:
            yield key, _read(name, key, settings[name])


def _params(settings: BaseSettings) -> dict[str, object]:
    try:
        params = {str(key): value for key, value in settings.getdict(PARAMS_SETTING).items()}
    except (TypeError, ValueError):
        want = "a dict, or on a command line the JSON of one"
        raise ConfigError(
            f"{PARAMS_SETTING} is not shown, it may hold a password; want {want}"
        ) from None
    refuse_unknown(f"key of {PARAMS_SETTING}", params, [*PARAM_KINDS, *IGNORED])
    return params


def _read(title: str, key: str, value: object) -> Any:
    """Read *value* as the kind of *key*. Raises ConfigError, which names it by *title* only."""
    kind = replace(PARAM_KINDS[key], secret=True)
    return Setting(title, key, None, kind, "").read({title: value})


# What a connection needs to know.

DEFAULT_PORT: Final = 6379
CONNECT_S: Final = 5.0
REPLY_S: Final = 5.0  # time without a byte of a reply; a script of ours takes milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server and its credentials. `str()` is `host:port`, or the path of its socket."""

    host: str = "localhost"
    port: int = DEFAULT_PORT
    path: str = ""  # of a socket; if set, host and port are not used
    db: int = 0
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    client_name: str = ""
    connect_s: float = CONNECT_S
    reply_s: float = REPLY_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, params: Mapping[str, object] | None = None) -> Self:
        """Parse *url*, which may be file:/path, and *params* with redis-py's names; options in the
        URL take precedence. Raises ConfigError."""
        parts = _split(_url_in(path) if (path := file_of(url)) else url)
        given = {**(params or {}), **_url_options(parts)}
        for name in given.keys() - OPTIONS.keys() - KEEPALIVE.keys():
            raise ConfigError(f"{name} is no option of a connection to Redis")
        options = {
            name: _read(f"{name} of Redis", name, value)
            for name, value in given.items()
            if name in OPTIONS
        }
        return cls(
            host=unquote(parts.hostname or "localhost"),
            port=parts.port or DEFAULT_PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            db=options.get("db", 0),
            username=options.get("username", ""),
            password=options.get("password", ""),
            client_name=options.get("client_name", ""),
            connect_s=options.get("socket_connect_timeout", CONNECT_S),
            reply_s=options.get("socket_timeout", REPLY_S),
            tls=_tls_context(options) if parts.scheme == "rediss" else None,
        )

    def __str__(self) -> str:
        return self.path or node_name(self.host, self.port)

    def at(self, node: str) -> Self:
        """Return the address of another *node* ("host:port") of the same cluster."""
        host, _, port = node.rpartition(":")
        return replace(self, host=host.strip("[]"), port=int(port), path="")

    @property
    def credentials(self) -> tuple[str, ...]:
        """The arguments of AUTH; empty if there are no credentials."""
        if not self.username and not self.password:
            return ()
        return (self.username, self.password) if self.username else (self.password,)


def node_name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# A URL in a file is seen neither in a list of processes nor in the settings of a project.

MAX_FILE_BYTES: Final = 4096


def _url_in(path: str) -> str:
    """Read the URL in the file at *path*. Raises ConfigError if other users may read or write the
    file, because the URL may hold a password."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            _refuse_public(os.fstat(file.fileno()).st_mode, path)
            return file.read(MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{path}, which is to hold the URL of Redis: {error.strerror}") from None


def _open_nonblocking(path: str, flags: int) -> int:
    """Open *path* without waiting for a writer if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_public(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}, which is to hold the URL of Redis, is no file")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{path} holds the URL of Redis, and every user of this machine may read or write it:"
            f" chmod 600 {path}"
        )


# redis-py's `parse_url` is not used: it drops what has no "=", and so connects to the host "user"
# when it is given redis://user?password@host.


def _split(url: str) -> SplitResult:
    try:
        refuse_bad_url(url)
    except InvalidValue as why:
        raise ConfigError(f"the URL of Redis is not shown; want {WANT_REDIS_URL} ({why})") from None
    return urlsplit(url)


def _url_options(url: SplitResult) -> dict[str, str]:
    """Return the options in a URL. For the db the query takes precedence over the path, for the
    user and password the part before the host over the query."""
    user = {"username": unquote(url.username or ""), "password": unquote(url.password or "")}
    database = {"db": "" if url.scheme == "unix" else url.path.strip("/")}
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    for name in query:
        if name not in OPTIONS.keys() | KEEPALIVE.keys():
            raise ConfigError(f"the URL of Redis has an unknown option{_nearest(name)}")
        if name.startswith(TLS_PREFIX) and url.scheme != "rediss":
            raise ConfigError(f"the URL of Redis has {name}, but TLS is what rediss:// is for")
    return _without_empty(database) | query | _without_empty(user)


def _without_empty(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _nearest(name: str) -> str:
    """Suggest a known option. The text never holds *name*: a password with a ? that is not written
    %3F would be in it."""
    nearest = difflib.get_close_matches(name.casefold(), OPTIONS, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(OPTIONS)}"


def _tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Make a TLS context. It checks certificates and host names unless *options* switch that off.
    Raises ConfigError, so that wrong files are refused before the first connection."""
    verify = ssl.VerifyMode[f"CERT_{options.get(VERIFY, 'required').upper()}"]
    try:
        # The certificates of the system are trusted only if none are given.
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        # In this order: ssl refuses CERT_NONE while the host name is checked.
        context.check_hostname = verify != ssl.CERT_NONE and options.get("ssl_check_hostname", True)
        context.verify_mode = verify
        if certificate := options.get("ssl_certfile"):
            # Without a password function, ssl would ask at the terminal for that of the key.
            password = options.get("ssl_password", "")
            context.load_cert_chain(certificate, options.get("ssl_keyfile"), lambda: password)
        elif "ssl_keyfile" in options:
            raise ConfigError("TLS of Redis: ssl_keyfile is of no use without its ssl_certfile")
    except OSError as error:  # and ssl.SSLError, which is one
        given = " or ".join(f"{name} ({options[name]})" for name in TLS_FILES if name in options)
        what = given or "certificates of this machine"
        raise ConfigError(f"TLS of Redis: {what} cannot be used: {error}") from None
    return context
