"""What a worker says of itself once a second, in the hash of workers."""

from __future__ import annotations

import msgspec


class WorkerSaid(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    session: str
    host: str  # the machine
    pid: int
    at: float = 0.0  # epoch seconds by the server
    started: float = 0.0  # epoch seconds by the worker
    state: str = "starting"  # starting | working | stopping
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    leases: int = 0
    outbox: int = 0  # links on its disk
    doors: int = 0  # hosts that seeds have opened, as it knows
    preferred: int = 0  # shards
