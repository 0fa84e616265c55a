"""The HTTP API of a crawl that runs, on a socket in its data directory and, if asked for, a port.

Rule: the socket is for the user who runs the crawl. On a port, requests that a browser sends for
another site are refused, and beyond loopback those without a token.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from crawler.data.operator_files import private_lines
from crawler.model.types import ConfigError, CrawlerError
from crawler.operate import verbs
from crawler.operate.client import SOCKET
from crawler.operate.verbs import VERBS, ActAnswer, ActRequest

logger = logging.getLogger(__name__)

ADDRESS: Final = "control.address"  # the file with the host and port that were taken
_MAX_BODY: Final = 2 << 20
_PORTS: Final = 20  # tried, from the one that was asked for
_PEER: Final = struct.Struct("3i")  # struct ucred: process, user, group
_BY: Final = web.RequestKey("by", str)

Act = Callable[[ActRequest, str], Awaitable[ActAnswer]]


def application(act: Act, tokens: Mapping[str, str], names: frozenset[str]) -> web.Application:
    """Return the API, which carries out requests by *act*. *tokens*: by name, needed on a port if
    there are any. *names*: of this machine in a Host header; no other name leads here in earnest.
    """

    @web.middleware
    async def admit(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            request[_BY] = _user(request, tokens, names)
            return await handler(request)  # type: ignore[no-any-return]  # aiohttp's own type
        except PermissionError as refused:
            return _error(403, str(refused))
        except web.HTTPUnauthorized:
            return _error(401, "want the header Authorization: Bearer TOKEN")
        except web.HTTPException as other:  # no such path, a body that is too large
            return _error(other.status, other.reason)
        except ConfigError as wrong:
            return _error(400, str(wrong))
        except CrawlerError as failed:
            return _error(503, str(failed))

    async def post(request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if verb not in VERBS:
            return _error(404, f"there is no verb {verb!r}")
        if request.content_type != "application/json":
            return _error(415, "want Content-Type: application/json")
        try:
            fields = msgspec.json.decode(await request.read() or b"{}", type=dict[str, Any])
            asked = msgspec.convert({**fields, "verb": verb}, ActRequest)
        except msgspec.MsgspecError as wrong:
            return _error(400, str(wrong))
        return _json(await act(asked, request[_BY]))

    async def describe(_: web.Request) -> web.Response:
        return _json(verbs.openapi())

    app = web.Application(middlewares=[admit], client_max_size=_MAX_BODY)
    app.router.add_post("/api/{verb}", post)
    app.router.add_get("/api/openapi.json", describe)
    return app


def _user(request: web.Request, tokens: Mapping[str, str], names: frozenset[str]) -> str:
    """Return who sends *request*. Raises PermissionError or HTTPUnauthorized."""
    peer = request.transport.get_extra_info("socket") if request.transport else None
    if peer is not None and peer.family == socket.AF_UNIX:
        packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        uid = _PEER.unpack(packed)[1]
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"user {uid}"
    if _name_of(request.host) not in names:
        raise PermissionError(
            f"the Host header names {request.host[:80]!r}, which is not this crawl"
        )
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise PermissionError("requests of other sites are refused")
    if not tokens:
        return str(request.remote)
    sent = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
    for name, token in tokens.items():
        if hmac.compare_digest(sent, token.encode()):
            return name
    raise web.HTTPUnauthorized


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).strip("[]").lower()


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
    """Serves the API of one crawl."""

    def __init__(self, data: Path, act: Act) -> None:
        """*data*: the data directory, which this process has locked."""
        self._data = data
        self._act = act
        self._runners: list[web.AppRunner] = []

    async def open_socket(self) -> None:
        """Listen on the socket in the data directory. Raises OSError."""
        runner = await self._runner({}, frozenset())
        path = self._data / SOCKET
        path.unlink(missing_ok=True)  # of a process that is dead, for the directory is ours
        # A path to a socket has 107 bytes at most; that of the directory is as long as it likes.
        directory = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                listening.bind(f"/proc/self/fd/{directory}/{SOCKET}")
            finally:
                os.umask(before)
        finally:
            os.close(directory)
        await web.SockSite(runner, listening).start()

    async def open_port(self, host: str, port: int, tokens: Mapping[str, str]) -> None:
        """Listen on *host* and *port*, or on the next free one. Raises ConfigError."""
        if not _is_loopback(host) and not tokens:
            raise ConfigError(
                f"CRAWLER_HTTP is {host}:{port}, which others can reach: set CRAWLER_HTTP_TOKENS"
            )
        names = frozenset({host.strip("[]").lower(), "localhost", "127.0.0.1", "::1"})
        runner = await self._runner(tokens, names)
        for tried in range(port, port + _PORTS):
            with suppress(OSError, OverflowError):  # the latter beyond port 65535
                await web.TCPSite(runner, host.strip("[]"), tried).start()
                if tried != port:
                    logger.warning("Port %d is taken: the API is at port %d", port, tried)
                logger.info("The API is at http://%s:%d/api/", host, tried)
                await asyncio.to_thread((self._data / ADDRESS).write_text, f"{host}:{tried}\n")
                return
        raise ConfigError(f"CRAWLER_HTTP: no port from {port} to {port + _PORTS - 1} is free")

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        for name in (SOCKET, ADDRESS):
            (self._data / name).unlink(missing_ok=True)

    async def _runner(self, tokens: Mapping[str, str], names: frozenset[str]) -> web.AppRunner:
        app = application(self._act, tokens, names)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        return runner


def _is_loopback(host: str) -> bool:
    name = host.strip("[]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def _error(status: int, text: str) -> web.Response:
    return _json({"error": text}, status)
