"""A real Redis Cluster on loopback: masters, and replicas where a test adds them.

Rule: a node that is down takes its own keys with it and no others, and restarts under its identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import redis
from redis.crc import key_slot

from tests.harness.waiting import wait_until
from tests.servers.redis import START_S, RedisServer
from tests.servers.redis_process import HOST

HASH_SLOTS: Final = 16384  # of any cluster


class RedisCluster:
    """Starts in 2.1 s: so long a master that starts, or comes back, serves no key
    (CLUSTER_WRITABLE_DELAY in Redis' cluster.c; no option shortens it)."""

    def __init__(self, folder: Path | None = None, *, masters: int = 3, **options: Any) -> None:
        """*options*: of a RedisServer, for each."""
        self.nodes = [
            RedisServer(folder and folder / f"{number}", cluster=True, **options)
            for number in range(masters)
        ]
        self._options = options

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._acquaint()
            self.wait()
            self._exits = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._exits.close()

    @property
    def url(self) -> str:
        """Of one node; it knows the others."""
        return self.nodes[0].url

    def url_beside(self, node: RedisServer) -> str:
        """Of a node that is not *node*."""
        return next(each.url for each in self.nodes if each is not node)

    def node_of(self, key: str | bytes) -> RedisServer:
        """Return the node that has *key*. Keys with the same part in braces are together."""
        slot = key_slot(key if isinstance(key, bytes) else key.encode())
        return next(node for node, slots in self._shares() if slot in slots)

    @contextmanager
    def replica(self, master: RedisServer) -> Iterator[RedisServer]:
        """Add a node that replicates *master* and is known to all others."""
        with RedisServer(cluster=True, **self._options) as replica:
            with replica.client() as client, master.client() as its_master:
                for node in self.nodes:
                    client.execute_command("CLUSTER MEET", HOST, node.port, node.bus_port)
                name = its_master.execute_command("CLUSTER MYID").decode()
                wait_until(lambda: name in str(client.cluster("nodes")), START_S, log=replica.log)
                client.execute_command("CLUSTER REPLICATE", name)
                wait_until(
                    lambda: client.info("replication")["master_link_status"] == "up",
                    START_S,
                    log=replica.log,
                )
            for node in self.nodes:
                with node.client() as client:
                    wait_until(partial(_has_replica, client, name), START_S, log=node.log)
            yield replica

    def take_over(self, replica: RedisServer) -> None:
        """Without its master's consent; until the cluster agrees."""
        with replica.client() as client:
            client.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            wait_until(
                lambda: client.info("replication")["role"] == "master", START_S, log=replica.log
            )

    def wait(self) -> None:
        """Until every node takes every key for served: after the start of one that was down."""
        for node in self.nodes:
            with node.client() as client:
                wait_until(partial(self._is_whole, client), START_S, log=node.log)

    def _acquaint(self) -> None:
        for epoch, (node, slots) in enumerate(self._shares(), 1):
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", epoch)
                client.execute_command("CLUSTER ADDSLOTSRANGE", slots[0], slots[-1])
                for other in self.nodes[: epoch - 1]:
                    client.execute_command("CLUSTER MEET", HOST, other.port, other.bus_port)

    def _shares(self) -> list[tuple[RedisServer, range]]:
        count = len(self.nodes)
        ends = [HASH_SLOTS * number // count for number in range(count + 1)]
        return list(zip(self.nodes, map(range, ends, ends[1:]), strict=True))

    def _is_whole(self, client: redis.Redis) -> bool:
        info = client.cluster("info")
        return (
            info["cluster_state"] == "ok"
            and int(info["cluster_slots_ok"]) == HASH_SLOTS
            and int(info["cluster_known_nodes"]) == len(self.nodes)
        )


def _has_replica(client: redis.Redis, master: str) -> bool:
    return bool(client.execute_command("CLUSTER REPLICAS", master))
