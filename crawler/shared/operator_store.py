"""The operator's rules and audit of a shared crawl, in Redis.

Rule: the rules are replaced as a whole, only if they are as they were read, and with the act that
replaces them.
"""

from __future__ import annotations

from crawler.shared import keys
from crawler.shared.client import Nodes


class SharedRules:
    """Implements operator.RulesSource."""

    def __init__(self, nodes: Nodes, name: str, version: int) -> None:
        """*version*: of the text that is known already."""
        self._nodes = nodes
        self._key = keys.rules(name)
        self._version = version

    async def changed(self) -> str | None:
        """Return the text if it was not returned before, else None. Raises a Fault."""
        version = await self._nodes.checked_command(self._key, "HGET", self._key, "version")
        if int(version or 0) == self._version:
            return None
        self._version, text = await read_rules(self._nodes, self._key)
        return text


async def read_rules(nodes: Nodes, key: str) -> tuple[int, str]:
    """Return the version and the text of the rules. Raises a Fault."""
    version, text = await nodes.checked_command(key, "HMGET", key, "version", "text")
    return int(version or 0), (text or b"").decode(errors="replace")
