"""One operation on one shard, as it is asked for."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Argument: TypeAlias = bytes | str | int | float


class Call(NamedTuple):
    """EVALSHA of *script*, on the root of *shard*."""

    shard: int
    script: str  # its file in lua/
    args: tuple[Argument, ...]
