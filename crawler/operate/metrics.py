"""The metrics of a crawl for Prometheus: their table, and the text that is scraped.

Rule: a page costs nothing here, because all figures are read when they are scraped. Label values
are of small fixed sets, and each is shown from the start, as 0; no host is named.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from crawler.assembly.crawl import Crawl
from crawler.data.changes import ConsumerWatch
from crawler.engine.stats import Histogram
from crawler.frontier.later import DAY_S, VisitPlan
from crawler.loop.outcome import FAILURES
from crawler.loop.visit import VisitResult
from crawler.model.counts import Counts
from crawler.model.types import VERSION
from crawler.page.challenge import SIGNATURES, Reception
from crawler.policy.pacing import PaceChange
from crawler.policy.politeness import STORM_NAME
from crawler.policy.refusal import Reason
from crawler.policy.rendering import LeftOut, RenderReason
from crawler.policy.rounds import RoundProgress

PREFIX: Final = "gossamer_"
OTHER: Final = "other"
"""The label of all values that are not of the fixed set: of user's own components, say."""

Value = float | Mapping[str, float] | Histogram | None
"""One figure, one for each value of the label, a histogram; None: this crawl has no such figure."""


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Of(StrEnum):
    """What a figure is about. Workers of a shared crawl have equal figures of the crawl."""

    WORKER = "worker"
    CRAWL = "crawl"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    type: MetricType
    name: str  # without PREFIX, with the suffixes that Prometheus' conventions ask for
    meaning: str
    read: Callable[[Crawl], Value]
    label: str = ""
    of: Of = Of.WORKER

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


def _stat(key: str) -> Callable[[Crawl], Value]:
    return lambda crawl: crawl.stats.counters[key]


def _each(**keys: str) -> Callable[[Crawl], Value]:
    """Read some counters, by values of a label."""
    return lambda crawl: {value: crawl.stats.counters[key] for value, key in keys.items()}


def _stats(prefix: str, known: Iterable[str]) -> Callable[[Crawl], Value]:
    """Read the counters that begin with *prefix*; those beside *known* are one."""
    names = dict.fromkeys(known, 0.0)

    def read(crawl: Crawl) -> Value:
        found = dict(names)
        for key, count in crawl.stats.counters.items():
            if key.startswith(prefix):
                name = key.removeprefix(prefix)
                name = name if name in names else OTHER
                found[name] = found.get(name, 0.0) + count
        return found

    return read


def _counts(crawl: Crawl) -> Counts | None:
    """Return the counts of the frontier, or None as long as a worker has not read them."""
    counts = crawl.leases.frontier.counts()
    return counts if counts.seen or crawl.leases.shared is None else None


def _frontier_urls(crawl: Crawl) -> Value:
    counts = _counts(crawl)
    if counts is None:
        return None
    states = ("waiting", "later", "leased", "undecided", "dead", "refused", "capped")
    found = {state: getattr(counts, state) for state in states}
    return {**found, "spilled": counts.spilled - counts.capped}


def _waiting(crawl: Crawl) -> Value:
    levels = crawl.leases.frontier.counts().levels
    return {str(level): urls for level, urls in enumerate(levels)} or None


def _hosts(crawl: Crawl) -> Value:
    embedded, paused = crawl.leases.embedded, crawl.loop.precheck.paused_hosts
    if embedded is None:
        return {"paused": paused}
    counts = embedded.frontier.host_counts()
    active = crawl.leases.frontier.counts().hosts_active
    return {"active": active, "resting": counts.resting, "due": counts.due, "paused": paused}


def _visit_plan(crawl: Crawl) -> VisitPlan | None:
    frontier = crawl.leases.own_frontier
    return frontier.visit_plan() if frontier is not None else None


def _front_hosts(crawl: Crawl) -> Value:
    embedded = crawl.leases.embedded
    if embedded is None:
        return None
    return {str(n): hosts for n, hosts in enumerate(embedded.frontier.host_counts().front)}


