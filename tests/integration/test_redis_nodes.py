"""The connections to real Redis servers: what is asked is answered, or a fault says why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Call, Nodes
from crawler.shared.faults import (
    ForeignData,
    OutOfMemory,
    ServerRefused,
    Unreachable,
)
from crawler.shared.worker.join import warn_about_replicas
from tests.harness.waiting import wait_until
from tests.servers.certificates import write_certificate
from tests.servers.redis import RedisServer
from tests.servers.redis_scripts import FewScripts

NAME = "t"
SHARDS = 8
SOON = "?socket_timeout=1.5&socket_connect_timeout=10"
STANDSTILL_S = 2.0
BACK_S = 60.0  # a server that has restarted answers by then
RunLoop = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run_loop(request: pytest.FixtureRequest) -> RunLoop:
    """Runs to its end what a test does."""

    def run(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", appendfsync="always") as server:
        yield server


def new_nodes(url: str) -> Nodes:
    return Nodes(Address.parse(url), FewScripts(), NAME, SHARDS)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Nodes]:
    nodes = new_nodes(url)
    try:
        await nodes.open()
        yield nodes
    finally:
        await nodes.close()


def echo(*args: bytes | str | float, shard: int = 3) -> Call:
    return Call(shard, "echo", args)


def count(shard: int = 3) -> Call:
    return Call(shard, "count", ())


async def when_back(nodes: Nodes, call: Call) -> Any:
    """Return its reply: to connect anew may take longer than a call waits, and nothing is sent
    then."""
    async with asyncio.timeout(BACK_S):
        while isinstance(reply := (await nodes.run([call]))[0], Unreachable):
            await asyncio.sleep(0.01)
    return reply


def run_of(server: RedisServer) -> bytes:
    return server.client().info("server")["run_id"][:8].encode()


def opened_in(server: RedisServer, shard: int = 3) -> list[bytes]:
    return server.client().lrange(f"{NAME}:{{{shard}}}:opened", 0, -1)


def test_replies_come_in_the_order_of_the_calls(server: RedisServer, run_loop: RunLoop) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            calls = [echo(b"\0\r\n\xff", "käse", -7, 0.1, n, shard=n % SHARDS) for n in range(300)]
            run = run_of(server)
            expected = [
                [run, b"\0\r\n\xff", "käse".encode(), b"-7", b"0.1", b"%d" % n] for n in range(300)
            ]
            assert await nodes.run(calls) == expected
            both = await asyncio.gather(nodes.run(calls[:100]), nodes.run(calls[100:]))
            assert [*both[0], *both[1]] == expected
            assert await nodes.run([]) == []
            assert nodes.single_server

    run_loop(scenario())


def test_plain_commands_are_sent_to_the_node_of_their_key(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(f"{server.url}/3") as nodes:
            assert await nodes.command("seeds", "RPUSH", "seeds", b"x", 5) == 2
            asks = [(n, ("SETNX", f"{NAME}:{{{n}}}:x", n)) for n in (1, 2, 1)]
            assert await nodes.commands(asks) == [1, 1, 0]
            assert isinstance(await nodes.command("seeds", "GET", "seeds"), ForeignData)
        assert server.client(db=3).lrange("seeds", 0, -1) == [b"x", b"5"]

    run_loop(scenario())


def test_a_shard_is_opened_once_before_its_first_script(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        run_id = server.client().info("server")["run_id"].encode()
        async with opened(server.url) as nodes:
            assert opened_in(server) == [], "to connect changes nothing"
            await asyncio.gather(*(nodes.run([echo(shard=n % SHARDS)]) for n in range(20)))
            assert opened_in(server) == [run_id]
            await nodes.open_shards()
            assert len(opened_in(server)) == 1

    run_loop(scenario())


def test_scripts_that_were_lost_are_given_again_once(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            await nodes.open_shards()
            server.client().script_flush()
            calls = [echo(n, shard=n % SHARDS) for n in range(100)]
            ran = await asyncio.gather(*(nodes.run(calls) for _ in range(10)))
            assert [[reply[1] for reply in each] for each in ran] == [
                [b"%d" % n for n in range(100)]
            ] * 10
            assert len(opened_in(server)) == 2, "not once for each who noticed"

    run_loop(scenario())


@pytest.mark.parametrize("down", [RedisServer.kill, RedisServer.stop], ids=lambda do: do.__name__)
def test_a_new_run_is_announced_to_a_shard_before_any_script(
    server: RedisServer, run_loop: RunLoop, down: Callable[[RedisServer], None]
) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            first = run_of(server)
            assert await nodes.run([count()]) == [[first, 1]]
            down(server)
            (reply,) = await nodes.run([count()])
            assert isinstance(reply, Unreachable) and nodes.node_of(3) in str(reply)
            server.start()
            second = run_of(server)
            assert await when_back(nodes, count()) == [second, 2] and first != second
            assert len(opened_in(server)) == 2
            # Another worker has loaded all scripts, so nothing is missed by us.
            down(server)
            server.start()
            async with opened(server.url) as other:
                await other.open_shards()
            (reply,) = await nodes.run([count()])
            assert isinstance(reply, Unreachable) or reply == [run_of(server), 3]
            assert len(opened_in(server)) == 3 + isinstance(reply, list)

    run_loop(scenario())


def test_calls_already_sent_are_not_repeated(server: RedisServer, run_loop: RunLoop) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            await nodes.run([count()])
            server.pause()
            under_way = asyncio.ensure_future(nodes.run([count(), count(4)]))
            await asyncio.sleep(0)  # it is written at once
            server.kill()
            assert [type(reply) for reply in await under_way] == [Unreachable] * 2
            server.start()
            assert await when_back(nodes, count()) == [run_of(server), 2]

    run_loop(scenario())


def test_a_server_that_is_silent_is_not_waited_for_for_ever(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(server.url + SOON) as nodes:
            await nodes.run([count()])
            server.pause()
            (reply,) = await nodes.run([count()])
            assert isinstance(reply, Unreachable) and "does not answer" in str(reply)
            (reply,) = await nodes.run([count()])
            assert isinstance(reply, Unreachable)
            server.resume()
            tries = 2
            while isinstance(reply, Unreachable):
                (reply,) = await nodes.run([count()])
                tries += 1
            assert 2 <= reply[1] <= 1 + tries, "what was sent may have happened, and once at most"

    run_loop(scenario())


def test_a_pause_of_our_own_process_is_no_server_failure(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(server.url + SOON) as nodes:
            await nodes.run([count()])
            under_way = asyncio.ensure_future(nodes.run([count()]))
            await asyncio.sleep(0)
            time.sleep(STANDSTILL_S)  # noqa: ASYNC251 - this is the standstill
            assert (await under_way)[0][1] == 2

    run_loop(scenario())


def test_a_cancelled_call_does_not_shift_the_replies_of_others(
    server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            await nodes.run([echo()])
            server.pause()
            given_up = asyncio.ensure_future(nodes.run([echo("given up")] * 3))
            kept = asyncio.ensure_future(nodes.run([echo("kept")]))
            await asyncio.sleep(0)
            given_up.cancel()
            server.resume()
            assert (await kept)[0][1:] == [b"kept"]
            assert (await nodes.run([echo("next")]))[0][1:] == [b"next"]

    run_loop(scenario())


def test_after_the_end_there_is_no_new_connection(server: RedisServer, run_loop: RunLoop) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            under_way = asyncio.ensure_future(nodes.run([echo()]))
            await asyncio.sleep(0)
        assert [type(reply) for reply in await under_way] == [Unreachable]
        assert [type(reply) for reply in await nodes.run([echo()])] == [Unreachable]
        assert len(server.client().client_list()) == 1, "ours, which asks"

    run_loop(scenario())


def test_a_full_server_refuses_what_adds_and_nothing_else(
    tmp_path: Path, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with opened(server.url) as nodes:
            (memory,) = (await nodes.memory()).values()
            assert 0 < memory.used_bytes < memory.max_bytes == 16 * 1024**2
            while not isinstance(
                reply := (await nodes.run([Call(3, "fill", (10**6,))]))[0], Exception
            ):
                assert reply < memory.max_bytes
            added, counted = await nodes.run([Call(3, "fill", (10**6,)), count()])
            assert isinstance(added, OutOfMemory) and counted[1] == 1

    with RedisServer(tmp_path / "redis", maxmemory="16mb", appendonly="no") as server:
        run_loop(scenario())


def test_foreign_data_is_found_at_the_start(server: RedisServer, run_loop: RunLoop) -> None:
    async def scenario() -> None:
        server.client().set(f"{NAME}:{{5}}:foreign", "x")
        async with opened(server.url) as nodes:
            with pytest.raises(ForeignData, match=r"t:\{5\}:foreign is there"):
                await nodes.open_shards()
            foreign, ours = await nodes.run([echo(shard=5), echo("x", shard=3)])
            assert isinstance(foreign, ForeignData) and ours[1:] == [b"x"]

    run_loop(scenario())


@pytest.mark.parametrize(
    ("options", "url", "kind", "message"),
    [
        pytest.param(
            {"password": "pw"},
            lambda server: server.url_as("", "wrong"),
            *(ServerRefused, "does not accept the user or the password"),
            id="wrong password",
        ),
        pytest.param(
            {"password": "pw"},
            lambda server: server.url_as("", ""),
            *(ServerRefused, "wants a password"),
            id="no password",
        ),
        pytest.param(
            {},
            lambda server: server.url_as("", "pw"),
            ServerRefused,
            "wants no password",
            id="too much",
        ),
        pytest.param(
            {"users": ("web on >pw ~* +@all -script",)},
            lambda server: server.url_as("web", "pw"),
            *(ServerRefused, "'script|load'"),
            id="a user who may not load scripts",
        ),
        pytest.param(
            {"users": ("web on >pw ~t:* +evalsha +script|load +info +get +rpush",)},
            lambda server: server.url_as("web", "pw"),
            *(ServerRefused, "rights"),
            id="a user whose scripts may not do all",
        ),
        pytest.param(
            {},
            lambda server: f"{server.url}/16",
            ServerRefused,
            "fewer databases",
            id="no such database",
        ),
        pytest.param(
            {"maxclients": 1},
            lambda server: server.url,
            *(Unreachable, "maxclients"),
            id="too many clients",
        ),
    ],
)
def test_a_server_that_does_not_let_us(
    tmp_path: Path, options: dict[str, Any], url: Any, kind: type[Exception], message: str
) -> None:
    with RedisServer(tmp_path / "redis", appendonly="no", **options) as server:
        server.client().ping()
        with pytest.raises(kind) as refusal, BlockingNodes(new_nodes(url(server))) as link:
            link.run([echo()])
    assert message in str(refusal.value) and "pw" not in str(refusal.value)


def test_a_replica_is_a_waiting_state(server: RedisServer, tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "replica", replica_of=server) as replica,
        BlockingNodes(new_nodes(replica.url)) as link,
    ):
        with pytest.raises(Unreachable, match="read-only replica"):
            link.run([echo()])
        replica.client().replicaof("NO", "ONE")
        assert link.run([echo()]) == [[run_of(replica)]]


def test_tls(tmp_path: Path, run_loop: RunLoop) -> None:
    file = write_certificate(tmp_path / "certificate.pem", "127.0.0.1")

    async def scenario() -> None:
        async with opened(f"{server.url}?ssl_ca_certs={file}") as nodes:
            assert await nodes.run([echo("x" * 100_000)]) == [[run_of(server), b"x" * 100_000]]
        for url, message in (
            (server.url, "certificate that is not accepted"),
            (server.url.replace("rediss", "redis"), "write rediss://"),
        ):
            with pytest.raises((ServerRefused, Unreachable), match=message):
                async with opened(url):
                    pass

    with RedisServer(tmp_path / "redis", certificate=file) as server:
        run_loop(scenario())


def test_a_server_without_tls_is_refused_when_tls_is_required(server: RedisServer) -> None:
    with pytest.raises(Unreachable, match="If it does not use TLS, write redis://"):
        BlockingNodes(
            new_nodes(server.url.replace("redis", "rediss") + "?socket_connect_timeout=0.3")
        )


def test_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with pytest.raises(Unreachable, match=f"Redis at {path} takes no connections"):
        BlockingNodes(new_nodes(f"unix://{path}"))
    with (
        RedisServer(tmp_path / "redis", unixsocket=path) as server,
        BlockingNodes(new_nodes(f"unix://{path}?db=2")) as link,
    ):
        assert link.run([echo(1)]) == [[run_of(server), b"1"]]


def when_linked(link: BlockingNodes, call: Call) -> Any:
    def replies() -> list[Any]:
        try:
            return link.run([call])
        except Unreachable:
            return []

    return wait_until(replies, BACK_S)[0]


def test_a_link_goes_on_after_a_restart(server: RedisServer) -> None:
    with BlockingNodes(new_nodes(server.url)) as link:
        assert link.run([count(), count()])[1][1] == 2
        server.kill()
        with pytest.raises(Unreachable, match="takes no connections"):
            link.run([count()])
        server.start()
        assert when_linked(link, count()) == [run_of(server), 3]
        server.kill()
        server.start()
        assert when_linked(link, count())[1] == 4, "what ended between two calls is seen before"
        assert link.command("x", "INCR", "x") == 1
        assert link.commands([(n, ("INCR", f"{NAME}:{{{n}}}:n")) for n in (3, 4)]) == [5, 1]
        with pytest.raises(ForeignData):
            link.command("x", "LPUSH", "x", 1)


def settled(replica: RedisServer) -> None:
    client = replica.client()
    wait_until(
        lambda: client.info("replication")["master_link_status"] == "up", 30.0, log=replica.log
    )


def replica_messages(url: str, caplog: pytest.LogCaptureFixture, is_sure: bool = False) -> str:
    async def scenario() -> None:
        async with opened(url) as nodes:
            await warn_about_replicas(nodes, is_sure)

    caplog.clear()
    with caplog.at_level("INFO"):
        asyncio.run(scenario())
    return caplog.text


def test_a_server_without_replicas_is_not_warned_of(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert replica_messages(server.url, caplog) == ""


def test_replicas_without_a_bound_on_their_lag_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user = "web on >secret ~* +@all -config"
    with (
        RedisServer(tmp_path / "redis", users=(user,)) as server,
        RedisServer(tmp_path / "replica", replica_of=server) as replica,
    ):
        settled(replica)
        master, without_config = server.client(), server.url_as("web", "secret")
        for url in (server.url, without_config):
            messages = replica_messages(url, caplog)
            assert (
                "WARNING" in messages
                and f"Redis at 127.0.0.1:{server.port} has replicas" in messages
            )
            assert "Set min-replicas-to-write 1 and min-replicas-max-lag 2" in messages
            assert ("cluster-node-timeout, 15000 ms" in messages) is (url == server.url)
        master.config_set("min-replicas-to-write", 1)
        assert "has min-replicas-max-lag 10:" in replica_messages(server.url, caplog)
        messages = replica_messages(without_config, caplog)
        assert "WARNING" not in messages and "its min-replicas-max-lag cannot be read" in messages
        master.config_set("min-replicas-max-lag", 2)
        assert replica_messages(server.url, caplog) == ""
        assert "CRAWLER_REDIS_FSYNC is always" in replica_messages(server.url, caplog, True)
