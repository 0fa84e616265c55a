"""The first words with a server: who we are, and which run of which server this is.

Rule: a connection belongs to one run of one server, for it ends with the run. So what is asked on
a connection is asked of the run that its greeting named.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import hiredis

from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import (
    ERRORS,
    OLDEST,
    Fault,
    Refused,
    Unreachable,
    fault_of,
)
from crawler.storage.redis.connection.wire import Wire, pack

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Greeting:
    run_id: str
    is_cluster: bool


async def connect(address: Address) -> tuple[Wire, Greeting]:
    """Raises a Fault."""
    wire: Wire | None = None
    try:
        async with asyncio.timeout(address.connect_s):
            wire = await _dial(address)
            return wire, await _greet(wire, address)
    except BaseException as error:
        if wire is None:
            is_mute = isinstance(error, TimeoutError) and address.tls is not None
        else:
            is_mute = wire.broken is not None
            await wire.close()
        if not isinstance(error, Exception):
            raise
        fault = fault_of(error, str(address))
        raise (_with_hint(fault, address) if is_mute else fault) from error


async def _dial(address: Address) -> Wire:
    loop = asyncio.get_running_loop()

    def wire() -> Wire:
        return Wire(str(address), address.reply_s)

    if address.path:
        _, made = await loop.create_unix_connection(wire, address.path)
    else:
        _, made = await loop.create_connection(wire, address.host, address.port, ssl=address.tls)
    return made


async def _greet(wire: Wire, address: Address) -> Greeting:
    *admitted, info = replies = await wire.ask([pack(each) for each in _introduction(address)])
    error = next((reply for reply in replies if isinstance(reply, ERRORS)), None)
    if error is not None:
        raise fault_of(error, str(address))
    if not isinstance(info, bytes) or admitted != [b"OK"] * len(admitted):
        raise fault_of(hiredis.ProtocolError(), str(address))
    return _read_greeting(info_fields(info), str(address))


def _introduction(address: Address) -> Iterator[tuple[Argument, ...]]:
    if address.credentials:
        yield "AUTH", *address.credentials
    if address.db:
        yield "SELECT", address.db
    if address.client_name:
        yield "CLIENT", "SETNAME", address.client_name
    yield "INFO", "server"


def info_fields(info: bytes) -> dict[str, str]:
    """Of INFO: its lines are name:value."""
    lines = info.decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _with_hint(fault: Fault, address: Address) -> Fault:
    """One that wants TLS hangs up on whoever does not begin so, and one that does not know it
    waits for ever for the end of what it takes for a command."""
    if not isinstance(fault, Unreachable) or address.path:
        return fault
    if address.tls is None:
        return Unreachable(f"{fault}. If it wants TLS, write rediss:// instead of redis://")
    return Unreachable(f"{fault}. If it knows no TLS, write redis:// instead of rediss://")


def _read_greeting(fields: dict[str, str], node: str) -> Greeting:
    version = _VERSION.match(fields.get("redis_version", ""))
    if version is None or "run_id" not in fields:
        raise fault_of(hiredis.ProtocolError(), node)
    if (int(version[1]), int(version[2])) < OLDEST:
        raise Refused(f"Redis at {node} has version {version[0]}; scripts with flags need >= 7.0")
    mode = fields.get("redis_mode")
    if mode == "sentinel":
        raise Refused(f"Redis at {node} is a Sentinel, which keeps no data. Give the master's URL")
    return Greeting(fields["run_id"], is_cluster=mode == "cluster")
