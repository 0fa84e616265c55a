"""A model of a redis-server with owned shards, which may lose what was written last.

Rule: it answers as the scripts do; tests/contract/test_owned_shards.py compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

from crawler.shared.owned.scripts import OwnedScripts

Hash = dict[bytes, bytes]


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class RedisModel:
    def __init__(
        self,
        scripts: OwnedScripts,
        *,
        checks_token: bool = True,
        checks_number: bool = True,
        notes_restarts: bool = True,
    ) -> None:
        self.now_ms = 0
        self.run = 0
        self._names = {scripts.sha(name): name for name in scripts.names()}
        self._hashes: dict[bytes, Hash] = {}
        self._lists: dict[bytes, list[bytes]] = {}
        self._earlier: list[Any] = []  # as it was before the last writes
        self._checks_token = checks_token
        self._checks_number = checks_number
        self._notes_restarts = notes_restarts

    def ask(self, command: Sequence[Any]) -> Any:
        word, *args = command
        if word == "EVALSHA":
            sha, count, *rest = args
            names, argv = [as_bytes(each) for each in rest[:count]], rest[count:]
            return getattr(self, f"_{self._names[sha]}")(names, [as_bytes(each) for each in argv])
        name, *rest = args
        found = self._hashes.get(as_bytes(name), {})
        if word == "HLEN":
            return len(found)
        begin, *rest = rest
        if word == "HSCAN":
            return [b"0", [each for pair in found.items() for each in pair]]
        assert word == "LRANGE"
        return self._lists.get(as_bytes(name), [])[begin : rest[0] + 1]

    def restart(self, random: Random | None = None) -> None:
        """Begin another run, perhaps as it was some writes ago. All shards are opened."""
        if random is not None and self._earlier:
            self._hashes, self._lists = random.choice(self._earlier)
        self._earlier = []
        self.run += 1
        for name in [name for name, found in self._hashes.items() if b"seq" in found]:
            self._open([name], [b"run%d" % self.run])

    def keep(self) -> None:
        """Nothing that is there by now is lost."""
        self._earlier = []

    def lose_all(self) -> None:
        self._hashes, self._lists, self._earlier = {}, {}, []
        self.run += 1

    def owner_of(self, name: str) -> str:
        return self._hashes.get(name.encode(), {}).get(b"owner", b"").decode()

    def _open(self, names: list[bytes], argv: list[bytes]) -> Any:
        meta = self._hashes.setdefault(names[0], {})
        last, meta[b"run"] = meta.get(b"run"), argv[0]
        if last not in (None, argv[0]) and self._notes_restarts:
            meta[b"lost"] = b"1"
        return b"OK"

    def _claim(self, names: list[bytes], argv: list[bytes]) -> Any:
        token, lease_ms, begins = argv
        meta = self._hashes.get(names[0], {})
        held = int(meta.get(b"until", 0)) - self.now_ms
        if b"seq" not in meta and begins != b"1":
            return [b"none"]
        if meta.get(b"owner", b"") not in (b"", token) and held > 0:
            return [b"held", held]
        self._keep_earlier()
        meta = self._hashes.setdefault(names[0], {b"run": b"run%d" % self.run})
        until = self.now_ms + int(lease_ms)
        seq = meta.get(b"seq", b"0")
        meta |= {b"owner": token, b"until": as_bytes(until), b"seq": seq}
        is_lossy, is_filling = int(b"lost" in meta), int(b"filling" in meta)
        ended = max(0, -held)
        found = meta.get(b"totals", b"")
        return [b"ok", int(seq), found, is_lossy, is_filling, ended, meta[b"run"]]

    def _apply(self, names: list[bytes], argv: list[bytes]) -> Any:
        token, run, lease_ms, before, number, totals, *rest = argv
        meta = self._hashes.get(names[0], {})
        if b"seq" not in meta:
            return [b"none"]
        if meta[b"owner"] != token and self._checks_token:
            return [b"taken"]
        if meta[b"run"] != run and self._notes_restarts:
            return [b"restarted", meta[b"run"], int(meta[b"seq"])]
        if meta[b"seq"] != before and self._checks_number:
            return [b"gap", int(meta[b"seq"])]
        self._keep_earlier()
        meta = self._hashes[names[0]]
        is_lossy = int(b"lost" in meta)
        while rest:
            word, which, count = rest[0], int(rest[1]), int(rest[2])
            self._carry_out(word, names[which - 1], rest[3 : 3 + count])
            rest = rest[3 + count :]
        meta |= {b"seq": number, b"until": as_bytes(self.now_ms + int(lease_ms))}
        if totals:
            meta[b"totals"] = totals
        return [b"ok", int(number), is_lossy]

    def _release(self, names: list[bytes], argv: list[bytes]) -> Any:
        meta = self._hashes.get(names[0], {})
        if meta.get(b"owner") != argv[0]:
            return [b"taken"]
        self._keep_earlier()
        self._hashes[names[0]][b"owner"] = b""
        return [b"ok"]

    def _carry_out(self, word: bytes, name: bytes, args: list[bytes]) -> None:
        match word:
            case b"HSET":
                found = self._hashes.setdefault(name, {})
                found |= dict(zip(args[::2], args[1::2], strict=True))
            case b"HDEL":
                for each in args:
                    self._hashes.get(name, {}).pop(each, None)
            case b"RPUSH":
                self._lists.setdefault(name, []).extend(args)
            case b"DEL":
                self._hashes.pop(name, None)
                self._lists.pop(name, None)
            case _:
                raise AssertionError(word)

    def _keep_earlier(self) -> None:
        self._earlier = [*self._earlier[-3:], deepcopy((self._hashes, self._lists))]
