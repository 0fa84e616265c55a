"""The table of metrics: bounded, by Prometheus' conventions, and read without a page's cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy.statscollectors import StatsCollector
from scrapy.utils.test import get_crawler

from crawler.assembly.crawl import Crawl
from crawler.engine.stats import CrawlStats, Histogram
from crawler.operate.metrics import METRICS, Metric, MetricType


def crawl(counted: dict[str, int]) -> Crawl:
    """As much of a crawl as its counters."""
    stats = CrawlStats(StatsCollector(get_crawler()))
    for key, count in counted.items():
        stats.count(key, count)
    return cast(Crawl, SimpleNamespace(stats=stats))


def metric(name: str) -> Metric:
    return next(each for each in METRICS if each.name == name)


# By metric: a counter of a known value of its label, and the beginning of the others.
LABELLED = {
    "answers_total": ("status/2xx", "status/"),
    "errors_total": ("error/status_503", "error/status_"),
    "refused_urls_total": ("refused/scheme", "refused/"),
    "rests_total": ("politeness/rest/gap", "politeness/rest/"),
}


@pytest.mark.parametrize("name", LABELLED)
def test_the_values_of_a_label_are_bounded_and_nothing_is_lost(name: str) -> None:
    """A web that thinks of new statuses, or a component of new reasons, makes one more value."""
    known, prefix = LABELLED[name]
    read = cast(Any, metric(name).read)
    alone = read(crawl({}))
    many = read(crawl({known: 3} | {f"{prefix}{number}zzz": 2 for number in range(500)}))
    assert set(alone.values()) == {0}, "each value is there from the start"
    assert many[known.rpartition("/")[2]] == 3
    assert many["other"] == 1000
    assert many.keys() == alone.keys() | {"other"}


def test_a_histogram_counts_each_value_in_its_class() -> None:
    counted = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        counted.observe(value)
    assert counted.counts == [2, 2, 1], "a bound is the largest value of its class"
    assert counted.sum == pytest.approx(8.65)


@pytest.mark.parametrize("one", METRICS, ids=lambda one: one.name)
def test_names_follow_the_conventions(one: Metric) -> None:
    assert one.name.endswith("_total") == (one.type is MetricType.COUNTER)
    if one.type is MetricType.HISTOGRAM:
        assert one.name.endswith("_seconds")
    assert one.meaning.endswith(".") and len(one.meaning) <= 90
