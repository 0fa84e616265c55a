"""Find the Redis that the workers of a crawl share, from our setting or those of scrapy-redis.

Rule: the two are never mixed: where CRAWLER_FRONTIER_URL is set, even to nothing, the REDIS_
settings are ignored (they may hold another server's password). No error text holds a value.
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
    integer,
    number,
    redis_url,
    refuse_unknown,
    text,
)
from crawler.config.settings import Config
from crawler.model.types import ConfigError

OURS: Final = "CRAWLER_FRONTIER_URL"
PARAMS: Final = "REDIS_PARAMS"
# scrapy-redis' names for some of the keys of REDIS_PARAMS; they take precedence over these.
SHORT: Final[Mapping[str, str]] = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
}
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
_path: Final = text("a path", "path", r"[^\0]+")
KEYS: Final[Mapping[str, Kind[Any]]] = {
    "url": redis_url(),
    "host": text("a host name or address", "host", r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+"),
    "port": integer("ports", least=1, most=MAX_PORT),
    "unix_socket_path": text("an absolute path", "path", r"/[^\0]+"),
    "db": integer("databases"),
    "username": _any_text,
    "password": _any_text,
    "client_name": _any_text,
    "socket_timeout": number("seconds"),
    "socket_connect_timeout": number("seconds"),
    "socket_keepalive": flag(),
    "health_check_interval": number("seconds"),
    "ssl": flag(),
    VERIFY: _verify_mode(),
    "ssl_check_hostname": flag(),
    "ssl_password": _any_text,
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"), _path),
}
# These configure the client of scrapy-redis; our client is another.
IGNORED: Final = (
    *("redis_cls", "encoding", "encoding_errors", "decode_responses", "protocol"),
    *("max_connections", "single_connection_client"),
    *("retry", "retry_on_timeout", "retry_on_error"),
)
# Keys that do not apply to a URL of this scheme: redis-py refuses them there.
IDLE: Final[Mapping[str, tuple[str, ...]]] = {
    "redis": ("ssl_",),
    "rediss": (),
    "unix": ("ssl_", "socket_keepalive"),
}


class RedisAddress(NamedTuple):
    """The URL of a Redis server and the options of its connections."""

    url: str  # with file:/path, the URL is read from this file
    params: Mapping[str, Any]  # as redis-py names them; options in the URL take precedence

    def __repr__(self) -> str:
        return "RedisAddress(not shown, it may hold a password)"


def redis_address(settings: BaseSettings, config: Config) -> RedisAddress | None:
    """Return the Redis to share, or None if the frontier is in the data directory.
    Raises ConfigError."""
    if OURS in settings:
        address = RedisAddress(config.shared.frontier_url, {})
    else:
        address = _scrapy_redis_address(settings)
    if not address.url:
        return None
    config.shared.refuse_short_lease(config.fetch.total_timeout_s)
    return address


def _scrapy_redis_address(settings: BaseSettings) -> RedisAddress:
    if not any(settings[name] for name in (*SHORT, PARAMS)):
        return RedisAddress("", {})
    options = dict(_given_options(settings))
    host, port = options.pop("host", "localhost"), options.pop("port", 6379)
    path, is_tls = options.pop("unix_socket_path", None), options.pop("ssl", False)
    name = f"[{host}]" if ":" in host else host
    url = options.pop("url", f"unix://{quote(path)}" if path else f"redis://{name}:{port}")
    if is_tls:
        url = url.replace("redis://", "rediss://", 1)
    idle = IDLE[url.partition(":")[0]]
    return RedisAddress(url, {key: options[key] for key in options if not key.startswith(idle)})


def _given_options(settings: BaseSettings) -> Iterator[tuple[str, Any]]:
    """Yield the set keys that are in KEYS, each read as its kind; of a repeated key the last
    counts."""
    for key, value in _params(settings).items():
        # None means "not set" in redis-py, except for certificates: there it means "not checked".
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
