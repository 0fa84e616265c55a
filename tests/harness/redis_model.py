"""A model of a redis-server with owned shards, which may lose what was written last.

Rule: it answers as the scripts do; tests/contract/test_owned_shards.py compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from random import Random
from typing import Any, Final

from crawler.shared.faults import OutOfMemory
from crawler.shared.owned.scripts import INBOX, OwnedScripts

LOST_MS: Final = 2_000
"""The age of the last writes that a server may lose: it writes its file each second."""

Hash = dict[bytes, bytes]


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class RedisModel:
    page: int | None = 1  # fields of a hash that are read at once; None: all

    def __init__(
        self,
        scripts: OwnedScripts,
        *,
        checks_token: bool = True,
        checks_number: bool = True,
        notes_restarts: bool = True,
        deletes_by_name: bool = True,
        checks_lease: bool = True,
        kept_states: int = 4,
    ) -> None:
        self.now_ms = 0
        self.run = 0
        self.is_full = False  # it takes no links
        self._names = {scripts.sha(name): name for name in scripts.names()}
        self._hashes: dict[bytes, Hash] = {}
        self._lists: dict[bytes, list[bytes]] = {}
        self._strings: dict[bytes, bytes] = {}
        self._earlier: list[tuple[int, Any]] = []  # as it was before the last writes, and when
        self._checks_token = checks_token
        self._checks_number = checks_number
        self._notes_restarts = notes_restarts
        self._deletes_by_name = deletes_by_name
        self._checks_lease = checks_lease
        self._kept_states = kept_states

    def ask(self, command: Sequence[Any]) -> Any:
        word, *args = command
        if word in {"EVALSHA", "EVAL"}:
            script, count, *rest = args
            sha = script if word == "EVALSHA" else sha1(script.encode()).hexdigest()
            names, argv = [as_bytes(each) for each in rest[:count]], rest[count:]
            return getattr(self, f"_{self._names[sha]}")(names, [as_bytes(each) for each in argv])
        name, found = as_bytes(args[0]), self._hashes.get(as_bytes(args[0]), {})
        match word:
            case "HSCAN":
                begin = int(args[1])
                end = len(found) if self.page is None else begin + self.page
                pairs = list(reversed(found.items()))[begin:end]  # in any order but that of writing
                cursor = b"%d" % end if end < len(found) else b"0"
                return [cursor, [each for pair in pairs for each in pair]]
            case "HLEN":
                return len(found)
            case "HGET":
                return self._meta(name).get(as_bytes(args[1]))
            case "HMGET":
                return [found.get(as_bytes(field)) for field in args[1:]]
            case "LRANGE":
                return self._lists.get(name, [])[args[1] : args[2] + 1]
            case "GET":
                return self._strings.get(name)
            case "SET":
                if args[2:] != ["NX"] or name not in self._strings:
                    self._strings[name] = as_bytes(args[1])
                return b"OK"
        raise AssertionError(word)

    def restart(self, random: Random | None = None, state: Any = None) -> None:
        """Begin another run, perhaps as it was some writes ago, or in *state*. All shards are
        opened."""
        earlier = [state for at, state in self._earlier if at >= self.now_ms - LOST_MS]
        if random is not None and earlier:
            state = random.choice(earlier)
        if state is not None:
            self._hashes, self._lists = state
        self._earlier = []
        self.run += 1
        for name in [name for name, found in self._hashes.items() if b"run" in found]:
            self._open([name], [b"run%d" % self.run])

    def keep(self) -> None:
        """Nothing that is there by now is lost."""
        self._earlier = []

    def lose_all(self) -> None:
        self._hashes, self._lists, self._strings, self._earlier = {}, {}, {}, []
        self.run += 1

    def fill(self) -> None:
        """Have no memory for links any more, or have some again."""
        self.is_full = not self.is_full

    def owner_of(self, name: str) -> str:
        return self._hashes.get(name.encode(), {}).get(b"owner", b"").decode()

    def hash_of(self, name: str) -> Hash:
        return self._hashes.get(name.encode(), {})

    def copied(self) -> Any:
        hashes = {name: dict(found) for name, found in self._hashes.items()}
        return hashes, {name: list(found) for name, found in self._lists.items()}

    def _meta(self, name: bytes) -> Hash:
        """Return the root of a shard, which is opened before any command on it."""
        return self._hashes.setdefault(name, {b"run": b"run%d" % self.run})

    def _open(self, names: list[bytes], argv: list[bytes]) -> Any:
        meta = self._hashes.setdefault(names[0], {})
        last, meta[b"run"] = meta.get(b"run"), argv[0]
        if last not in (None, argv[0]) and self._notes_restarts:
            meta[b"lost"] = b"1"
            if b"lease" in meta:
                meta[b"until"] = as_bytes(self.now_ms + int(meta[b"lease"]))
        return b"OK"

    def _claim(self, names: list[bytes], argv: list[bytes]) -> Any:
        token, lease_ms, begins, *dead = argv
        meta = self._hashes.get(names[0], {})
        held = int(meta.get(b"until", 0)) - self.now_ms
        if b"seq" not in meta and begins != b"1":
            return [b"none"]
        owner = meta.get(b"owner", b"")
        is_free = owner in (b"", token) or any(map(owner.startswith, dead))
        if not is_free and held > 0 and self._checks_lease:
            return [b"held", held]
        self._keep_earlier()
        meta = self._meta(names[0])
        until = self.now_ms + int(lease_ms)
        seq = meta.get(b"seq", b"0")
        meta |= {b"owner": token, b"until": as_bytes(until), b"lease": lease_ms, b"seq": seq}
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
        return [b"ok", int(number), is_lossy, len(self._hashes.get(names[1], {}))]

    def _push(self, names: list[bytes], argv: list[bytes]) -> Any:
        run, *entries = argv
        if self.is_full:
            return OutOfMemory("it is full")
        if self._meta(names[0])[b"run"] != run and self._notes_restarts:
            return [b"restarted", self._meta(names[0])[b"run"]]
        self._keep_earlier()
        self._carry_out(b"HSET", names[1], entries)
        meta = self._meta(names[0])
        meta[b"inbox"] = as_bytes(int(meta.get(b"inbox", 0)) + 1)
        return [b"ok"]

    def _release(self, names: list[bytes], argv: list[bytes]) -> Any:
        meta = self._hashes.get(names[0], {})
        if meta.get(b"owner") != argv[0]:
            return [b"taken"]
        self._keep_earlier()
        self._hashes[names[0]][b"owner"] = b""
        return [b"ok"]

    def _plan(self, names: list[bytes], argv: list[bytes]) -> Any:
        token, lead_ms, before, plan = argv
        stored = self._hashes.setdefault(names[0], {})
        held = int(stored.get(b"until", 0)) - self.now_ms
        if stored.get(b"leader") != token and 0 < held <= int(lead_ms):
            return [0, int(stored.get(b"number", 0)), stored.get(b"plan", b"")]
        stored |= {b"leader": token, b"until": as_bytes(self.now_ms + int(lead_ms))}
        if plan and int(stored.get(b"number", 0)) == int(before):
            stored |= {b"number": as_bytes(int(before) + 1), b"plan": plan}
        return [1, int(stored.get(b"number", 0)), stored.get(b"plan", b"")]

    def _carry_out(self, word: bytes, name: bytes, args: list[bytes]) -> None:
        match word:
            case b"HSET":
                found = self._hashes.setdefault(name, {})
                found |= dict(zip(args[::2], args[1::2], strict=True))
            case b"HDEL":
                if name.endswith(INBOX.encode()) and not self._deletes_by_name:
                    args = list(self._hashes.get(name, {}))[: len(args)]
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
        if self._kept_states:
            earlier = [*self._earlier, (self.now_ms, self.copied())]
            self._earlier = earlier[-self._kept_states :]
