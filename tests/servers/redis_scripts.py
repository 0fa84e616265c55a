"""Scripts of a frontier that is none: enough to see what the connections to Redis do."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1
from typing import Final

OPEN: Final = """#!lua flags=allow-oom
if redis.call('EXISTS', KEYS[1] .. ':foreign') == 1 then
  return redis.error_reply('FOREIGN the key ' .. KEYS[1] .. ':foreign is there already')
end
redis.call('SET', KEYS[1] .. ':run', ARGV[1])
redis.call('RPUSH', KEYS[1] .. ':opened', table.concat(ARGV, ' '))
return {string.sub(ARGV[1], 1, 8)}
"""
RUN: Final = "local run = string.sub(redis.call('GET', KEYS[1] .. ':run') or 'closed', 1, 8)\n"
TEXTS: Final[Mapping[str, str]] = {
    # Not the first by its name, and not the first to be named.
    "echo": f"#!lua flags=allow-oom\n{RUN}return {{run, unpack(ARGV)}}",
    "count": f"#!lua flags=allow-oom\n{RUN}return {{run, redis.call('INCR', KEYS[1] .. ':n')}}",
    "fill": "#!lua\nreturn redis.call('APPEND', KEYS[1] .. ':fill', string.rep('x', ARGV[1]))",
    "open": OPEN,
}


class FewScripts:
    def names(self) -> tuple[str, ...]:
        return tuple(TEXTS)

    def text(self, name: str) -> str:
        return TEXTS[name]

    def sha(self, name: str) -> str:
        return sha1(TEXTS[name].encode()).hexdigest()
