from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.frontiers import STORES, EmbeddedWorld
from tests.harness.owned_world import OwnedWorld, open_nodes
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=[*STORES, OwnedWorld], ids=lambda kind: kind.__name__)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedWorld]:
    if request.param is OwnedWorld:
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client() as client, open_nodes(server.port) as nodes:
            yield OwnedWorld(client, nodes, tmp_path)
        return
    with request.param(tmp_path) as store:
        yield EmbeddedWorld(store, tmp_path)


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedWorld]:
    """For what is the embedded frontier's own."""
    with request.param(tmp_path) as store:
        yield EmbeddedWorld(store, tmp_path)
