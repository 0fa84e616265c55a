"""Which Redis the workers of a crawl share: as our own setting says, or as scrapy-redis' do.

Rule: the two are never mixed. Where CRAWLER_FRONTIER_URL is set, even to nothing, no REDIS_
setting counts: the password of one server is not for another. No error text holds a value.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from scrapy.settings import BaseSettings

from crawler.config.kinds import (
    MAX_PORT,
    Kind,
    Setting,
    flag,
    number,
    redis_url,
    refuse_unknown,
    text,
    whole,
)
from crawler.config.settings import Config
from crawler.model.types import ConfigError

OURS: Final = "CRAWLER_FRONTIER_URL"
PARAMS: Final = "REDIS_PARAMS"
# scrapy-redis' names for some of the keys of REDIS_PARAMS; they count before these.
SHORT: Final[Mapping[str, str]] = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
}
VERIFY: Final = "ssl_cert_reqs"


def _verify() -> Kind[str]:
    """What redis-py takes for the check of a certificate, by its name."""

    def read(value: object) -> str:
        modes = {mode: mode.name.removeprefix("CERT_").lower() for mode in ssl.VerifyMode}
        name = modes[value] if isinstance(value, ssl.VerifyMode) else str(value).lower()
        if name not in modes.values():
            raise ValueError
        return name

    return Kind("none, optional or required", "word", read)


_anything: Final = text("a text", "text", r"[^\0]+")
_file: Final = text("a path", "path", r"[^\0]+")
KEYS: Final[Mapping[str, Kind[Any]]] = {
    "url": redis_url(),
    "host": text("a host name or address", "host", r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+"),
    "port": whole("ports", least=1, most=MAX_PORT),
    "unix_socket_path": text("an absolute path", "path", r"/[^\0]+"),
    "db": whole("databases"),
    "username": _anything,
    "password": _anything,
    "client_name": _anything,
    "socket_timeout": number("seconds"),
    "socket_connect_timeout": number("seconds"),
    "socket_keepalive": flag(),
    "health_check_interval": number("seconds"),
    "ssl": flag(),
    VERIFY: _verify(),
    "ssl_check_hostname": flag(),
    "ssl_password": _anything,
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"), _file),
}
# About the client of scrapy-redis. We have one of our own.
IGNORED: Final = (
    *("redis_cls", "encoding", "encoding_errors", "decode_responses", "protocol"),
    *("max_connections", "single_connection_client"),
    *("retry", "retry_on_timeout", "retry_on_error"),
)
# Keys that say nothing about a connection of this kind: redis-py refuses them there.
IDLE: Final[Mapping[str, tuple[str, ...]]] = {
    "redis": ("ssl_",),
    "rediss": (),
    "unix": ("ssl_", "socket_keepalive"),
}


class RedisAddress(NamedTuple):
    """Where Redis is, and how to be let in."""

    url: str  # with file:/path, the URL stands in this file
    params: Mapping[str, Any]  # as redis-py names them; what the URL says counts before them

    def __repr__(self) -> str:
        return "RedisAddress(not shown, it may hold a password)"


def redis_address(settings: BaseSettings, config: Config) -> RedisAddress | None:
    """The Redis to share. None: the frontier is in the data directory. Raises ConfigError."""
    if OURS in settings:
        address = RedisAddress(config.shared.frontier_url, {})
    else:
        address = _of_scrapy_redis(settings)
    if not address.url:
        return None
    config.shared.refuse_short_lease(config.fetch.total_timeout_s)
    return address


def _of_scrapy_redis(settings: BaseSettings) -> RedisAddress:
    if not any(settings[name] for name in (*SHORT, PARAMS)):
        return RedisAddress("", {})
    found = dict(_found(settings))
    host, port = found.pop("host", "localhost"), found.pop("port", 6379)
    path, is_tls = found.pop("unix_socket_path", None), found.pop("ssl", False)
    name = f"[{host}]" if ":" in host else host
    url = found.pop("url", f"unix://{quote(path)}" if path else f"redis://{name}:{port}")
    if is_tls:
        url = url.replace("redis://", "rediss://", 1)
    idle = IDLE[url.partition(":")[0]]
    return RedisAddress(url, {key: found[key] for key in found if not key.startswith(idle)})


def _found(settings: BaseSettings) -> Iterator[tuple[str, Any]]:
    """The keys that are set and are ours to know, each read as its kind; the last one counts."""
    for key, value in _params(settings).items():
        # None is redis-py's "not set", but for certificates, where it is "not checked".
        if key in KEYS and (value is not None or key == VERIFY):
            yield key, _value(f"{PARAMS}[{key!r}]", key, value)
    for name, key in SHORT.items():
        if settings[name]:
            yield key, _value(name, key, settings[name])


def _params(settings: BaseSettings) -> dict[str, object]:
    try:
        params = {str(key): value for key, value in settings.getdict(PARAMS).items()}
    except (TypeError, ValueError):
        want = "a dict, or on a command line the JSON of one"
        raise ConfigError(f"{PARAMS} is not shown, it may hold a password; want {want}") from None
    refuse_unknown(f"key of {PARAMS}", params, [*KEYS, *IGNORED])
    return params


def _value(name: str, key: str, value: object) -> object:
    kind = replace(KEYS[key], secret=True)
    return Setting(name, key, None, kind, "").read({name: value})
