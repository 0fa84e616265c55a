"""The HTTP server of a crawl that runs, on a socket in its data directory and, if asked for, a
port: verbs, metrics, and the pages of an extension that adds some. And who may ask a server.

Rule: the socket is for the user who runs the crawl. On a port, requests that a browser sends for
another site are refused, and beyond loopback those for data or acts without a token.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from crawler.data.data_dir import CONSOLE
from crawler.data.files import replace_file
from crawler.data.operator_files import private_lines
from crawler.model.types import ConfigError, CrawlerError
from crawler.operate import verbs
from crawler.operate.client import FREEZE
from crawler.operate.connections import (
    BACKLOG,
    ConnectionLimit,
    LimitedConnection,
    ProtocolFactory,
)
from crawler.operate.metrics import CONTENT_TYPE
from crawler.operate.verbs import VERBS, ActAnswer, ActRequest

logger = logging.getLogger(__name__)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether *record* is not of a malformed request, of which any client can send many: it
    is answered, and a traceback each would fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_http_log: Final = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_is_ours)

_MAX_BODY: Final = 2 << 20
_PORTS: Final = 20  # tried, from the one that was asked for
_PEER: Final = struct.Struct("3i")  # struct ucred: process, user, group
BY: Final = web.RequestKey("by", str)
DESCRIBED: Final = web.AppKey("described", dict[str, Any])
"""The description of all that is served below /api, in OpenAPI 3.1."""

_OF_THE_CRAWL: Final = ("/api/", "/metrics", "/healthz")  # what the page itself is not
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Served:
    """What is served of one crawl."""

    act: Callable[[ActRequest, str], Awaitable[ActAnswer]]
    metrics: Callable[[], bytes]  # as Prometheus scrapes them
    failure: Callable[[], CrawlerError | None]  # that stops the crawl
    freeze: Callable[[str], Awaitable[None]]  # copies this moment to a folder, by its name
    add_pages: Callable[[web.Application], None] | None = None
    """Adds pages of an extension, and their description to DESCRIBED."""


MakeApplication = Callable[[Mapping[str, str], frozenset[str], ConnectionLimit], web.Application]
"""Makes what is served. *tokens*: by name, needed on a port if there are any. *names*: of this
machine in a Host header; no other name leads here in earnest. *limit*: of the listener, which is
notified of each request."""


def guarded_application(
    tokens: Mapping[str, str], names: frozenset[str], limit: ConnectionLimit
) -> web.Application:
    """Return an application without routes that refuses who may not ask. Parameters: as of
    MakeApplication."""

    @web.middleware
    async def admit(request: web.Request, handler: Any) -> web.StreamResponse:
        limit.begin(request.transport)
        try:
            _refuse_other_sites(request, names, has_tokens=bool(tokens))
            if request.path.startswith(_OF_THE_CRAWL):
                request[BY] = _user(request, tokens)
            return await handler(request)  # type: ignore[no-any-return]  # aiohttp's own type
        except PermissionError as refused:
            return error_answer(403, str(refused))
        except web.HTTPUnauthorized:
            return error_answer(401, "want the header Authorization: Bearer TOKEN")
        except web.HTTPException as other:  # no such path, a body that is too large
            return error_answer(other.status, other.reason)
        except ConfigError as wrong:
            return error_answer(400, str(wrong))
        except CrawlerError as failed:
            return error_answer(503, str(failed))
        finally:
            limit.end(request.transport)

    return web.Application(middlewares=[admit], client_max_size=_MAX_BODY)


async def read_json(request: web.Request, limit: ConnectionLimit) -> dict[str, Any]:
    """Return the body of *request*. Raises an HTTPException, or ConfigError."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="want Content-Type: application/json")
    try:
        async with asyncio.timeout(limit.limits.body_s):
            body = await request.read()
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except TimeoutError:
        late = f"the body did not come within {limit.limits.body_s:g} s"
        raise web.HTTPRequestTimeout(reason=late) from None
    # UnicodeDecodeError: no text; RecursionError: nested too deep.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise ConfigError(str(wrong)) from None


