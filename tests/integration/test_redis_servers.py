"""The Redis servers that tests kill, pause and fill: each of these operations has its effect."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.certificates import write_certificate
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_process import HOST

WAIT_S = 60.0
REFUSES_S = 2.0  # so long a node that comes back does (CLUSTER_WRITABLE_DELAY of Redis)
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
PHRASE = "käse & brot/?#@:%"  # what a URL must not be broken by
STARTS_ONE = """
import sys
from pathlib import Path
from tests.servers.redis import RedisServer
with RedisServer(Path(sys.argv[1])) as server:
    print(server.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path, appendfsync="always") as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    # Not everysec: while a file is being synced Redis keeps what it acknowledges to itself, for up
    # to 2 s (flushAppendOnlyFile in its aof.c), and a kill takes that along.
    with RedisCluster(appendfsync="always") as cluster:
        yield cluster


def keys(count: int) -> dict[str, bytes]:
    return {f"key {number}": b"%d" % number for number in range(count)}


@pytest.mark.parametrize("down", [RedisServer.kill, RedisServer.stop], ids=lambda do: do.__name__)
def test_written_data_survives_a_restart(
    server: RedisServer, down: Callable[[RedisServer], None]
) -> None:
    client, url, pid = server.client(), server.url, server.pid
    run = client.info("server")["run_id"]
    client.mset(keys(100))
    down(server)
    assert not server.is_up
    with pytest.raises(redis.ConnectionError):
        client.ping()
    server.start()
    assert client.mget(keys(100)) == list(keys(100).values())
    assert server.url == url and server.pid != pid
    assert client.info("server")["run_id"] != run


def test_a_cut_off_file_loses_its_end_and_nothing_else(server: RedisServer) -> None:
    client = server.client()
    client.mset(keys(100))
    before_bytes = server.aof_bytes()
    client.set("last", 1)
    client.set("very last", 1)
    server.kill()
    server.cut_aof(server.aof_bytes() - before_bytes - 5)  # a command of which 5 bytes are there
    server.start()
    assert client.mget(keys(100)) == list(keys(100).values())
    assert client.dbsize() == 100
    assert server.aof_bytes() == before_bytes  # as Redis itself repaired it
    assert "Truncating the AOF" in server.log()
    client.set("after", 1)


def test_all_of_the_file_can_be_cut_off(server: RedisServer) -> None:
    server.client().mset(keys(100))
    server.kill()
    server.cut_aof(10**9)
    server.start()
    assert server.client().dbsize() == 0


def test_a_paused_server_is_silent_and_resumes_unchanged(server: RedisServer) -> None:
    client, impatient = server.client(), server.client(socket_timeout=0.05)
    client.set("kept", 1)
    run = client.info("server")["run_id"]
    server.pause()
    assert server.is_up
    with pytest.raises(redis.TimeoutError):
        impatient.ping()
    server.resume()
    assert client.info("server")["run_id"] == run
    server.pause()
    server.stop()
    server.start()
    assert client.get("kept") == b"1"


def test_the_server_outlives_the_thread_that_started_it() -> None:
    server = RedisServer()
    thread = threading.Thread(target=server.__enter__)
    thread.start()
    thread.join()
    try:
        assert server.client().ping()
    finally:
        server.__exit__()
    assert not server.folder.exists()


@ON_LINUX
def test_no_child_outlives_it() -> None:
    with RedisServer(rdb_key_save_delay=60_000_000) as server:  # us: long after this test
        client = server.client()
        client.set("key", 1)
        client.bgrewriteaof()
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        wait_until(lambda: children.read_text() != "", WAIT_S)
        child = int(children.read_text())
        assert is_alive(child)
    wait_until(lambda: not is_alive(child), WAIT_S)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # its parent may never wait for it


@ON_LINUX
def test_the_server_ends_with_its_killed_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_ONE, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout
        left = RedisServer()
        left.port = int(owner.stdout.readline())
        assert answers(left)
        owner.kill()
    wait_until(lambda: not answers(left), WAIT_S)


def answers(server: RedisServer) -> bool:
    """Return whether a server answers at its port, also one that refuses us."""
    with server.client() as client:
        try:
            client.ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
    return True