def _merge_lag_s(crawl: Crawl) -> Value:
    embedded = crawl.leases.embedded
    return embedded.frontier.undecided_s(crawl.leases.clock.now()) if embedded else None


def _sync_lag_s(crawl: Crawl) -> Value:
    commits = crawl.storage.archive.group_commit
    return commits.lag_s() if commits is not None else None


def _undelivered_bytes(crawl: Crawl) -> Value:
    delivery = crawl.storage.archive.delivery
    return delivery.figures.waiting_bytes if delivery is not None else None


def _changes(read: Callable[[ConsumerWatch], float]) -> Callable[[Crawl], Value]:
    def value(crawl: Crawl) -> Value:
        consumers = crawl.storage.consumers
        return read(consumers) if consumers is not None else None

    return value


def _unsent_changes(crawl: Crawl) -> Value:
    shared = crawl.leases.shared
    return shared.changes.unsent if shared is not None and shared.changes is not None else None


def _workers(crawl: Crawl) -> Value:
    if crawl.leases.shared is None:
        return None
    seen = crawl.leases.shared.membership
    return {"live": seen.live, "starting": seen.starting, "silent": seen.silent_count}


def _is_paused(crawl: Crawl) -> Value:
    operator = crawl.selection.allowed_origins.operator
    return float(operator.paused_until(crawl.leases.clock.now()) is not None)


def _disk_bytes(crawl: Crawl) -> Value:
    disk = os.statvfs(crawl.storage.data.path)
    return {"free": disk.f_bavail * disk.f_frsize, "size": disk.f_blocks * disk.f_frsize}


_RESTS: Final = ("gap", "crawl-delay", "easing", "backoff", "retry-after", "pause", "challenge")
CHALLENGES: Final = (
    *dict.fromkeys(row.name for row in SIGNATURES if row.reception is Reception.NOT_WELCOME),
    STORM_NAME,
)
"""Those of a user's own table are OTHER."""
_counter = partial(Metric, MetricType.COUNTER)
_gauge = partial(Metric, MetricType.GAUGE)
_histogram = partial(Metric, MetricType.HISTOGRAM)