def act_request(verb: str, fields: Mapping[str, Any]) -> ActRequest:
    """Return what the operator asks for by the body of a request. Raises ConfigError."""
    try:
        return msgspec.convert({**fields, "verb": verb}, ActRequest)
    except msgspec.MsgspecError as wrong:
        raise ConfigError(str(wrong)) from None


def application(
    served: Served, tokens: Mapping[str, str], names: frozenset[str], limit: ConnectionLimit
) -> web.Application:
    """Return the application that serves *served*. The others: as of MakeApplication."""

    async def post(request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if verb not in VERBS:
            return error_answer(404, f"there is no verb {verb!r}")
        fields = await read_json(request, limit)
        return json_answer(await served.act(act_request(verb, fields), request[BY]))

    async def freeze(request: web.Request) -> web.Response:
        """It is `scrapy frontier snapshot` that asks, which then publishes the folder."""
        if _unix_peer(request) is None:
            raise web.HTTPNotFound
        await served.freeze((await request.json())["folder"])
        return json_answer({})

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=served.metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def health(_: web.Request) -> web.Response:
        failure = served.failure()
        return json_answer({"status": "ok"}) if failure is None else error_answer(503, str(failure))

    async def describe(_: web.Request) -> web.Response:
        return json_answer(app[DESCRIBED])

    app = guarded_application(tokens, names, limit)
    app.router.add_post("/api/{verb}", post)
    app.router.add_post(FREEZE, freeze)
    app.router.add_get("/api/openapi.json", describe)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app[DESCRIBED] = verbs.openapi()
    if served.add_pages is not None:
        served.add_pages(app)
    return app


def _unix_peer(request: web.Request) -> Any:
    """Return the socket that *request* came from if it is in the data directory, else None."""
    peer = request.transport.get_extra_info("socket") if request.transport else None
    return peer if peer is not None and peer.family == socket.AF_UNIX else None


def metrics_application(text: Callable[[], bytes]) -> MakeApplication:
    """Return what serves nothing but metrics: *text*, as Prometheus scrapes it."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text(), headers={"Content-Type": CONTENT_TYPE})

    def make(
        tokens: Mapping[str, str], names: frozenset[str], limit: ConnectionLimit
    ) -> web.Application:
        app = guarded_application(tokens, names, limit)
        app.router.add_get("/metrics", metrics)
        return app

    return make


def _refuse_other_sites(request: web.Request, names: frozenset[str], *, has_tokens: bool) -> None:
    """Raise PermissionError for what a browser sends for another site, or for a name that leads
    here by a trick (DNS rebinding). Where a token is needed, which no trick brings, any address
    will do: behind a translation of addresses this machine does not know its own."""
    if _unix_peer(request) is not None:
        return
    host = request.headers.get("Host", "")  # without one aiohttp would look up our own name
    name = _name_of(host)
    if name not in names and not (has_tokens and _is_address(name)):
        raise PermissionError(f"the Host header names {host[:80]!r}, which is not this crawl")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{host}":
        raise PermissionError("requests of other sites are refused")
    site = request.headers.get("Sec-Fetch-Site", "none")
    is_visit = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.path == "/"
    if site not in ("same-origin", "none") and not is_visit:  # a link to the page may be followed
        raise PermissionError("requests of other sites are refused")


def _user(request: web.Request, tokens: Mapping[str, str]) -> str:
    """Return the user who sends *request*. Raises HTTPUnauthorized."""
    peer = _unix_peer(request)
    if peer is not None:
        packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        uid = _PEER.unpack(packed)[1]
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"user {uid}"
    if not tokens:
        return str(request.remote)
    sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
    written = sent.encode(errors="surrogateescape")  # as it came: aiohttp decodes it so
    for name, token in tokens.items():
        if hmac.compare_digest(written, token.encode()):
            return name
    raise web.HTTPUnauthorized


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port, which may be empty (RFC 3986, 3.2.3)."""
    name, colon, port = host.rpartition(":")
    return (
        (name if colon and (port.isdecimal() or not port) else host).strip("[]").rstrip(".").lower()
    )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _names_of_machine() -> set[str]:
    """Return the names that lead to this machine, as it knows them. May ask a name server."""
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0], socket.getfqdn().lower()}