def test_an_unknown_option_raises_and_leaves_nothing(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, no_such_option=1)
    with pytest.raises(RuntimeError, match="no-such-option"):
        server.__enter__()
    assert not server.is_up


def test_a_password_is_asked_for() -> None:
    with RedisServer(password=PHRASE) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        for wrong in ("", "other"):
            with server.client("", wrong) as client, pytest.raises(redis.AuthenticationError):
                client.ping()


def test_a_user_has_the_rights_of_its_line() -> None:
    users = ("default off", "web on >secret ~web:* +get +set")
    with RedisServer(users=users) as server:
        with redis.Redis.from_url(server.url_as("web", "secret")) as web:
            web.set("web:1", 1)
            with pytest.raises(redis.exceptions.NoPermissionError):
                web.set("other:1", 1)
            with pytest.raises(redis.exceptions.NoPermissionError):
                web.delete("web:1")
        with redis.Redis.from_url(server.url) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        assert server.client().get("web:1") == b"1"  # whatever happens to the others


def test_tls_is_trusted_by_its_certificate_only(tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "redis.pem", HOST)
    with RedisServer(certificate=certificate, password=PHRASE) as server:
        assert server.url.startswith("rediss://")
        with redis.Redis.from_url(server.url, ssl_ca_certs=str(certificate)) as client:
            assert client.ping()
        for wrong in (server.url, server.url.replace("rediss", "redis")):
            with redis.Redis.from_url(wrong) as client, pytest.raises(redis.ConnectionError):
                client.ping()


def test_full_memory_refuses_what_adds() -> None:
    with RedisServer(maxmemory="3mb") as server:
        client = server.client()
        empty_bytes = server.used_memory()
        for number in range(300):
            try:
                client.set(f"{number}", b"x" * 10_000)
            except redis.exceptions.OutOfMemoryError:
                break
        fits = client.dbsize()
        assert 100 < fits < 300  # the client's own buffers count, too
        assert fits * 10_000 <= server.used_memory() - empty_bytes <= 3 * 2**20


def test_a_replica_follows_and_takes_no_writes(server: RedisServer) -> None:
    with RedisServer(replica_of=server) as replica:
        client = replica.client()
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", WAIT_S)
        server.client().set("key", 1)
        wait_until(lambda: client.get("key") == b"1", WAIT_S)
        with pytest.raises(redis.ReadOnlyError):
            client.set("key", 2)


def test_a_cluster_has_its_keys_on_all_masters(cluster: RedisCluster) -> None:
    with redis.RedisCluster.from_url(cluster.url) as client:
        for key, value in keys(100).items():
            client.set(key, value)
        assert all(client.get(key) == value for key, value in keys(100).items())
    counts = [node.client().dbsize() for node in cluster.nodes]
    assert sum(counts) == 100 and all(counts)
    assert all(cluster.node_of(key).client().exists(key) for key in keys(10))
    assert cluster.node_of("{17}:a") is cluster.node_of(b"{17}:b")


def test_a_node_that_is_down_takes_only_its_own_keys(cluster: RedisCluster) -> None:
    here = {node: next(filter(held_by(cluster, node), keys(100))) for node in cluster.nodes}
    first, *others = cluster.nodes
    first.client().set(here[first], "kept")
    first.kill()
    for node in others:
        wait_until(partial(gives_up_some, node.client()), WAIT_S)
        wait_until(
            partial(takes, node.client(), here[node]), WAIT_S
        )  # two of three must agree that they live
        with pytest.raises(redis.exceptions.MovedError):
            node.client().get(here[first])
    begun = time.monotonic()
    first.start()
    try:
        first.client().get(here[first])
    except redis.exceptions.ClusterDownError:
        pass
    else:
        assert time.monotonic() - begun > REFUSES_S
    cluster.wait()
    assert first.client().get(here[first]) == b"kept"


def takes(client: redis.Redis, key: str) -> bool:
    try:
        return bool(client.set(key, 1))
    except redis.exceptions.ClusterDownError:
        return False


def gives_up_some(client: redis.Redis) -> bool:
    return int(client.cluster("info")["cluster_slots_fail"]) > 0


def held_by(cluster: RedisCluster, node: RedisServer) -> Callable[[str], bool]:
    return lambda key: cluster.node_of(key) is node
