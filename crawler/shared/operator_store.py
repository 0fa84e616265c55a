"""The operator's rules and audit of a shared crawl, in Redis.

Rule: the rules are replaced as a whole, only if they are as they were read, and together with the
act that replaces them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from crawler.data.operator_files import Act, ActResult, read_audit
from crawler.shared import keys
from crawler.shared.client import Nodes

_LOCK_S: Final = 30
_WRITE: Final = """
local rules, audit = KEYS[1], KEYS[2]
local found = redis.call('HMGET', rules, 'text', 'acts')
if (found[1] or '') ~= ARGV[1] or tonumber(found[2] or 0) + 1 ~= tonumber(ARGV[4]) then return 0 end
redis.call('RPUSH', audit, ARGV[3])
redis.call('HSET', rules, 'text', ARGV[2], 'acts', ARGV[4])
redis.call('HINCRBY', rules, 'version', 1)
return 1
"""


class SharedStore:
    """Implements data.operator_files.OperatorStore."""

    def __init__(self, nodes: Nodes, name: str, version: int = 0) -> None:
        """*name*: of the crawl. *version*: of the rules that are in force already."""
        self.name = name
        self._nodes = nodes
        self._key, self._audit = keys.rules(name), keys.audit(name)
        self._lock = keys.audit_lock(name)
        self._version = version

    async def changed(self) -> str | None:
        """Return the text of the rules if it was not returned before, else None. Raises a Fault."""
        version = await self._ask(self._key, "HGET", self._key, "version")
        if int(version or 0) == self._version:
            return None
        self._version, text = await read_rules(self._nodes, self._key)
        return text

    async def rules(self) -> str:
        return (await read_rules(self._nodes, self._key))[1]

    async def acts(self) -> list[Act | ActResult]:
        return list(read_audit(await self._ask(self._audit, "LRANGE", self._audit, 0, -1)))

    async def audit_lines(self) -> int:
        """Return how many lines the audit has."""
        return int(await self._ask(self._audit, "LLEN", self._audit))

    async def write(self, before: str, after: str, act: Act) -> bool:
        line = msgspec.json.encode(act)
        wrote = await self._ask(
            self._key, "EVAL", _WRITE, 2, self._key, self._audit, before, after, line, act.number
        )
        return bool(wrote)

    async def note(self, touched: ActResult) -> None:
        await self._ask(self._audit, "RPUSH", self._audit, msgspec.json.encode(touched))

    async def take_lock(self, worker: str) -> bool:
        """Return whether *worker* may carry acts out now: it alone, for some time."""
        taken = await self._ask(self._lock, "SET", self._lock, worker, "NX", "GET", "EX", _LOCK_S)
        return taken is None or taken == worker.encode()

    async def free_lock(self) -> None:
        await self._ask(self._lock, "DEL", self._lock)

    async def _ask(self, key: str, *command: Any) -> Any:
        return await self._nodes.checked_command(key, *command)


async def read_rules(nodes: Nodes, key: str) -> tuple[int, str]:
    """Return the version and the text of the rules. Raises a Fault."""
    version, text = await nodes.checked_command(key, "HMGET", key, "version", "text")
    return int(version or 0), (text or b"").decode(errors="replace")
