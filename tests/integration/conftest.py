"""What tests of this folder share. Tests that stop their server have one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
