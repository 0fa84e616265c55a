"""Another service listens where Redis should: it is refused soon, with an error that names it, and
it learns no more than any service that listens there. Its answer in an error never shows our
password."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from crawler.model.types import CrawlerError
from crawler.shared.address import Address
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import ServerRefused, Unreachable
from tests.servers.redis_scripts import FewScripts

SECRET: Final = "s3cr3t"  # noqa: S105 - of nothing
INFO: Final = "redis_version:7.0.15\r\nredis_mode:{}\r\nrun_id:{}\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def bulk(text: str) -> bytes:
    return f"${len(text)}\r\n{text}\r\n".encode()


def replying(*replies: bytes) -> Talk:
    """Each time something comes, the next reply goes; after the last one silence."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            await reader.read(1 << 20)
            writer.write(reply)
        await reader.read()

    return talk


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(1 << 16):
        writer.write(received)


async def talks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.com ESMTP\r\n")
    await reader.read()


async def run_against(talk: Talk, calls: int = 0) -> list[Any]:
    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(whole, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"redis://:{SECRET}@127.0.0.1:{port}?socket_timeout=0.2&socket_connect_timeout=2"
        nodes = Nodes(Address.parse(url), FewScripts(), "t", 8)
        try:
            await nodes.open()
            return await nodes.run([Call(n % 8, "echo", ()) for n in range(calls)])
        finally:
            await nodes.close()


GREETS: Final = b"+OK\r\n" + bulk(INFO.format("standalone", "a" * 40))
CLUSTER: Final = b"+OK\r\n" + bulk(INFO.format("cluster", "a" * 40))


@pytest.mark.parametrize(
    ("talk", "kind", "why"),
    [
        pytest.param(hangs_up, Unreachable, "requires TLS, write rediss://", id="hangs up"),
        pytest.param(replying(), Unreachable, "does not answer", id="is silent"),
        pytest.param(echoes, Unreachable, "no Redis answers", id="echoes, the password too"),
        pytest.param(talks_first, Unreachable, "no Redis answers", id="a mail server"),
        pytest.param(
            replying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            Unreachable,
            "no Redis answers",
            id="the web",
        ),
        pytest.param(replying(b"+OK\r\n+OK\r\n"), Unreachable, "no Redis answers", id="says yes"),
        pytest.param(
            replying(b"+OK\r\n$5\r\nab"), Unreachable, "does not answer", id="half a reply"
        ),
        pytest.param(
            replying(b"+OK\r\n" + bulk("x:y\r\n")), Unreachable, "no Redis answers", id="no version"
        ),
        pytest.param(
            replying(GREETS.replace(b"7.0.15", b"6.2.14")),
            ServerRefused,
            "needs? >= 7.0",
            id="an old one",
        ),
        pytest.param(
            replying(b"+OK\r\n" + bulk(INFO.format("sentinel", "a" * 40))),
            *(ServerRefused, "is a Sentinel"),
            id="a sentinel",
        ),
        pytest.param(
            replying(
                f"-ERR unknown command 'AUTH', with args '{SECRET}'\r\n".encode() + GREETS[5:]
            ),
            *(ServerRefused, "does not know a command"),
            id="repeats the password",
        ),
        pytest.param(
            replying(CLUSTER, b"*0\r\n"),
            Unreachable,
            "does not report",
            id="a cluster without nodes",
        ),
        pytest.param(
            replying(CLUSTER, b"*1\r\n*1\r\n:0\r\n"),
            Unreachable,
            "does not report",
            id="half a map",
        ),
    ],
)
def test_another_service(talk: Talk, kind: type[CrawlerError], why: str) -> None:
    with pytest.raises(kind, match=why) as refusal:
        asyncio.run(run_against(talk))
    assert "Redis at 127.0.0.1:" in str(refusal.value)
    assert SECRET not in str(refusal.value)


def loaded() -> bytes:
    """To the scripts that are loaded, and to `open` of all shards."""
    return b"".join([bulk("a" * 40), *([b"*1\r\n" + bulk("a" * 8)] * 8), *[bulk("a" * 40)] * 3])


@pytest.mark.parametrize(
    ("last", "why"),
    [
        pytest.param(b"?", "no Redis answers", id="garbage"),
        pytest.param(b":1\r\n" * 3, "no Redis answers", id="more than was asked for"),
        pytest.param(b"-MOVED 1 nowhere\r\n", "do not agree", id="to nowhere"),
        pytest.param(b"*3\r\n$1\r\na\r\n", "does not answer", id="half a list"),
    ],
)
def test_a_server_that_sends_nonsense_later(last: bytes, why: str) -> None:
    *_, reply = asyncio.run(run_against(replying(GREETS, loaded(), *[last] * 3), calls=1))
    assert isinstance(reply, (Unreachable, int))
    if isinstance(reply, int):  # the one that was asked for; the rest broke the connection
        assert reply == 1
    else:
        assert why in str(reply) and SECRET not in str(reply)


def test_a_server_that_loses_its_scripts_is_given_up() -> None:
    forgets = b"-NOSCRIPT No matching script.\r\n"
    talk = replying(GREETS, *[loaded(), forgets] * 10)
    (reply,) = asyncio.run(run_against(talk, calls=1))
    assert isinstance(reply, Unreachable) and "drops our scripts" in str(reply)


def test_replies_before_the_end_of_a_connection_are_not_lost() -> None:
    talk = replying(GREETS, loaded(), b":1\r\n:2\r\n?")
    *known, lost = asyncio.run(run_against(talk, calls=3))
    assert known == [1, 2] and isinstance(lost, Unreachable)
