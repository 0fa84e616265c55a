"""The parts of a crawl whose URLs are in a URL Frontier.

Rule: it is imported only in such a crawl: gRPC is an optional extra, and takes 0.1 s.
"""

from __future__ import annotations

import logging
from time import monotonic, time
from typing import Final

from crawler.assembly.parts import BaseParts, FrontierParts
from crawler.config.arguments import Arguments
from crawler.config.settings import Config
from crawler.data.local_stores import LocalClaims, LocalPatternStats, RobotsRecords
from crawler.data.operator_files import AUDIT, Audit, OperatorFiles, RulesFile
from crawler.duplicates.exact import HeldClaims, LocalDuplicates
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.near import LocalNearDuplicates
from crawler.model.choices import HostUnit, OnlyChoice
from crawler.model.clock import Clock
from crawler.model.types import Candidate, ConfigError
from crawler.model.url import fetch_form, host_key, registered_domain, split
from crawler.policy.operator_rules import read_rules
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.urlfrontier.remote_frontier import RemoteFrontier, RemoteHooks
from crawler.urlfrontier.remote_server import UrlFrontierAddress, UrlFrontierServer
from crawler.urlfrontier.remote_urls import Place

logger = logging.getLogger(__name__)

_FOUND_DEPTH: Final = 1  # of what another crawler has put: it is no seed of ours
_LOST: Final = (
    "URLs are in the URL Frontier at %s. It keeps no levels, cash or budgets of URLs, gives a host"
    " to one request at a time, counts rests in whole seconds and, unless it is ours, forgets them"
    " when it is restarted; a lease ends by its clock, and it takes late results, ours too if we"
    " cannot know that they are late; the end of the crawl is seen some seconds late. Commands that"
    " read the frontier do not work (docs/urlfrontier.md)"
)


def open_server(config: Config, arguments: Arguments | None) -> UrlFrontierServer:
    """Return the URL Frontier that the settings name, which has answered. Raises CrawlerError."""
    if config.politeness.host_unit is HostUnit.ADDRESS:
        raise ConfigError(
            "CRAWLER_HOST_UNIT=address needs a frontier in the data directory or in Redis: a URL"
            " Frontier (CRAWLER_FRONTIER_URL) knows no addresses"
        )
    if arguments is not None and arguments.only is not OnlyChoice.ALL:
        raise ConfigError(
            "-a only= needs a frontier in the data directory or in Redis: of a URL Frontier"
            " (CRAWLER_FRONTIER_URL) no waiting URLs can be chosen"
        )
    if arguments is not None and arguments.has_rounds:
        raise ConfigError(
            "rounds need a frontier in the data directory: leave out CRAWLER_FRONTIER_URL, which"
            " names a URL Frontier"
        )
    address = UrlFrontierAddress.parse(config.shared.url_frontier)
    server = UrlFrontierServer(address, config.shared.frontier_name)
    server.check()
    logger.warning(_LOST, server)
    return server


def remote_parts(base: BaseParts, server: UrlFrontierServer, rules: RulesFile) -> FrontierParts:
    """Build the parts of a crawl that leases from *server*."""
    config, store, data = base.config, base.store, base.data
    clock = Clock(time, monotonic)
    origins = base.allowed_origins(data.format.key_seed, clock.now())
    origins.set_operator_rules(read_rules(rules.read(), len(config.frontier.level_shares)))
    unit = config.politeness.host_unit

    def place_of(url: str) -> Place | None:
        if fetch_form(url) != url:
            return None
        name = split(url).hostname
        return Place(host_key(name, unit), registered_domain(name))

    def admit(url: str) -> Candidate | Refusal:
        hints = Hints(depth=_FOUND_DEPTH)
        return origins.admission.candidate(url, depth=_FOUND_DEPTH, hints=hints)

    frontier = RemoteFrontier(
        server,
        store,
        base.frontier_limits,
        base.lease_rules(origins, clock.now, are_kept=False),
        RemoteHooks(
            now=clock.now,
            free_slots=base.slots.free_slots,
            wake=base.lifecycle.wake,
            fail=base.lifecycle.fail,
            log=base.outcomes.append_all,
            count=base.stats.count,
            place_of=place_of,
            admit=admit,
            on_decided=base.stats.count_added,
        ),
    )
    pattern_stats = LocalPatternStats(store, config.patterns)
    origins.seed_limits.open(store)
    index = FingerprintIndex(store, data.path)
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        allowed_origins=origins,
        precheck=base.precheck(origins, RobotsRecords(store), pattern_stats, store),
        duplicates=LocalDuplicates(HeldClaims(LocalClaims(store), base.expired.has)),
        near_duplicates=LocalNearDuplicates(index, store, config.content.near_max_bits),
        put_back_count=0,
        operator_store=OperatorFiles(rules, Audit(data.path / AUDIT)),
        outcomes=frontier,
        remote=frontier,
    )
