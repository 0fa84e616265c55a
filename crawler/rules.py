"""From the settings to the rules of each part.

Rule: one small function a part, so that no part knows the settings of another.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from publicsuffixlist import PSLFILE

from crawler.core.arguments import Arguments
from crawler.core.canonical import CanonicalRules, Rule
from crawler.core.choices import Scope as Scopes
from crawler.core.config import Config
from crawler.core.domains import digest_of_list
from crawler.core.version import VERSION
from crawler.policy.addresses import AddressRules
from crawler.policy.admission import AdmissionRules
from crawler.policy.calendars import CalendarRules
from crawler.policy.scope import Scope
from crawler.policy.traps import TrapRules
from crawler.scheduler.landing import LandingRules
from crawler.scheduler.rules import FrontierRules
from crawler.storage.redis.crawl_format import SUFFIXES
from crawler.storage.warc.writer import WarcRules

_NEVER: Final = 1 << 31


def in_force(config: Config) -> Config:
    """The settings as they count. In a replay no host is asked: none rests, none is given up, and
    none can be asked for a name that it cannot have. URLs and patterns have no budgets either: what
    these let pass depends on the order of arrival, which a replay does not repeat."""
    if not config.fetch.replay:
        return config
    politeness = replace(
        config.politeness,
        min_delay_s=0.0,
        max_delay_s=0.0,
        delay_factor=0.0,
        max_crawl_delay_s=0.0,
        max_retry_after_s=0.0,
        backoff_base_s=0.0,
        backoff_max_s=0.0,
        pause_after_failures=_NEVER,
    )
    return replace(
        config,
        politeness=politeness,
        content=replace(config.content, soft_404=False),
        limits=replace(config.limits, max_urls_per_domain=None, max_urls_per_host=None),
        budgets=replace(config.budgets, pattern_max_pages=None, pattern_barren_pages=None),
    )


def landing_rules(config: Config) -> LandingRules:
    return LandingRules(
        politeness=config.politeness,
        broken_retries=config.politeness.retries,
        broken_pause_s=config.politeness.backoff_max_s,
    )


def frontier_rules(config: Config, arguments: Arguments | None) -> FrontierRules:
    shares = config.frontier.level_shares
    scope = arguments.scope if arguments else Scopes.ANY
    return FrontierRules(
        level_shares=tuple(float(share) for share in shares),
        max_active_hosts=config.frontier.max_active_hosts,
        head_urls=config.frontier.head_urls,
        min_gap_s=config.politeness.min_delay_s,
        gap_factor=config.politeness.delay_factor,
        max_gap_s=config.politeness.max_delay_s,
        longest_fetch_s=config.fetch.total_timeout_s,
        max_rest_s=max(config.politeness.max_retry_after_s, config.politeness.max_crawl_delay_s)
        + config.politeness.pause_max_s,
        max_urls_per_domain=config.limits.urls_per_domain(scope),
        max_urls_per_host=config.limits.max_urls_per_host,
    )


def canonical_rules(config: Config) -> CanonicalRules:
    given = config.sameness
    chosen = {
        Rule.TRACKING: given.strip_tracking,
        Rule.SESSION: given.strip_session_ids,
        Rule.SORT: given.sort_query,
        Rule.SLASH: given.merge_trailing_slash,
        Rule.WWW: given.merge_www,
        Rule.HTTPS: given.merge_https,
    }
    return CanonicalRules(frozenset(rule for rule, is_on in chosen.items() if is_on))


def identity_of_urls(config: Config) -> tuple[str, ...]:
    """What the keys of a crawl are made with: it is fixed when the crawl begins."""
    return (*sorted(canonical_rules(config).on), f"unit={config.politeness.host_unit}")


def identity_of_shards(config: Config) -> tuple[str, ...]:
    """Of a shared crawl also the list that says which shard a host is in: with another, one host
    would be in two. In a data directory the list may be brought up to date at any time."""
    return (*identity_of_urls(config), f"{SUFFIXES}{list_digest()}")


@cache
def list_digest() -> str:
    """Of the public suffix list that is installed."""
    return digest_of_list(Path(PSLFILE).read_bytes())


def admission_rules(
    config: Config,
    arguments: Arguments,
    addresses: AddressRules,
    seeds: frozenset[str],
    key_seed: int,
    now: float,
) -> AdmissionRules:
    return AdmissionRules(
        addresses=addresses,
        key_seed=key_seed,
        scope=Scope(
            mode=arguments.scope,
            seeds=seeds,
            allow=arguments.allow,
            deny=arguments.deny,
            max_depth=arguments.max_depth,
            denied_types=frozenset(config.limits.deny_extensions),
        ),
        traps=TrapRules(
            max_url_chars=config.limits.max_url_length,
            max_path_segments=config.limits.max_path_segments,
        ),
        calendar=calendar_rules(config, now),
        canonical=canonical_rules(config),
        unit=config.politeness.host_unit,
    )


def calendar_rules(config: Config, now: float) -> CalendarRules:
    today = datetime.fromtimestamp(now, UTC).date()
    try:
        last = today + timedelta(days=config.budgets.calendar_ahead_days)
    except OverflowError:
        last = date.max
    until = (last.year, last.month, last.day)
    return CalendarRules(from_year=config.budgets.calendar_from_year, until=until)


def warc_rules(config: Config, folder: Path) -> WarcRules:
    machine = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    info = {
        "software": f"Gossamer/{VERSION}",
        "format": "WARC File Format 1.1",
        "robots": "obeyed (RFC 9309)",
        "http-header-user-agent": config.identity.user_agent,
        "operator": config.identity.contact,
    }
    return WarcRules(
        folder=folder,
        origin=f"{machine or 'host'}-{os.getpid()}",
        max_file_bytes=config.archive.warc_max_bytes,
        info=tuple((name, value) for name, value in info.items() if value),
    )
