"""Makes the rules of each part of a crawl from the settings.

Rule: one small function for each part, so that no part depends on the settings of another.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

from crawler.config.settings import Arguments, Config
from crawler.loop.loop import LoopLimits
from crawler.model.url import CanonicalRules, UrlRule
from crawler.policy.admission import AdmissionRules
from crawler.policy.scope import AddressRules, CalendarRules, NameSet, Scope, TrapRules

_NEVER: Final = 1 << 31


def effective_settings(config: Config) -> Config:
    """Return the effective settings. In a replay no host is contacted, so none rests, is given up
    or is probed. URLs and patterns have no budgets in it: what these admit depends on the order of
    arrival, which a replay does not repeat."""
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
        patterns=replace(config.patterns, pattern_max_pages=None, pattern_barren_pages=None),
    )


def loop_limits(config: Config) -> LoopLimits:
    return LoopLimits(
        politeness=config.politeness,
        total_timeout_s=config.fetch.total_timeout_s,
        max_redirects=config.limits.max_redirects,
        callback_retries=config.politeness.callback_retries,
        callback_pause_s=config.politeness.backoff_max_s,
    )


def canonical_rules(config: Config) -> CanonicalRules:
    sameness = config.urls
    by_rule = {
        UrlRule.TRACKING: sameness.strip_tracking,
        UrlRule.SESSION: sameness.strip_session_ids,
        UrlRule.SORT: sameness.sort_query,
        UrlRule.SLASH: sameness.merge_trailing_slash,
        UrlRule.WWW: sameness.merge_www,
        UrlRule.HTTPS: sameness.merge_https,
    }
    return CanonicalRules(frozenset(rule for rule, is_on in by_rule.items() if is_on))


def identity_of_urls(config: Config) -> tuple[str, ...]:
    """Return the settings that URL keys depend on, which are fixed when the crawl begins."""
    return (*sorted(canonical_rules(config).on), f"unit={config.politeness.host_unit}")


def admission_rules(
    config: Config,
    arguments: Arguments,
    addresses: AddressRules,
    seeds: NameSet,
    key_seed: int,
    now: float,
) -> AdmissionRules:
    return AdmissionRules(
        addresses=addresses,
        key_seed=key_seed,
        scope=Scope(
            mode=arguments.scope,
            units=seeds,
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
        last = today + timedelta(days=config.patterns.calendar_ahead_days)
    except OverflowError:
        last = date.max
    until = (last.year, last.month, last.day)
    return CalendarRules(from_year=config.patterns.calendar_from_year, until=until)
