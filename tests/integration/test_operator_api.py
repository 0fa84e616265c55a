"""The HTTP API over real sockets: who may use it, and what is refused."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crawler.console.server import ApiServer, read_tokens
from crawler.model.types import ConfigError
from crawler.operate import client
from crawler.operate.verbs import ActAnswer, ActRequest, check

JSON = {"Content-Type": "application/json"}
TOKENS = {"anna": "x" * 20}


class Acts:
    """What was asked for, and by whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ActRequest]] = []

    async def act(self, request: ActRequest, by: str) -> ActAnswer:
        check(request)
        self.asked.append((by, request))
        return ActAnswer("done", len(self.asked))


def serving(
    data: Path, acts: Acts, use: Callable[[int], Any], tokens: dict[str, str] | None = None
) -> Any:
    """Return what *use*, in a thread, returns for the port of a server."""

    async def run() -> Any:
        server = ApiServer(data, acts.act)
        await server.open_socket()
        await server.open_port("127.0.0.1", free_port(), tokens or {})
        port = int((data / "control.address").read_text().rpartition(":")[2])
        try:
            return await asyncio.to_thread(use, port)
        finally:
            await server.close()

    return asyncio.run(run())


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def post(
    port: int, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    sent = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST", path, sent, JSON if headers is None else headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_request_is_carried_out_for_who_sends_it(tmp_path: Path) -> None:
    acts = Acts()

    def use(port: int) -> None:
        status, answer = post(port, "/api/refuse", {"targets": ["www.example.org"]})
        assert (status, answer) == (200, {"said": "done", "number": 1})
        answered = client.ask(tmp_path, ActRequest("delay", ("example.org",), "5s"))
        assert answered == ActAnswer("done", 2)

    serving(tmp_path, acts, use)

    assert acts.asked[0] == ("127.0.0.1", ActRequest("refuse", ("www.example.org",)))
    assert acts.asked[1][1] == ActRequest("delay", ("example.org",), "5s")
    assert not (tmp_path / "control.sock").exists()
    with pytest.raises(client.NoCrawl):
        client.ask(tmp_path, ActRequest("stop"))


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        pytest.param("/api/fly", {}, JSON, 404, id="a verb that there is not"),
        pytest.param("/api/refuse", {}, JSON, 400, id="a verb without its target"),
        pytest.param("/api/refuse", b"{", JSON, 400, id="no JSON"),
        pytest.param("/api/refuse", {"target": "a.example"}, JSON, 400, id="a field that is not"),
        pytest.param(
            "/api/stop", {}, {"Content-Type": "text/plain"}, 415, id="a form of a browser"
        ),
        pytest.param("/api/stop", {}, {**JSON, "Host": "evil.example"}, 403, id="a rebound name"),
        pytest.param(
            "/api/stop", {}, {**JSON, "Origin": "https://evil.example"}, 403, id="another site"
        ),
        pytest.param("/api/stop", {}, {**JSON, "Origin": "null"}, 403, id="a sandboxed frame"),
        pytest.param("/api/add", b" " * (3 << 20), JSON, 413, id="a body that is too large"),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, path: str, body: object, headers: dict[str, str], status: int
) -> None:
    acts = Acts()

    answered = serving(tmp_path, acts, lambda port: post(port, path, body, headers))

    assert answered[0] == status and answered[1]["error"]
    assert not acts.asked


def test_a_token_is_needed_where_there_are_any(tmp_path: Path) -> None:
    acts = Acts()

    def use(port: int) -> None:
        assert post(port, "/api/stop")[0] == 401
        wrong = {**JSON, "Authorization": "Bearer " + "y" * 20}
        assert post(port, "/api/stop", {}, wrong)[0] == 401
        right = {**JSON, "Authorization": f"Bearer {TOKENS['anna']}"}
        assert post(port, "/api/stop", {}, right)[0] == 200

    serving(tmp_path, acts, use, TOKENS)

    assert [by for by, _ in acts.asked] == ["anna"]


def test_the_description_names_each_verb(tmp_path: Path) -> None:
    def use(port: int) -> Any:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", "/api/openapi.json")
            return json.loads(connection.getresponse().read())

    described = serving(tmp_path, Acts(), use)

    assert described["openapi"] == "3.1.0"
    assert {"/api/refuse", "/api/undo", "/api/add"} <= described["paths"].keys()


def in_loop(use: Callable[[ApiServer], Awaitable[None]], data: Path) -> None:
    async def run() -> None:
        server = ApiServer(data, Acts().act)
        try:
            await use(server)
        finally:
            await server.close()

    asyncio.run(run())


def test_the_socket_is_for_its_user_alone_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 40)  # longer than the path of a socket may be
    data.mkdir()
    stale = socket.socket(socket.AF_UNIX)
    directory = os.open(data, os.O_RDONLY)
    stale.bind(f"/proc/self/fd/{directory}/control.sock")
    stale.close()
    os.close(directory)

    async def use(server: ApiServer) -> None:
        await server.open_socket()
        assert stat.S_IMODE((data / "control.sock").stat().st_mode) == 0o600
        answer = await asyncio.to_thread(client.ask, data, ActRequest("stop"))
        assert answer.said == "done"

    in_loop(use, data)


def test_a_port_that_is_taken_gives_way_to_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(server: ApiServer) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            await server.open_port("127.0.0.1", port, {})
            written = int((tmp_path / "control.address").read_text().rpartition(":")[2])
            assert written > port
            assert f"Port {port} is taken" in caplog.text

    in_loop(use, tmp_path)


def test_others_reach_it_with_a_token_only(tmp_path: Path) -> None:
    async def use(server: ApiServer) -> None:
        with pytest.raises(ConfigError, match="set CRAWLER_HTTP_TOKENS"):
            await server.open_port("0.0.0.0", free_port(), {})

    in_loop(use, tmp_path)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("anna:" + "x" * 20, 0o644, "chmod 600"),
        ("anna:short", 0o600, "NAME:TOKEN"),
        ("", 0o600, "NAME:TOKEN"),
    ],
)
def test_a_file_of_tokens_is_private_and_whole(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=why):
        read_tokens(file)
    assert "x" * 20 not in why
