"""Hosts whose names lead to one address: a group, of which one host at a time is fetched from.

Rule: whoever comes while the address is in use, or rests, waits in the order of arrival, and no
longer than a bound: so an address in front of a thousand sites is no queue for ever. Names are
looked up elsewhere, and what is known of an address is here.

    a host comes to its turn
      its address is not known yet      it rests until that is looked up (`note_known`)
      the address is free               it is leased
      else                              it rests until its place, at the latest; when the fetch
                                        that goes on is released, the first that waits is called
                                        for the end of the address's rest
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import AddressLeases, HostAddresses
from crawler.frontier.records import AddressRecord, HostRecord, decode_address, encode
from crawler.frontier.staging import WriteBatch
from crawler.model.types import HostKey

LOOK_UP_S: Final = 10.0  # until an address is asked for again: twice as long as a look-up may take
# So long an address is kept free for the host that was called, which may wait for a slot. Guess.
CALLED_S: Final = 5.0
# The fraction of the golden ratio: its multiples, modulo 1, are spread evenly, however many.
_GOLDEN: Final = 0.6180339887498949
_MOST_WAITING: Final = 100_000  # hosts in queues, 250 bytes each; others only have a place
# So long a borrower that was refused may come again: this process asks for the address meanwhile.
_WANTED_S: Final = 5.0
_LEAST_KEPT: Final = 1024  # groups, 300 bytes each, before those that are idle are dropped


def choose_address(found: Sequence[str], last: str, *, has_failed: bool = False) -> str:
    """Return which of the addresses *found*, of which there is at least one, a host is fetched
    from: *last*, as long as it is among them, and the one after it if it *has_failed*.

    Those of the family that the resolver put first come before the others. Of these all hosts
    begin with the least: so those with the same addresses are one group."""
    is_v6 = ":" in found[0]
    ordered = sorted(found, key=lambda ip: ((":" in ip) is not is_v6, ip))
    if last not in ordered:
        return ordered[0]
    return ordered[(ordered.index(last) + has_failed) % len(ordered)]


class LateAddresses:
    """Implements port.HostAddresses for a frontier that is opened before names can be looked up.
    Until then, and if they never can, no host has an address, and none waits for another."""

    def __init__(self) -> None:
        self._addresses: HostAddresses | None = None

    def answer_with(self, addresses: HostAddresses) -> None:
        """Return the addresses that *addresses* returns from now on."""
        self._addresses = addresses

    def addresses(self, host: HostKey) -> Sequence[str] | None:
        return () if self._addresses is None else self._addresses.addresses(host)


@dataclass(slots=True)
class AddressGroup:
    """The hosts of one address, as far as they wait for it."""

    address: str
    rest_until: float = 0.0
    open: int = 0  # leases that are not released: one, or more if hosts had waited too long
    queue: OrderedDict[HostKey, float] = field(default_factory=OrderedDict)
    """The hosts that wait, in the order of arrival, each with its place: from then on it waits for
    the others no longer."""
    called: HostKey | None = None  # the host that the address is kept free for
    called_until: float = 0.0
    arrivals: int = 0

    def is_free_for(self, host: HostKey, now: float) -> bool:
        is_kept = self.called not in (None, host) and now < self.called_until
        return not self.open and now >= self.rest_until and not is_kept

    def has_waited_enough(self, host: HostKey, now: float) -> bool:
        return now >= self.queue.get(host, inf)

    def next_place(self, now: float, longest_wait_s: float) -> float:
        """Return until when a host that comes now waits at the latest: between half of the bound
        and the bound, spread evenly, as hosts that came together must not go together."""
        self.arrivals += 1
        return now + longest_wait_s * (0.5 + 0.5 * (self.arrivals * _GOLDEN % 1.0))


@dataclass(frozen=True, slots=True)
class AddressUse:
    """What is done with an address now."""

    is_fetched_from: bool = False
    is_waited_for: bool = False
    rest_until: float = 0.0

    @property
    def is_any(self) -> bool:
        return self.is_fetched_from or self.is_waited_for


class AddressGroups:
    """The groups of a frontier, in memory as long as something is to be known of them."""

    def __init__(
        self,
        batch: WriteBatch,
        addresses: HostAddresses | None,
        longest_wait_s: float,
        leases: AddressLeases | None = None,
    ) -> None:
        """*addresses*: None if hosts do not wait for each other. *leases*: None if no other process
        fetches from the same addresses."""
        self._batch = batch
        self._leases = leases
        self._addresses = addresses
        self._longest_wait_s = longest_wait_s
        self._groups: dict[str, AddressGroup] = {}
        self._most_kept = _LEAST_KEPT
        self._waiting = 0  # hosts in queues
        self._unknown: set[HostKey] = set()  # hosts whose address is looked up
        self._wanted: dict[str, float] = {}  # until when borrowers wait for addresses
        self.put_backs = 0
        """How often a host came to its turn and had to wait for its address."""

    @property
    def are_any(self) -> bool:
        return self._addresses is not None

    def may_go(self, host: HostKey, record: HostRecord, now: float) -> bool:
        """Return whether *host*, whose rest is over, may be leased now; *record* has its address
        then. If not, *record* has until when it rests, at the latest."""
        assert self._addresses is not None
        found = self._addresses.addresses(host)
        if found is None:
            self._unknown.add(host)
            record.waits_for_address = True
            record.rest_until = now + LOOK_UP_S
            return False
        self._unknown.discard(host)
        address = choose_address(found, record.address) if found else ""
        if address != record.address:
            self._leave_queue(record.address, host)
            former = self._groups.get(record.address)
            if former is not None and former.called == host:
                former.called = None
            record.address = address
        if not address:
            return True
        group = self.of(address, host, now)
        if group.has_waited_enough(host, now):
            return True
        if self._may_use(address) and group.is_free_for(host, now):
            return True
        self.put_backs += 1
        record.waits_for_address = True
        place = group.queue.get(host)
        if place is None:
            place = group.next_place(now, self._longest_wait_s)
            if self._waiting < _MOST_WAITING:
                group.queue[host] = place
                self._waiting += 1
        record.rest_until = place
        return False

    def free_address(self, host: HostKey, record: HostRecord, now: float) -> str | None:
        """Return the address that *host* may be fetched from now, without waiting for others; empty
        if it has none. Returns None if there is one that is not free, or that is looked up. Nothing
        is changed but that one of which another process may have the use is asked for."""
        assert self._addresses is not None
        found = self._addresses.addresses(host)
        if not found:
            return None if found is None else ""
        address = choose_address(found, record.address)
        if not self._may_use(address):
            if len(self._wanted) >= _LEAST_KEPT:
                self._wanted = {each: at for each, at in self._wanted.items() if at > now}
            self._wanted[address] = now + _WANTED_S
            return None
        return address if self.of(address, host, now).is_free_for(host, now) else None

    def free_at(self, host: HostKey, record: HostRecord, now: float) -> float | None:
        """Return when to ask for `free_address` again, if that is known."""
        group = self._groups.get(record.address)
        if group is None or group.open or group.rest_until <= now:
            return None
        return group.rest_until

    def write_rest(self, address: str, host: HostKey, until: float) -> None:
        """Write that *address*, which is in use, rests until then: for a process that finds it so
        after a crash."""
        if address:
            self._batch.put(self._key(address, host), encode(AddressRecord(until)))

    def take(self, host: HostKey, record: HostRecord, now: float) -> str:
        """Note that *host* is leased, and return the address that it is fetched from; empty if it
        has none."""
        record.waits_for_address = False
        if record.address:
            group = self.of(record.address, host, now)
            group.open += 1
            if group.called == host:
                group.called = None
            self._leave_queue(record.address, host)
        return record.address

    def release(self, address: str, host: HostKey, rest_s: float, now: float) -> AddressGroup:
        """End a fetch of *host* from *address*, which rests for *rest_s*. Returns its group."""
        group = self.of(address, host, now)
        group.open -= 1
        self._rest(group, address, host, now + rest_s)
        return group

    def turn_to_next(self, host: HostKey, record: HostRecord) -> None:
        """Let *host*, whose fetch had no answer, be fetched from another of its addresses."""
        assert self._addresses is not None
        found = self._addresses.addresses(host)
        if found:
            record.address = choose_address(found, record.address, has_failed=True)

    def note_rest(self, address: str, host: HostKey, until: float, now: float) -> None:
        """Note that *address* rests until *until*: a process has left a fetch of *host* there."""
        self._rest(self.of(address, host, now), address, host, until)

    def take_in(self, key: bytes, packed: bytes, now: float) -> None:
        """Note the record of an address in a shard that is taken in."""
        if (until := decode_address(packed).rest_until) > now:
            address = keys.name_in_shard(key)
            group = self._groups.setdefault(address, AddressGroup(address))
            group.rest_until = max(group.rest_until, until)

    def leave(self, host: HostKey, record: HostRecord) -> AddressGroup | None:
        """Note that no URL of *host* waits any more. Returns the group that it waited for."""
        if not record.waits_for_address:
            return None
        record.waits_for_address = False
        self._leave_queue(record.address, host)
        group = self._groups.get(record.address)
        if group is not None and group.called == host:
            group.called = None
        return group

    def note_known(self, host: HostKey) -> bool:
        """Return whether *host* rested only until its name was looked up, which it is now."""
        is_unknown = host in self._unknown
        self._unknown.discard(host)
        return is_unknown

    def use_of(self, address: str, now: float) -> AddressUse:
        """Return what is done with *address* now."""
        group, is_wanted = self._groups.get(address), self._wanted.get(address, 0.0) > now
        if group is None:
            return AddressUse(is_waited_for=is_wanted)
        return AddressUse(group.open > 0, is_wanted or bool(group.queue), group.rest_until)

    def _may_use(self, address: str) -> bool:
        return self._leases is None or self._leases.may_use(address)

    def to_call(self, group: AddressGroup, now: float) -> Iterator[tuple[HostKey, float]]:
        """Yield, until one of them is called, the hosts that wait for *group*, the first one first,
        each with the time that it is called for. Those before it have ceased to wait."""
        if group.open or (group.called is not None and now < group.called_until):
            return
        if group.queue and not self._may_use(group.address):
            return
        at = max(group.rest_until, now)
        group.called = None
        while group.queue:
            host, place = next(iter(group.queue.items()))
            if place <= at:
                return  # it goes before, regardless
            group.called, group.called_until = host, at + CALLED_S
            if self._addresses is not None:
                self._addresses.addresses(host)  # so that its name is known by then
            yield host, at
            group.called = None
            self._pop(group, host)

    def get(self, address: str) -> AddressGroup | None:
        return self._groups.get(address)

    def of(self, address: str, host: HostKey, now: float) -> AddressGroup:
        """Return the group of *address*, as the shard of *host* has it."""
        group = self._groups.get(address)
        if group is None:
            if len(self._groups) >= self._most_kept:
                self._drop_idle(now)
            packed = self._batch.get(self._key(address, host))
            until = decode_address(packed).rest_until if packed else 0.0
            group = self._groups[address] = AddressGroup(address, until)
        return group

    def _rest(self, group: AddressGroup, address: str, host: HostKey, until: float) -> None:
        """Let *group* rest until *until*, and write that for the next owner of the shard of
        *host*."""
        group.rest_until = max(group.rest_until, until)
        if self._batch.has(self._batch.shards.of(host)):
            self._batch.put(self._key(address, host), encode(AddressRecord(until)))

    def _key(self, address: str, host: HostKey) -> bytes:
        return keys.in_shard(keys.ADDRESS, self._batch.shards.of(host), address)

    def _leave_queue(self, address: str, host: HostKey) -> None:
        group = self._groups.get(address)
        if group is not None and host in group.queue:
            self._pop(group, host)

    def _pop(self, group: AddressGroup, host: HostKey) -> None:
        del group.queue[host]
        self._waiting -= 1

    def _drop_idle(self, now: float) -> None:
        self._groups = {
            address: group
            for address, group in self._groups.items()
            if group.open or group.queue or group.rest_until > now
        }
        self._most_kept = max(_LEAST_KEPT, 2 * len(self._groups))
