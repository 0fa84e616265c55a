"""Ends a crawl of which only hosts are left that have never answered: see policy/silent_hosts.py.

Rule: their URLs are leased and become dead letters as others do, so that errbacks are called and
outcomes are logged. In a shared crawl no worker knows what is left of the others, so there such
hosts have their pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from crawler.assembly.crawl import Crawl
from crawler.crawl.in_flight import Fetch
from crawler.crawl.precheck import Skip
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Dead, HostKey, Purpose, StoreUnavailable
from crawler.policy.silent_hosts import (
    NEVER_ANSWERED,
    UPLINK_PROBE_S,
    UPLINK_WAIT_S,
    SilentHosts,
)

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
_SLICE: Final = 1000  # hosts looked at in one turn of the event loop


def given_up(fetch: Fetch, silent: SilentHosts) -> Skip | None:
    """Return the end of *fetch*, for which no request is sent, if its host is given up."""
    candidate = fetch.lease.candidate
    error = silent.given_up(candidate.host, fetch.lease.pace)
    if not error or candidate.purpose is not Purpose.PAGE:
        return None
    fetch.purpose = Purpose.PAGE
    reason = f"{NEVER_ANSWERED}{error}"
    return Skip(Dead(reason), reason)


async def give_up_silent_hosts(crawl: Crawl, frontier: TwoTierFrontier) -> None:
    """Give up the hosts that are silent whenever nothing else is left, until cancelled."""
    silent, clock = crawl.fetching.silent_hosts, crawl.leases.clock
    silent.begin(clock.now())
    while True:
        await asyncio.sleep(LOOK_S)
        if silent.are_given_up:
            if not frontier.counts().left:
                silent.end_giving_up()
            continue
        if not silent.is_due(clock.now(), crawl.stats.heard_at) or not _is_idle(crawl):
            continue
        try:
            if not await _are_silent(crawl, frontier) or not await _is_uplink_up(crawl, frontier):
                continue
            silent.give_up()
            logger.warning(
                "All that is left are hosts that have never answered. They are given up:"
                " scrapy frontier dead lists their URLs"
            )
            await _end_rests(crawl, frontier)
        except StoreUnavailable as error:
            crawl.lifecycle.fail(error)
            return


def _is_idle(crawl: Crawl) -> bool:
    """Return whether nothing is fetched, and nothing but the rests of hosts is waited for."""
    now, origins = crawl.leases.clock.now(), crawl.selection.allowed_origins
    return (
        not len(crawl.leases.in_flight)
        and origins.is_complete
        and origins.operator.paused_until(now) is None
        and not crawl.fetching.uplink.is_down(now)
        and not crawl.lifecycle.has_start_requests
        and not crawl.lifecycle.is_stopping
    )


async def _are_silent(crawl: Crawl, frontier: TwoTierFrontier) -> bool:
    """Return whether all that is left are hosts that have failed in this run and never answered."""
    for number, left in enumerate(frontier.hosts_left()):
        if left is None or not crawl.fetching.silent_hosts.has_failed(left[0]):
            return False
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    return _is_idle(crawl)


async def _end_rests(crawl: Crawl, frontier: TwoTierFrontier) -> None:
    """Let the hosts that are left be leased at once."""
    for rests in _slices(frontier):
        frontier.end_rests(rests, crawl.leases.clock.now())
        crawl.lifecycle.wake()
        await asyncio.sleep(0)


def _slices(frontier: TwoTierFrontier) -> Iterator[dict[HostKey, float]]:
    rests = dict(filter(None, frontier.hosts_left()))
    names = list(rests)
    for at in range(0, len(names), _SLICE):
        yield {name: rests[name] for name in names[at : at + _SLICE]}


async def _is_uplink_up(crawl: Crawl, frontier: TwoTierFrontier) -> bool:
    """Return whether it is not our own connection that is down. Probes it if it may be, waits for
    it if it is, and ends the crawl if that takes too long."""
    silent, clock = crawl.fetching.silent_hosts, crawl.leases.clock
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
        await _wait_for_uplink(crawl, frontier, clock.now() + UPLINK_WAIT_S)
    finally:
        silent.wait_for("")
    return False


async def _wait_for_uplink(crawl: Crawl, frontier: TwoTierFrontier, until: float) -> None:
    silent, clock = crawl.fetching.silent_hosts, crawl.leases.clock
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
            await _end_rests(crawl, frontier)
            return