METRICS: Final = (
    _gauge("build_info", "1, with the version.", lambda _: {VERSION: 1}, "version", of=Of.CRAWL),
    _counter("pages_total", "Answers that were kept, whatever their status.", _stat("pages")),
    _counter("body_bytes_total", "Bytes of bodies, as they crossed the wire.", _stat("bytes")),
    _counter(
        "answers_total",
        "Answers by class of their status; redirects and failed tries among them.",
        _stats("status/", ("1xx", "2xx", "3xx", "4xx", "5xx")),
        "class",
    ),
    _counter(
        "revisits_total",
        "Visits of pages that were visited before, by what they found.",
        _stats("revisits/result/", tuple(VisitResult)),
        "result",
    ),
    _gauge(
        "revisit_pages",
        "Pages that wait for their next visit.",
        lambda crawl: counts.again if (counts := _counts(crawl)) else None,
        of=Of.CRAWL,
    ),
    _gauge(
        "revisit_budget",
        "Visits a day of pages without a date for the next one (of this worker's hosts).",
        lambda crawl: plan.visits_per_day if (plan := _visit_plan(crawl)) else None,
    ),
    _gauge(
        "revisit_worth_seconds",
        "For how much longer a copy must be fresh by its visit to be due.",
        lambda crawl: plan.worth * DAY_S or None if (plan := _visit_plan(crawl)) else None,
    ),
    _gauge(
        "fresh_share",
        "Share of copies that are as the page is, as estimated by the latest 2,000 visits.",
        lambda crawl: crawl.stats.copies.fresh,
    ),
    _gauge(
        "copy_age_seconds",
        "Time since the last visit of a page, in the mean, by the same visits.",
        lambda crawl: crawl.stats.copies.age_s,
    ),
    _counter(
        "not_modified_total",
        "Later visits of pages that have not changed, as their hosts said (status 304).",
        _stat("revisits/not_modified"),
    ),
    _counter(
        "condition_faults_total",
        "Hosts that deny that pages have changed, so they are not asked, or send them anyway.",
        _each(denies="revisits/denies", repeats="revisits/repeats"),
        "fault",
    ),
    _counter(
        "errors_total",
        "Tries that failed, of pages and of robots.txt, by kind, as in summary.json.",
        _stats("error/", FAILURES),
        "reason",
    ),
    _counter(
        "duplicates_total",
        "Pages whose content (exact), or nearly their text (near), was stored before.",
        _each(exact="duplicates", near="near_duplicates"),
        "kind",
    ),
    _counter(
        "rendered_pages_total",
        "Pages of which a browser has run the scripts, by why.",
        _stats("render/because/", RenderReason),
        "reason",
    ),
    _counter(
        "rendered_paid_total",
        "Of these, pages with more text or links than they were sent with.",
        _stat("render/paid"),
    ),
    _counter(
        "rendered_links_total",
        "Links that these have and were not sent with.",
        _stat("render/links"),
    ),
    _counter(
        "rendered_chars_total",
        "Characters of text that these have and were not sent with.",
        _stat("render/chars"),
    ),
    _counter(
        "rendered_less_total",
        "Of these, pages with less than they were sent with, and that are kept as they were sent.",
        _stat("render/less"),
    ),
    _counter(
        "render_failed_total",
        "Pages that a browser could not make, and that are kept as they were sent.",
        _stat("render/failed"),
    ),
    _counter(
        "render_seconds_total",
        "Time of work at pages in the browser; two at once count twice.",
        lambda crawl: crawl.stats.counters["render/ms"] / 1_000,
    ),
    _counter(
        "render_requests_total",
        "Requests that were sent for what pages need while they are rendered.",
        _stat("render/requests"),
    ),
    _counter(
        "render_left_out_total",
        "What such pages asked for and was not fetched, by why.",
        _stats("render/left_out/", LeftOut),
        "reason",
    ),
    _counter(
        "links_total",
        "Links to URLs: new, seen before, over a budget; of the new ones, released by a budget.",
        _stats("links/", ("new", "seen", "over_budget", "released")),
        "result",
    ),
    _counter(
        "refused_urls_total",
        "Links, seeds and redirects that a rule refused, by rule, as in summary.json.",
        _stats("refused/", (*Reason, "unstorable")),
        "rule",
    ),
    _counter(
        "rests_total",
        "Rests that hosts were given, by what made them as long as they were.",
        _stats("politeness/rest/", _RESTS),
        "reason",
    ),
    _counter(
        "pace_changes_total",
        "Times a host was asked faster or slower from then on, or less often as it refused.",
        _stats("politeness/pace/", tuple(PaceChange)),
        "change",
    ),
    _counter(
        "hosts_given_up_total",
        "Times a host was given up after failing for hours.",
        _stat("politeness/given_up"),
    ),
    _counter(
        "challenges_total",
        "Answers in which a host, or a guard before it, refused robots, by signature.",
        _stats("challenge/", CHALLENGES),
        "signature",
    ),
    _counter(
        "hosts_left_total",
        "Times a host was left, as it does not welcome us.",
        _stat("politeness/left"),
    ),
    _counter(
        "robots_fetches_total",
        "Requests for a robots.txt that were answered or failed.",
        _stat("robots/fetched"),
    ),
    _counter(
        "robots_failures_total",
        "Those of them that failed: no answer, or a status such as 503.",
        _stat("robots/failed"),
    ),
    _counter(
        "robots_unfetched_urls_total",
        "URLs not fetched, as robots.txt forbids it, or there was none to be had.",
        _each(disallowed="robots/disallowed", unreachable="robots/unreachable"),
        "reason",
    ),
    _counter(
        "dns_lookups_total",
        "Questions to the name servers: names found, absent, or no answer (failed).",
        _stats("dns/", ("found", "absent", "failed")),
        "result",
    ),
    _histogram("dns_lookup_seconds", "How long these took.", lambda crawl: crawl.stats.dns_s),
    _counter(
        "dns_names_total",
        "Names that connections needed: known, known and beyond their TTL (stale), or waited for.",
        _each(cached="names/cached", stale="names/stale", waited="names/waited"),
        "source",
    ),
    _counter(
        "dns_prefetches_total",
        "Names looked up before the turn of their hosts.",
        _stat("names/prefetched"),
    ),
    _counter(
        "dns_shared_total",
        "Names of which another worker had asked the name servers (CRAWLER_SHARE_NAMES).",
        _stat("names/shared"),
    ),
    _counter(
        "dns_unshared_total",
        "Names looked up all the same: Redis was silent, or what it had is refused (disbelieved).",
        _each(unanswered="names/unanswered", disbelieved="names/disbelieved"),
        "reason",
    ),
    _counter(
        "dns_evictions_total",
        "Names dropped, as more than 65,536 were known.",
        _stat("names/evicted"),
    ),
    _histogram(
        "fetch_seconds",
        "How long fetches took, of pages, robots.txt and probes.",
        lambda crawl: crawl.stats.fetch_s,
    ),
    _histogram(
        "gap_over_due_seconds",
        "From the end of a host's rest to the next request to it; what is 0 or less was too early.",
        lambda crawl: crawl.stats.gap_over_due_s,
    ),
    _histogram(
        "verdict_seconds",
        "From the end of the fetch of a page to its verdict: parsing, archive, links, sync.",
        lambda crawl: crawl.stats.verdict_s,
    ),
    _gauge(
        "frontier_urls",
        "URLs by state. undecided: perhaps new; spilled, capped: over a budget of a round, in all.",
        _frontier_urls,
        "state",
        of=Of.CRAWL,
    ),
    _gauge(
        "frontier_waiting_urls",
        "Those that wait, by level.",
        _waiting,
        "level",
        of=Of.CRAWL,
    ),
    _counter(
        "frontier_seen_urls_total",
        "URLs ever admitted, in all runs.",
        lambda crawl: counts.seen if (counts := _counts(crawl)) else None,
        of=Of.CRAWL,
    ),
    _gauge(
        "spilled_domains",
        "Registered domains with URLs that wait for a budget.",
        lambda crawl: counts.spilled_domains if (counts := _counts(crawl)) else None,
        of=Of.CRAWL,
    ),
    _counter(
        "sampled_out_urls_total",
        "URLs over a budget that were not kept, in all runs.",
        lambda crawl: counts.sampled_out if (counts := _counts(crawl)) else None,
        of=Of.CRAWL,
    ),
    _counter(
        "frontier_done_urls_total",
        "URLs finished, in all runs.",
        lambda crawl: counts.done if (counts := _counts(crawl)) else None,
        of=Of.CRAWL,
    ),
    _gauge(
        "front_hosts",
        "Hosts that wait for their turn, by the level of their best URL, about.",
        _front_hosts,
        "level",
    ),
    _gauge(
        "hosts",
        "Hosts in memory (active), of these at rest or due, about; those that rest for a pause.",
        _hosts,
        "state",
    ),
    _gauge("fetches", "Fetches under way.", lambda crawl: len(crawl.loop.slots)),
    _gauge(
        "slow_fetches",
        "Those of them that only wait for their hosts.",
        lambda crawl: crawl.loop.slots.slow_count,
    ),
    _gauge("paused", "1 while an operator has paused the crawl.", _is_paused, of=Of.CRAWL),
    _gauge(
        "unrecorded_pages",
        "Lag of the archive: pages fetched whose record is not written yet.",
        lambda crawl: crawl.loop.lives.unrecorded,
    ),
    _gauge(
        "sync_lag_seconds",
        "For how long the oldest page waits for the disk to be synced.",
        _sync_lag_s,
    ),
    _gauge(
        "merge_lag_seconds",
        "For how long, at most, undecided URLs have waited for a search whether they are new.",
        _merge_lag_s,
    ),
    _gauge(
        "undelivered_bytes",
        "Bytes of finished files that wait for the object store.",
        _undelivered_bytes,
    ),
    _counter(
        "changes_total",
        "Number of the last entry of the change feed, of all runs (CRAWLER_CHANGES).",
        _changes(lambda consumers: consumers.feed.last),
    ),
    _gauge(
        "changes_lag",
        "Entries that the consumer furthest behind has not taken.",
        _changes(lambda consumers: consumers.lag),
    ),
    _gauge(
        "changes_unsent",
        "Entries in this worker's files that are not in the feed of all workers yet.",
        _unsent_changes,
    ),
    _gauge(
        "changes_waiting",
        "1 while nothing is fetched, as a consumer is too far behind (CRAWLER_CHANGES_MAX_LAG).",
        _changes(lambda consumers: consumers.is_behind),
    ),
    _gauge(
        "round",
        "Number of the round; 0: the run has none (-a round=).",
        lambda crawl: round_of(crawl).number,
    ),
    _gauge(
        "round_urls",
        "URLs that were leased in the round so far, by this worker.",
        lambda crawl: round_of(crawl).leased,
    ),
    _gauge(
        "redis_lag_seconds",
        "Time since all of Redis last answered this worker, which asks once a second.",
        lambda crawl: crawl.leases.shared.lag_s() if crawl.leases.shared else None,
    ),
    _gauge(
        "outbox_links",
        "Links on the worker's disk that Redis could not take yet.",
        lambda crawl: crawl.leases.shared.unsent_links() if crawl.leases.shared else None,
    ),
    _gauge(
        "workers",
        "Workers that are live, of these starting; silent: died, or have left links on a disk.",
        _workers,
        "state",
        of=Of.CRAWL,
    ),
    _histogram(
        "loop_lag_seconds",
        "By how much the event loop is late, looked at four times a second.",
        lambda crawl: crawl.stats.loop_s,
    ),
    _gauge(
        "body_memory_bytes",
        "Memory of bodies in flight.",
        lambda crawl: crawl.fetching.body_memory.used_bytes,
    ),
    _gauge(
        "disk_bytes",
        "The disk of the data directory: its size, and what is free.",
        _disk_bytes,
        "part",
    ),
)