def read_tokens(path: Path) -> dict[str, str]:
    """Read a file of lines NAME:TOKEN. Raises ConfigError if others can read it."""
    tokens = {
        name: token for name, _, token in (line.partition(":") for line in private_lines(path))
    }
    if not tokens or not all(len(token) >= _TOKEN_CHARS and name for name, token in tokens.items()):
        raise ConfigError(
            f"{path} has a line that is not NAME:TOKEN, with {_TOKEN_CHARS} characters or more"
        )
    return tokens


_TOKEN_CHARS: Final = 16


class ApiServer:
    """Serves an application on a port, and on the socket of a crawl."""

    def __init__(
        self,
        make: MakeApplication,
        what: str,
        data: Path | None = None,
        limit: ConnectionLimit | None = None,
    ) -> None:
        """*what* it is, for people. *data*: the data directory, which this process has locked, and
        where it is written which port it is; None: there is none. *limit*: of the port."""
        self._data = data
        self._make = make
        self._what = what
        self._runners: list[web.AppRunner] = []
        self._listening: asyncio.Server | None = None
        self._limit = limit or ConnectionLimit()

    async def protocol_factory(self, limit: ConnectionLimit) -> ProtocolFactory:
        """Return the protocol factory for the socket in the data directory, which has *limit*."""
        return await self._factory({}, frozenset(), limit)

    async def open_port(self, host: str, port: int, tokens: Mapping[str, str]) -> int:
        """Listen on *host* and *port*, or on the next free one, and return which that is. Raises
        ConfigError."""
        if not _is_loopback(host) and not tokens:
            raise ConfigError(
                f"the {self._what} is to be at {host}:{port}, which others can reach: set"
                " CRAWLER_HTTP_TOKENS"
            )
        names = {host.strip("[]").lower(), "localhost", "127.0.0.1", "::1"}
        if tokens:
            names |= await asyncio.to_thread(_names_of_machine)
        factory = await self._factory(tokens, frozenset(names), self._limit)

        async def made() -> ProtocolFactory:
            return factory

        loop = asyncio.get_running_loop()
        for tried in range(port, port + _PORTS):
            with suppress(OSError, OverflowError):  # the latter beyond port 65535
                self._listening = await loop.create_server(
                    lambda: LimitedConnection(self._limit, made),
                    host.strip("[]"),
                    tried,
                    backlog=BACKLOG,
                )
                bound = int(self._listening.sockets[0].getsockname()[1])
                if port and bound != port:
                    taken = "Port %d is taken: the %s is at port %d"
                    logger.warning(taken, port, self._what, bound)
                logger.info("The %s is at http://%s:%d/", self._what, host, bound)
                if self._data is None:
                    return bound
                written = f"{host}:{bound}\n".encode()  # in place of a link, which is not followed
                await asyncio.to_thread(replace_file, self._data / CONSOLE, written)
                return bound
        raise ConfigError(f"CRAWLER_HTTP: no port from {port} to {port + _PORTS - 1} is free")

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for runner in self._runners:
            await runner.cleanup()
        if self._data is not None:
            (self._data / CONSOLE).unlink(missing_ok=True)

    async def _factory(
        self, tokens: Mapping[str, str], names: frozenset[str], limit: ConnectionLimit
    ) -> ProtocolFactory:
        app = self._make(tokens, names, limit)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            handle_signals=False,
            shutdown_timeout=1.0,
            keepalive_timeout=limit.limits.head_s,
            auto_decompress=False,  # a body is as large as it came
        )
        await runner.setup()
        self._runners.append(runner)
        assert runner.server is not None  # it is set up
        return cast(ProtocolFactory, runner.server)


def _is_loopback(host: str) -> bool:
    name = host.strip("[]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def json_answer(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=HEADERS)


def error_answer(status: int, text: str) -> web.Response:
    return json_answer({"error": text}, status)
