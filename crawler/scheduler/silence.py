"""Ends a crawl of which only hosts are left that have never answered: see policy/silent_hosts.py.

Rule: their URLs are leased and become dead letters as others do, so that errbacks are called and
outcomes are logged. In a shared crawl each worker gives up those that it has tried; it sees only
some hundred hosts, so if more are left, they have their pauses.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from crawler.assembly.crawl import Crawl
from crawler.model.program import PROGRAM
from crawler.model.types import HostKey, StoreUnavailable
from crawler.policy.silent_hosts import (
    UPLINK_PROBE_S,
    UPLINK_WAIT_S,
)

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
_SLICE: Final = 1000  # hosts looked at in one turn of the event loop
_MOST_SHARED: Final = 100  # hosts of a shared crawl that are looked at
_READ_S: Final = 3.0  # until they have been read from Redis since they were asked for
_CLOCKS_DIFFER_S: Final = 2.0  # those of a server and of this machine


async def give_up_silent_hosts(crawl: Crawl) -> None:
    """Give up the hosts that are silent whenever nothing else is left, until cancelled."""
    silent, clock = crawl.loop.silent_hosts, crawl.leases.clock
    if not _ends_by_itself(crawl):
        return
    silent.begin(clock.now())
    while True:
        await asyncio.sleep(LOOK_S)
        if silent.are_given_up and not crawl.leases.frontier.counts().left:
            silent.end_giving_up()
        is_due = silent.are_given_up or silent.is_due(clock.now(), crawl.stats.heard_at)
        if not is_due or not _is_idle(crawl):
            continue
        try:
            rests = await _rests_of_silent(crawl)
            if rests and silent.are_given_up:
                await _end_rests(crawl, rests)  # of fetches that were under way
                continue
            is_left = rests or len(crawl.loop.lives)
            if rests is None or not is_left or not await _is_uplink_up(crawl):
                continue
            silent.give_up()
            logger.warning(
                "All that is left are hosts that have never answered. They are given up:"
                " %s frontier dead lists their URLs",
                PROGRAM,
            )
            await _end_rests(crawl, rests)
        except StoreUnavailable as error:
            crawl.lifecycle.fail(error)
            return


def _is_idle(crawl: Crawl) -> bool:
    """Return whether nothing is fetched but from silent hosts, and nothing but the rests of hosts
    is waited for."""
    now, origins = crawl.leases.clock.now(), crawl.selection.allowed_origins
    return (
        crawl.loop.waits_for_silent_hosts()
        and origins.is_complete
        and origins.operator.paused_until(now) is None
        and not crawl.storage.waits_for_consumer
        and not crawl.loop.uplink.is_down(now)
        and not crawl.lifecycle.has_start_requests
        and not crawl.lifecycle.is_stopping
    )


def _ends_by_itself(crawl: Crawl) -> bool:
    """Return whether no URL is pushed from outside, for which the crawl would stay open."""
    arguments = crawl.settings.arguments
    if crawl.leases.shared is None:
        return True
    return arguments is not None and not arguments.has_pushed_seeds


async def _rests_of_silent(crawl: Crawl) -> dict[HostKey, float] | None:
    """Return the hosts that are left, with the ends of their rests, if all of them have failed and
    have never answered; else None."""
    embedded = crawl.leases.embedded
    if embedded is None:
        return await _rests_in_redis(crawl)
    rests: dict[HostKey, float] = {}
    for number, left in enumerate(embedded.frontier.hosts_left()):
        if left is None or not crawl.loop.may_give_up_silent(left[0]):
            return None
        rests[left[0]] = left[1]
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    return rests if _is_idle(crawl) else None


async def _rests_in_redis(crawl: Crawl) -> dict[HostKey, float] | None:
    """Return as `_rests_of_silent`, but of the hosts that are left only those that this worker has
    tried."""
    frontier = crawl.leases.frontier
    frontier.longest_hosts(_MOST_SHARED)
    await asyncio.sleep(_READ_S)
    hosts, counts = frontier.longest_hosts(_MOST_SHARED), frontier.counts()
    if counts.left != counts.waiting or sum(each.waiting for each in hosts) < counts.waiting:
        return None
    if any(each.is_leased or each.pace.has_sent or not each.pace.failures for each in hosts):
        return None
    tried = (each for each in hosts if crawl.loop.may_give_up_silent(each.host))
    rests = {each.host: each.rest_until + _CLOCKS_DIFFER_S for each in tried}
    return rests if _is_idle(crawl) else None


async def _end_rests(crawl: Crawl, rests: dict[HostKey, float]) -> None:
    """Let the hosts be leased at once."""
    names = list(rests)
    for at in range(0, len(names), _SLICE):
        some = {name: rests[name] for name in names[at : at + _SLICE]}
        crawl.leases.frontier.end_rests(some, crawl.leases.clock.now())
        crawl.lifecycle.wake()
        await asyncio.sleep(0)


async def _is_uplink_up(crawl: Crawl) -> bool:
    """Return whether it is not our own connection that is down. Probes it if it may be, waits for
    it if it is, and ends the crawl if that takes too long."""
    silent, clock = crawl.loop.silent_hosts, crawl.leases.clock
    if crawl.stats.heard_at or not silent.may_be_ours:
        return True
    logger.warning(
        "No host has answered yet, and each fails by its name or its connection: our own"
        " connection is probed"
    )
    silent.wait_for("our own connection, which is probed")
    try:
        if silent.are_inside or await silent.probe():
            logger.warning("Our own connection is not the reason")
            return True
        if crawl.leases.shared is None:  # else workers on other machines may go on
            await _wait_for_uplink(crawl, clock.now() + UPLINK_WAIT_S)
    finally:
        silent.wait_for("")
    return False


async def _wait_for_uplink(crawl: Crawl, until: float) -> None:
    silent, clock = crawl.loop.silent_hosts, crawl.leases.clock
    logger.warning(
        "Our own connection is down: no name server answers. It is probed every %g s",
        UPLINK_PROBE_S,
    )
    silent.wait_for("our own connection, which is down: no name server answers")
    while not crawl.stats.heard_at:
        if clock.now() >= until:
            crawl.lifecycle.stop("no_uplink")
            return
        await asyncio.sleep(UPLINK_PROBE_S)
        if await silent.probe():
            logger.warning("Our own connection is up again: all hosts are tried at once")
            silent.begin(clock.now())
            await _end_rests(crawl, await _rests_of_silent(crawl) or {})
            return
