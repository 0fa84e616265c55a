"""A model of a redis-server with owned shards, which may lose what was written last.

Rule: it answers as the scripts do; tests/contract/test_owned_shards.py compares the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha1
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from crawler.shared.faults import OutOfMemory
from crawler.shared.owned.scripts import INBOX, OwnedScripts

LOST_MS: Final = 2_000
"""The age of the last writes that a server may lose: it writes its file each second."""

Hash: TypeAlias = dict[bytes, bytes]


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class _Replaced(NamedTuple):
    """What a write has replaced in one key: fields of its hash (None: they were not there), and the
    length of its list, or all of it if it was deleted."""

    name: bytes
    fields: Mapping[bytes, bytes | None]
    list_length: int | None = None
    deleted_list: Sequence[bytes] | None = None


class _Write(NamedTuple):
    at_ms: int
    replaced: list[_Replaced]


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
        kept_writes: int | None = 4,
    ) -> None:
        """*kept_writes*: how many of the last ones may be lost; None: all that are not old. The
        other arguments are for tests: with False the model has a fault."""
        self.now_ms = 0
        self.run = 0
        self.is_full = False  # it takes no links
        self._names = {scripts.sha(name): name for name in scripts.names()}
        self._hashes: dict[bytes, Hash] = {}
        self._lists: dict[bytes, list[bytes]] = {}
        self._strings: dict[bytes, bytes] = {}  # this and all that is below is not lost
        self._sets: dict[bytes, dict[bytes, float]] = {}  # scores by members
        self._writes: deque[_Write] = deque(maxlen=kept_writes)
        self._checks_token = checks_token
        self._checks_number = checks_number
        self._notes_restarts = notes_restarts
        self._deletes_by_name = deletes_by_name
        self._checks_lease = checks_lease

    def pass_time(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)

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
            case "HDEL":
                return int(found.pop(as_bytes(args[1]), None) is not None)
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
        return self._ask_set(word, self._sets.setdefault(name, {}), args[1:])

    def _ask_set(self, word: str, members: dict[bytes, float], args: Sequence[Any]) -> Any:
        """Carry out a command on a set, sorted or not."""
        match word:
            case "ZADD":
                members[as_bytes(args[1])] = args[0]
            case "ZREM" | "SREM":
                return int(members.pop(as_bytes(args[0]), None) is not None)
            case "ZREMRANGEBYSCORE":
                for each in [each for each, score in members.items() if score < args[1]]:
                    del members[each]
            case "SADD":
                members[as_bytes(args[0])] = 0.0
            case "ZRANGE" | "SMEMBERS":
                return list(members)
            case _:
                raise AssertionError(word)
        return 1

    def restart(
        self, random: Random | None = None, *, loses_all: bool = False, down_ms: int = 0
    ) -> int | None:
        """Begin another run, and lose nothing, with *random* some of the last writes, or all that
        may be lost. All shards are opened after *down_ms*. Returns since when writes are lost, or
        None."""
        self._keep_old()
        lost = len(self._writes) if loses_all else 0
        if random is not None and self._writes:
            lost = random.randint(1, len(self._writes))
        lost_since = self._writes[-lost].at_ms if lost else None
        for _ in range(lost):
            self._undo(self._writes.pop())
        self._writes.clear()
        self.run += 1
        for name in [name for name, found in self._hashes.items() if b"run" in found]:
            self._open([name], [b"run%d" % self.run], self.now_ms + down_ms)
        return lost_since

    def keep(self) -> None:
        """Nothing that is there by now is lost."""
        self._writes.clear()

    def lose_all(self) -> None:
        self._hashes, self._lists, self._strings, self._sets = {}, {}, {}, {}
        self._writes.clear()
        self.run += 1

    def fill(self) -> None:
        """Have no memory for links any more, or have some again."""
        self.is_full = not self.is_full

    def owner_of(self, name: str) -> str:
        return self._hashes.get(name.encode(), {}).get(b"owner", b"").decode()

    def hash_of(self, name: str) -> Hash:
        return self._hashes.get(name.encode(), {})

    def _meta(self, name: bytes) -> Hash:
        """Return the root of a shard, which is opened before any command on it."""
        return self._hashes.setdefault(name, {b"run": b"run%d" % self.run})

    def _open(self, names: list[bytes], argv: list[bytes], opened_ms: int = 0) -> Any:
        meta = self._hashes.setdefault(names[0], {})
        last, meta[b"run"] = meta.get(b"run"), argv[0]
        if last not in (None, argv[0]) and self._notes_restarts:
            meta[b"lost"] = b"1"
            meta[b"restarted"] = as_bytes(max(opened_ms, self.now_ms))
            if b"lease" in meta:
                opened_ms = max(opened_ms, self.now_ms)
                meta[b"until"] = as_bytes(opened_ms + int(meta[b"lease"]))
        return b"OK"

    def _claim(self, names: list[bytes], argv: list[bytes]) -> Any:
        token, lease_ms, begins, *dead = argv
        meta = dict(self._hashes.get(names[0], {}))
        held = int(meta.get(b"until", 0)) - self.now_ms
        if b"seq" not in meta and begins != b"1":
            return [b"none"]
        owner = meta.get(b"owner", b"")
        is_dead = any(map(owner.startswith, dead))
        is_free = owner in (b"", token) or is_dead
        if not is_free and held > 0 and self._checks_lease:
            return [b"held", held]
        self._begin_write()
        seq, run = meta.get(b"seq", b"0"), meta.get(b"run", b"run%d" % self.run)
        until = as_bytes(self.now_ms + int(lease_ms))
        claim = {b"owner": token, b"until": until, b"lease": lease_ms, b"seq": seq, b"run": run}
        self._put(names[0], claim)
        if b"seq" not in meta:
            self.keep()  # a shard that is lost at its begin is the crawl's affair
        is_lossy, is_filling = int(b"lost" in meta), int(b"filling" in meta)
        return [
            *(b"ok", int(seq), meta.get(b"totals", b""), is_lossy, is_filling),
            *(max(0, -held), run, int(is_dead)),
        ]

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
        self._begin_write()
        is_lossy = int(b"lost" in meta)
        while rest:
            word, which, count = rest[0], int(rest[1]), int(rest[2])
            self._carry_out(word, names[which - 1], rest[3 : 3 + count])
            rest = rest[3 + count :]
        written = {b"seq": number, b"until": as_bytes(self.now_ms + int(lease_ms))}
        self._put(names[0], written | ({b"totals": totals} if totals else {}))
        return [b"ok", int(number), is_lossy, len(self._hashes.get(names[1], {}))]

    def _push(self, names: list[bytes], argv: list[bytes]) -> Any:
        run, *entries = argv
        if self.is_full:
            return OutOfMemory("it is full")
        meta = self._meta(names[0])
        if meta[b"run"] != run and self._notes_restarts:
            return [b"restarted", meta[b"run"]]
        self._begin_write()
        self._carry_out(b"HSET", names[1], entries)
        self._put(names[0], {b"inbox": as_bytes(int(meta.get(b"inbox", 0)) + 1)})
        return [b"ok"]

    def _release(self, names: list[bytes], argv: list[bytes]) -> Any:
        meta = self._hashes.get(names[0], {})
        if meta.get(b"owner") != argv[0]:
            return [b"taken"]
        self._begin_write()
        self._put(names[0], {b"owner": b""})
        return [b"ok"]

    def _address(self, names: list[bytes], argv: list[bytes]) -> Any:
        me, verb = argv[:2]
        slice_ms, after_ms, held_ms, rest_ms, patience_ms = map(int, argv[2:])
        now, of, meta = self.now_ms, dict(self._hashes.get(names[1], {})), self._meta(names[0])
        owner, ends, free = (of.get(each, b"") for each in (b"owner", b"ends", b"free"))
        ends_ms, free_ms, run = int(ends or 0), int(free or 0), meta[b"run"]
        is_of_run = of.get(b"run") == run or not self._notes_restarts
        if not is_of_run and b"restarted" in meta and not held_ms:
            free_ms = max(free_ms, int(meta[b"restarted"]) + slice_ms + after_ms)
        if owner == me or (held_ms and not is_of_run):
            owner, free_ms = b"", max(free_ms, now + rest_ms)
        elif owner:
            free_ms = max(free_ms, ends_ms + after_ms)
        waiting = {
            field: tuple(map(int, times.split()))
            for field, times in of.items()
            if field.startswith(b"w:")
        }
        mine = b"w:" + me
        joined = waiting.pop(mine, (now, now))[0]
        self._begin_write()
        gone = [field for field, (_, last) in waiting.items() if last + patience_ms < now]
        self._remove(names[1], gone)
        others = [since for field, (since, _) in waiting.items() if field not in gone]
        reply: list[Any]
        if verb == b"give":
            self._remove(names[1], [mine])
            reply = [b"given"]
        elif held_ms and others:
            owner, ends_ms, reply = me, now + held_ms, [b"held", held_ms, 1]
        elif held_ms or (now >= free_ms and all(joined <= since for since in others)):
            owner, ends_ms, reply = me, now + slice_ms, [b"held", slice_ms, int(bool(others))]
            self._remove(names[1], [mine])
        else:
            self._put(names[1], {mine: b"%d %d" % (joined, now)})
            reply = [b"busy", max(0, free_ms - now)]
        if me in (owner, of.get(b"owner")):
            times = {b"ends": as_bytes(ends_ms), b"free": as_bytes(free_ms)}
            self._put(names[1], {b"owner": owner, b"run": run} | times)
        return reply

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

    def _round(self, names: list[bytes], argv: list[bytes]) -> Any:
        me, patience, mine, used, done, back, wanted, pages = argv[0], *map(int, argv[1:8])
        most, longest, floor, after, rounds, my_run, left_over, more = map(int, argv[8:16])
        now, of = self.now_ms, self._hashes.setdefault(names[0], {})
        field = b"w:" + me
        others = {
            name: tuple(map(int, said.split()))
            for name, said in of.items()
            if name.startswith(b"w:") and name != field
        }
        for name in [name for name, said in others.items() if said[0] + patience < now]:
            del of[name], others[name]
        live, waits = 1 + len(others), wanted > 0 or any(said[3] for said in others.values())
        names_of_all = (b"number", b"granted", b"leased", b"began", b"first", b"over")
        number, granted, leased, began, first, over = [int(of.get(n, 0)) for n in names_of_all]
        is_busy = not done or any(not said[2] or said[1] != number for said in others.values())
        left_over = max([left_over, *(said[4] for said in others.values())])
        closed, why = of.get(b"closed", b""), of.get(b"why", b"")
        if over and over >= my_run:
            of.pop(field, None)
            return [number, 0, 1, 1, why, leased, first, began]
        if not first:
            number = first = number + 1
            granted, leased, began, closed = 0, 0, 0, b""
        if mine == number:
            granted, leased = max(0, granted - back), max(0, leased + more)
            began = began or now * used
        if not closed and began:
            come = pages + sum(said[5] for said in others.values())
            if longest >= 0 and now >= began + longest:
                closed = b"time"
            if floor >= 0 and now >= began + after and come < floor:
                closed = b"floor"
        get = 0
        if mine == number and not closed:
            get = wanted if most < 0 else min(wanted, -((granted - most) // live))
            granted += get if most >= 0 else 0
        may_get = not closed and waits and (most < 0 or granted < most)
        is_full = 0 <= most <= granted
        if not (is_busy or get or mine != number or may_get):
            if began or is_full:
                why = closed or (b"count" if is_full else b"dry")
                if number >= first + rounds - 1:
                    first, over = 0, now
                else:
                    number, granted, leased, began, closed = number + 1, 0, 0, 0, b""
            elif left_over == 1:
                first, over, why = 0, now, b""
        of |= zip(
            names_of_all,
            map(as_bytes, (number, granted, leased, began, first, over)),
            strict=True,
        )
        of |= {b"closed": closed, b"why": why}
        asks = int(wanted > get)
        said = (now, mine, 0 if get else done, asks, int(argv[14]), pages)
        of[field] = b"%d %d %d %d %d %d" % said
        if not first:
            del of[field]
        return [number, get, int(closed != b""), int(not first), why, leased, first, began]

    def _carry_out(self, word: bytes, name: bytes, args: list[bytes]) -> None:
        match word:
            case b"HSET":
                self._put(name, dict(zip(args[::2], args[1::2], strict=True)))
            case b"HDEL":
                if name.endswith(INBOX.encode()) and not self._deletes_by_name:
                    args = list(self._hashes.get(name, {}))[: len(args)]
                self._remove(name, args)
            case b"RPUSH":
                found = self._lists.setdefault(name, [])
                self._note(_Replaced(name, {}, len(found)))
                found.extend(args)
            case b"DEL":
                before = self._lists.pop(name, [])
                self._note(_Replaced(name, self._hashes.pop(name, {}), None, before))
            case _:
                raise AssertionError(word)

    def _put(self, name: bytes, fields: Mapping[bytes, bytes]) -> None:
        found = self._hashes.setdefault(name, {})
        self._note(_Replaced(name, {field: found.get(field) for field in fields}))
        found.update(fields)

    def _remove(self, name: bytes, fields: Iterable[bytes]) -> None:
        found = self._hashes.get(name, {})
        there = [field for field in fields if field in found]
        self._note(_Replaced(name, {field: found.pop(field) for field in there}))

    # Writes that may be lost

    def _begin_write(self) -> None:
        """Begin a write, which is lost or kept as a whole."""
        self._keep_old()
        self._writes.append(_Write(self.now_ms, []))

    def _keep_old(self) -> None:
        while self._writes and self._writes[0].at_ms < self.now_ms - LOST_MS:
            self._writes.popleft()

    def _note(self, replaced: _Replaced) -> None:
        if self._writes:
            self._writes[-1].replaced.append(replaced)

    def _undo(self, write: _Write) -> None:
        for name, fields, list_length, deleted_list in reversed(write.replaced):
            found = self._hashes.setdefault(name, {})
            for field, value in fields.items():
                if value is None:
                    del found[field]
                else:
                    found[field] = value
            if not found:
                del self._hashes[name]
            if deleted_list is not None:
                self._lists[name] = list(deleted_list)
            elif list_length is not None:
                del self._lists[name][list_length:]
