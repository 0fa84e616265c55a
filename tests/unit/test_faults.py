"""How a server's errors are translated, and the map of a cluster as its servers send it."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import hiredis
import pytest
from redis.crc import key_slot

from crawler.model.types import CrawlerError, StoreUnavailable
from crawler.shared.client import (
    SLOTS,
    UNASSIGNED,
    hash_slot,
    read_moved,
    read_slots,
    single_owner_map,
)
from crawler.shared.faults import (
    BY_WORD,
    MAX_QUOTED_CHARS,
    ForeignData,
    OutOfMemory,
    ServerRefused,
    Unreachable,
    fault_of,
)

NODE = "redis.example.com:6379"
# As Redis 7.0.15 says them; the words behind the first are for the reader.
REPLIES = [
    ("LOADING Redis is loading the dataset in memory", Unreachable, "is loading"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", Unreachable, "busy"),
    ("CLUSTERDOWN The cluster is down", Unreachable, "The cluster is down"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data", Unreachable, "replica"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", Unreachable, "moving"),
    ("ASK 3999 127.0.0.1:6381", Unreachable, "moving"),
    ("MOVED 3999 127.0.0.1:6381", Unreachable, "3999 127.0.0.1:6381"),
    ("NOSCRIPT No matching script. Please use EVAL.", Unreachable, "drops"),
    ("READONLY You can't write against a read only replica.", Unreachable, "master's URL"),
    ("NOREPLICAS Not enough good replicas to write.", Unreachable, "min-replicas-to-write"),
    ("MISCONF Errors writing to the AOF file: No space left on device", Unreachable, "No space"),
    ("ERR max number of clients reached", Unreachable, "maxclients"),
    ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory, "maxmemory"),
    ("NOAUTH Authentication required.", ServerRefused, "wants a password"),
    (
        "WRONGPASS invalid username-password pair or user is disabled.",
        ServerRefused,
        "the password",
    ),
    (
        "ERR AUTH <password> called without any password configured",
        ServerRefused,
        "wants no password",
    ),
    ("NOPERM this user has no permissions to run the 'get' command", ServerRefused, "'get'"),
    ("ERR The user executing the script can't run this command", ServerRefused, "rights"),
    ("DENIED Redis is running in protected mode", ServerRefused, "protected mode"),
    ("ERR DB index is out of range", ServerRefused, "fewer databases"),
    ("ERR SELECT is not allowed in cluster mode", ServerRefused, "no databases but 0"),
    ("ERR user_script:12: attempt to index a nil value", ServerRefused, "user_script:12"),
    ("SOMETHING new", ServerRefused, "SOMETHING new"),
    ("WRONGTYPE Operation against a key holding the wrong kind", ForeignData, "FRONTIER_NAME"),
    ("FOREIGN the key x is there already", ForeignData, "under our name: the key x is there"),
    ("SCHEMA it has schema 9", ForeignData, "another version: it has schema 9"),
    ("GONE the server came back without it", ForeignData, "has lost the crawl: the server came"),
]


@pytest.mark.parametrize(("reply", "kind", "message"), REPLIES, ids=[row[0] for row in REPLIES])
def test_an_error_reply(reply: str, kind: type[CrawlerError], message: str) -> None:
    fault = fault_of(hiredis.ReplyError(reply), NODE)
    assert type(fault) is kind
    assert str(fault).startswith(f"Redis at {NODE} ") and message in str(fault)


def test_every_row_is_tried() -> None:
    assert {reply.partition(" ")[0] for reply, *_ in REPLIES} >= BY_WORD.keys()


def test_waiting_states_are_those_of_a_store_that_is_unavailable() -> None:
    assert issubclass(Unreachable, StoreUnavailable) and issubclass(OutOfMemory, StoreUnavailable)
    assert not issubclass(ServerRefused, StoreUnavailable)
    assert not issubclass(ForeignData, StoreUnavailable)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        pytest.param(ConnectionRefusedError(111, "no"), Unreachable, "Start it", id="not started"),
        pytest.param(FileNotFoundError(2, "no"), Unreachable, "Start it", id="no such socket"),
        pytest.param(
            PermissionError(13, "no"), ServerRefused, "unixsocketperm", id="a socket of others"
        ),
        pytest.param(TimeoutError(), Unreachable, "does not answer", id="silence"),
        pytest.param(ConnectionResetError(104, "reset"), Unreachable, "(reset)", id="cut"),
        pytest.param(OSError(113, "No route to host"), Unreachable, "No route", id="no way"),
        pytest.param(socket.gaierror(-2, "unknown"), Unreachable, "spelling", id="no such name"),
        pytest.param(hiredis.ProtocolError("x"), Unreachable, "no Redis answers", id="garbage"),
        pytest.param(
            ssl.SSLCertVerificationError(1, "x"), ServerRefused, "certificate", id="not trusted"
        ),
        pytest.param(ssl.SSLEOFError(8, "cut"), Unreachable, "(cut)", id="cut while greeting"),
        pytest.param(
            UnicodeError("label too long"), ServerRefused, "label too long", id="no host name"
        ),
    ],
)
def test_an_error_of_the_connection(error: Exception, kind: type, message: str) -> None:
    fault = fault_of(error, NODE)
    assert type(fault) is kind
    assert str(fault).startswith(f"Redis at {NODE} ") and message in str(fault)


def test_a_fault_stays_what_it_is() -> None:
    fault = OutOfMemory("full")
    assert fault_of(fault, NODE) is fault


def test_a_servers_message_is_shown_in_part_and_without_control_characters() -> None:
    fault = fault_of(hiredis.ReplyError("ERR \x1b[31m" + "x" * 10_000), NODE)
    assert "\x1b" not in str(fault)
    assert len(str(fault)) < MAX_QUOTED_CHARS + 100


def test_arguments_of_an_unknown_command_are_not_shown() -> None:
    error = "ERR unknown command 'AUTH', with args beginning with: 's3cr3t' "
    fault = fault_of(hiredis.ReplyError(error), NODE)
    assert isinstance(fault, ServerRefused) and "s3cr3t" not in str(fault)


@pytest.mark.parametrize(
    "key", ["gossamer:{17}", "{17}", "17", "a{}b", "{", "a}b{c}d", "x{y}{z}", "käse", ""]
)
def test_hash_of_a_key(key: str) -> None:
    assert hash_slot(key) == key_slot(key.encode())


def test_shards_are_distinguished_by_their_number() -> None:
    assert (
        hash_slot("gossamer:{17}")
        == hash_slot("other:{17}:m")
        == hash_slot("17")
        != hash_slot("18")
    )


def test_a_map_of_a_cluster() -> None:
    owners = read_slots(
        [
            [0, 5460, [b"10.0.0.1", 7001, b"id", []], [b"10.0.0.9", 7009, b"replica", []]],
            [5461, 10_000, [b"fd00::2", 7002, b"id"]],
            [10_001, 10_001, [None, 7003, b"id"]],
            [10_002, 10_002, [b"", 7003, b"id"]],
        ],
        "asked.example.com",
    )
    assert owners is not None and len(owners) == SLOTS
    assert [owners[at] for at in (0, 5460)] == ["10.0.0.1:7001"] * 2
    assert [owners[at] for at in (5461, 10_000)] == ["[fd00::2]:7002"] * 2
    assert [owners[at] for at in (10_001, 10_002)] == ["asked.example.com:7003"] * 2
    assert owners[10_003] == owners[-1] == UNASSIGNED


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([], id="a node without neighbours"),
        pytest.param(Unreachable("x"), id="no answer"),
        pytest.param([[0, 99_999, [b"a", 1]]], id="more slots than there are"),
        pytest.param([[0, 10**12, [b"a", 1]]], id="more slots than fit into memory"),
        pytest.param([[-5, 3, [b"a", 1]]], id="slots below the first"),
        pytest.param([[3, 2, [b"a", 1]]], id="a range that ends before it begins"),
        pytest.param([[0, 1, [b"a", b"x"]]], id="a port that is none"),
        pytest.param([[0]], id="half a row"),
        pytest.param([b"x", 5], id="something else"),
    ],
)
def test_invalid_cluster_maps(reply: Any) -> None:
    assert read_slots(reply, "a") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", (3999, "127.0.0.1:6381")),
        ("MOVED 3999 fd00::2:6381", (3999, "[fd00::2]:6381")),
        ("MOVED 3999 :6381", (3999, "asked:6381")),
        ("MOVED 99999 127.0.0.1:6381", None),
        ("MOVED x", None),
    ],
)
def test_where_a_key_has_moved(error: str, expected: tuple[int, str] | None) -> None:
    assert read_moved(error, "asked") == expected


def test_a_map_of_one_server() -> None:
    assert single_owner_map("a:1") == ["a:1"] * SLOTS
