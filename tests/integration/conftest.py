"""What tests of this folder share. Tests that stop their server have one of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.harness.pushed_url_workers import RunLoop
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def running_redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(running_redis: RedisServer) -> RedisServer:
    """Empty."""
    running_redis.client().flushall()
    return running_redis


@pytest.fixture(params=["embedded", "shared"])
def where(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of a crawl with its frontier in the data directory, and in Redis."""
    if request.param == "embedded":
        return {}
    server = request.getfixturevalue("server")
    return {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_FRONTIER_SHARDS": 4}


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """A client of `server`, which is empty."""
    with server.client() as client:
        yield client


@pytest.fixture
def run_loop() -> Iterator[RunLoop]:
    with asyncio.Runner() as runner:
        yield runner.run