_NO_ROUND: Final = RoundProgress(0, 0, is_over=False, ended=())


def round_of(crawl: Crawl) -> RoundProgress:
    """Return where *crawl* is in its rounds."""
    return crawl.leases.frontier.round_progress() or _NO_ROUND


class CrawlCollector(Collector):
    """Reads the table when it is scraped."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        shared = self._crawl.leases.shared
        worker = shared.worker if shared is not None else ""
        for metric in METRICS:
            value = metric.read(self._crawl)
            if isinstance(value, Histogram):
                family = HistogramMetricFamily(metric.full_name, metric.meaning, labels=["worker"])
                family.add_metric([worker], _cumulative(value), value.sum)
                yield family
            elif value is not None:
                yield _family(metric, value, worker)


def _family(
    metric: Metric, value: float | Mapping[str, float], worker: str
) -> CounterMetricFamily | GaugeMetricFamily:
    make = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
    if not isinstance(value, Mapping):
        family = make(metric.full_name, metric.meaning, labels=["worker"])
        family.add_metric([worker], value)
        return family
    family = make(metric.full_name, metric.meaning, labels=["worker", metric.label])
    for name, each in value.items():
        family.add_metric([worker, name], each)
    return family


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    pairs, total = [], 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        total += count
        pairs.append((str(bound), float(total)))
    return pairs


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # of what is scraped


def exposition_of(crawl: Crawl) -> Callable[[], bytes]:
    """Return what makes the text that Prometheus scrapes, in 2 ms: the metrics of *crawl*, and
    those of its process that prometheus_client has: memory, processor time, open files."""
    registry = CollectorRegistry()
    registry.register(CrawlCollector(crawl))
    ProcessCollector(registry=registry)
    return partial(generate_latest, registry)


async def measure_loop(late: Histogram) -> None:
    """Observe, for ever, by how much the event loop is *late*."""
    while True:
        began_at = monotonic()
        await asyncio.sleep(_LOOK_S)
        late.observe(monotonic() - began_at - _LOOK_S)


_LOOK_S: Final = 0.25
