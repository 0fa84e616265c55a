"""When a crawl ends: numbers by table and against simulated crawls, words by what came before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import log
from random import Random
from statistics import mean
from time import monotonic, time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from crawler.config.settings import PolitenessSettings
from crawler.frontier.hosts import LongestHosts
from crawler.frontier.records import HostRecord, QueueEnds
from crawler.model.clock import Clock
from crawler.model.counts import Counts, Figures
from crawler.model.types import Answer, HostKey, HostWork, Pace
from crawler.policy.forecast import Forecast, forecast, spans_left
from crawler.policy.politeness import next_rest
from crawler.report.end_forecast import (
    EVERY_S,
    LAST_FETCHES,
    CrawlMoment,
    EndForecast,
    WorkAhead,
    clock,
)
from crawler.report.progress import end_of

RULES = PolitenessSettings(paced_share=1 / 11)  # ten times a fetch, however fast a server stays
PACED = PolitenessSettings()
QUICK = Pace(gap_s=1.0, fetches=64, log_fetch_s=log(0.03), log_variance=0.0)
USUAL = Pace(gap_s=1.0, fetches=64, log_fetch_s=log(0.085), log_variance=0.25)
NOON = 1_000_000_000.0


def work(
    waiting: int, pace: Pace = QUICK, host: str = "a", rest_until: float = 0.0, leased: bool = False
) -> HostWork:
    return HostWork(HostKey(host), waiting, rest_until, pace, leased)


def told(
    hosts: Sequence[HostWork],
    growth: float = 0.0,
    sample: Sequence[Pace] = (),
    rules: PolitenessSettings = RULES,
    now: float = 0.0,
) -> Forecast:
    found = forecast(hosts, lambda _: rules, now, growth, sample)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("hosts", "seconds", "last", "cycle_s"),
    [
        pytest.param([work(3_100)], 3_100 * 1.03 - 1, "a", 1.03, id="the shortest rest"),
        pytest.param([work(1)], 0.03, "a", 1.03, id="no rest after the last one"),
        pytest.param([work(10, leased=True)], 11 * 1.03 - 1, "a", 1.03, id="one is under way"),
        pytest.param([work(10, rest_until=90.0)], 90 + 9.3, "a", 1.03, id="a long rest first"),
        pytest.param(
            [
                work(9_000),
                work(1_000, Pace(1.0, 0, 0, 20.0, fetches=9, log_fetch_s=log(0.03)), "b"),
            ],
            1_000 * 20.03 - 20,
            "b",
            20.03,
            id="a Crawl-delay outlasts nine times as many URLs",
        ),
        pytest.param([work(80, USUAL)], 104.0, "a", 1.31, id="the spread makes rests longer"),
        pytest.param(
            [work(100), work(300, Pace(), "new")], 301 * 1.03, "new", 1.03, id="a new host is usual"
        ),
        pytest.param(
            [work(10, Pace(64.0, fetches=64, log_fetch_s=log(0.03)))],
            10 * 0.03 + 21 + 14.7 + 10.29 + 7.203 + 5.042 + 3.529 + 2.47 + 1.729 + 1.21,
            "a",
            1.03,
            id="a long rest eases",
        ),
    ],
)
def test_the_last_host(hosts: list[HostWork], seconds: float, last: str, cycle_s: float) -> None:
    found = told(hosts)
    assert found.seconds == pytest.approx(seconds, rel=0.02)
    assert (found.host, found.cycle_s) == (last, pytest.approx(cycle_s, rel=0.02))


def test_nothing_is_told_of_nothing() -> None:
    assert forecast([work(5, Pace())], lambda _: RULES, 0.0) is None
    assert forecast([], lambda _: RULES, 0.0, 0.0, [QUICK]) is None


def test_what_each_host_takes_is_as_the_end_says() -> None:
    hosts = [work(100), work(0, host="b"), work(10, host="c", rest_until=500.0), work(9, Pace())]
    spans = spans_left(hosts, lambda _: RULES, 0.0)
    first, dry, resting, unknown = [0.0 if span is None else span for span in spans]
    assert first == pytest.approx(told(hosts[:1]).seconds, rel=0.02)
    assert dry == 0 and resting > 500 and unknown == pytest.approx(9.3, rel=0.1)
    assert spans_left([work(9, Pace())], lambda _: RULES, 0.0) == [None]


def test_what_is_found_is_fetched_too() -> None:
    """What a page finds becomes less, evenly, until all that waits now is fetched."""
    assert told([work(100)], 0.5).seconds == pytest.approx(
        1.25 * told([work(100)]).seconds, rel=0.02
    )


def test_hosts_that_are_done_say_how_fast_others_are() -> None:
    assert told([work(100, Pace())], sample=[USUAL] * 5).cycle_s == pytest.approx(1.31, rel=0.02)


def test_few_fetches_of_a_host_count_by_how_much_hosts_differ() -> None:
    once = Pace(1.0, fetches=1, log_fetch_s=log(0.5))
    alike = told([work(100, once), *(work(1, USUAL, str(n)) for n in range(20))])
    other = [
        Pace(1.0, fetches=64, log_fetch_s=log(0.02 * 3**n), log_variance=0.25) for n in range(6)
    ]
    differ = told([work(100, once), *(work(1, pace, str(n)) for n, pace in enumerate(other))])
    assert alike.cycle_s < 2.0
    assert 4.0 < differ.cycle_s < 7.0


def fetched(
    pages: int,
    random: Random,
    usual_s: float = 0.085,
    pace: Pace | None = None,
    rules: PolitenessSettings = RULES,
    begun_at: float = 0.0,
) -> tuple[Pace, float]:
    """Return the pace of a host after so many fetches, and what they took with their rests."""
    pace, took_s, rest_s = pace or Pace(), 0.0, 0.0
    for _ in range(pages):
        answer = Answer(usual_s * random.lognormvariate(0, 0.5), 200)
        rest = next_rest(pace, answer, rules, random, begun_at + took_s + rest_s)
        took_s += rest_s + answer.duration_s
        pace, rest_s = rest.pace, rest.seconds
    return pace, took_s


@pytest.mark.parametrize(
    ("hosts", "differ", "before", "off"),
    [
        pytest.param(1, 0.0, 64, 0.03, id="one host"),
        pytest.param(40, 0.0, 64, 0.05, id="the last of forty equal ones"),
        pytest.param(40, 0.0, 3, 0.05, id="after few fetches of each"),
        pytest.param(40, 0.4, 4, 0.1, id="the last of forty that differ"),
    ],
)
def test_simulated_crawls_end_as_told(hosts: int, differ: float, before: int, off: float) -> None:
    ends, tolds = [], []
    for seed in range(40):
        random = Random(seed)
        usual = [0.085 * random.lognormvariate(0, differ) for _ in range(hosts)]
        ends.append(max(fetched(30, random, each)[1] for each in usual))
        paces = [fetched(before, random, each)[0] for each in usual]
        tolds.append(told([work(30, pace, str(n)) for n, pace in enumerate(paces)]).seconds)
    assert mean(tolds) == pytest.approx(mean(ends), rel=off)


@pytest.mark.parametrize(
    ("hosts", "before", "left", "off"),
    [
        (1, 0, 300, 0.1),
        (1, 64, 1_000, 0.1),
        (1, 64, 10_000, 0.1),
        (20, 64, 500, 0.05),
        (20, 64, 2_000, 0.05),
    ],
)
def test_the_end_is_foretold_of_servers_that_stay_fast(
    hosts: int, before: int, left: int, off: float
) -> None:
    ends, tolds = [], []
    for seed in range(10):
        random = Random(seed)
        paces, now = [fetched(before, random, rules=PACED) for _ in range(hosts)], 1e4
        sample = [fetched(64, random, rules=PACED)[0]]
        ends.append(max(fetched(left, random, 0.085, pace, PACED, now)[1] for pace, _ in paces))
        works = [work(left, pace, str(n)) for n, (pace, _) in enumerate(paces)]
        tolds.append(told(works, sample=sample, rules=PACED, now=now).seconds)
    assert mean(tolds) == pytest.approx(mean(ends), rel=off)


def test_hosts_chosen_for_how_slow_they_seem_are_as_fast_as_a_sample_says() -> None:
    random = Random(5)
    paces = [fetched(3, random)[0] for _ in range(300)]
    slowest = sorted(paces, key=lambda pace: pace.log_fetch_s)[-100:]
    hosts = [work(100, pace, str(n)) for n, pace in enumerate(slowest)]
    end_s = max(fetched(100, random)[1] for _ in range(100))
    assert told(hosts, sample=paces[:100]).seconds == pytest.approx(end_s, rel=0.1)
    assert told(hosts).seconds > 1.2 * end_s


def test_the_times_of_fetches_are_kept() -> None:
    random, pace = Random(3), Pace()
    for _ in range(1_000):
        answer = Answer(random.lognormvariate(-2.0, 0.5), 200)
        pace = next_rest(pace, answer, RULES, random).pace
    assert pace.log_fetch_s == pytest.approx(-2.0, abs=0.2)
    assert pace.log_variance == pytest.approx(0.25, abs=0.1)
    for trouble in (
        Answer(30.0, error="timeout"),
        Answer(9.0, 503),
        Answer(9.0, error="cancelled"),
    ):
        after = next_rest(pace, trouble, RULES, random).pace
        assert (after.fetches, after.log_fetch_s) == (pace.fetches, pace.log_fetch_s)


@pytest.mark.parametrize("hosts", [1_000, 100_000])
def test_a_look_at_the_longest_costs_the_same_for_any_number_of_hosts(hosts: int) -> None:
    longest, records = LongestHosts(1.0), dict[HostKey, HostRecord]()
    waiting = Random(1).sample(range(1, 10 * hosts), hosts)
    for number, urls in enumerate(waiting):
        host, record = HostKey(str(number)), HostRecord([QueueEnds(0, urls)])
        records[host] = record
        longest.note(host, record)
    read: list[HostKey] = []

    def record_of(host: HostKey) -> HostRecord:
        read.append(host)
        return records[host]

    found = longest.longest(100, record_of, lambda _: False)
    assert [each.waiting for each in found] == sorted(waiting, reverse=True)[:100]
    assert len(read) == 100
    assert len(longest._scores) <= 1_000
    assert len(longest.sampled_paces()) == 100
    # What the table had no place for comes in with its next fetch, when others are done.
    for each in list(longest._scores):
        records[each].queue_ends[0].head = records[each].queue_ends[0].tail
        longest.note(each, records[each])
    for host, record in records.items():
        longest.note(host, record)
    left = sorted((record.waiting() for record in records.values()), reverse=True)[:5]
    found = longest.longest(5, record_of, lambda _: True)
    assert [each.waiting for each in found] == [urls for urls in left if urls]


def test_what_was_dropped_is_told_no_more() -> None:
    longest, record = LongestHosts(1.0), HostRecord([QueueEnds(0, 9)])
    longest.note(HostKey("a"), record)
    record.queue_ends[0].head = 9
    assert longest.longest(5, lambda _: record, lambda _: False) == []
    assert not longest._scores


def moment(
    at: float, waiting: int, done: int, *, found: int = 0, pages: int | None = None, leased: int = 1
) -> CrawlMoment:
    counts = Counts(waiting, 0, leased, 1, waiting + done, done, 0)
    return CrawlMoment(NOON + at, counts, done if pages is None else pages, found)


def said(
    moments: Sequence[CrawlMoment], hosts: Sequence[HostWork], most_pages: int | None = None
) -> list[str]:
    """Return what is said at each of *moments*, without the time of day."""
    end = EndForecast(WorkAhead(lambda limit: hosts[:limit], list, lambda _: RULES))
    words = [str(end.at(each, most_pages)) for each in moments]
    return [each.split(" (")[0] + each.partition(")")[2] for each in words]


def test_the_end_is_that_of_the_host_that_is_last_done() -> None:
    crawl = [moment(0, 0, 0), moment(5, 3_100, 4), moment(10, 3_095, 9)]
    hosts = [work(3_100, USUAL, "shop.example.org"), work(20, USUAL, "b")]
    want = "ends in 1 h 7 min: shop.example.org, 3,100 URLs at 1.3 s"
    assert said(crawl, hosts) == ["", "", want], "one look at a few fetches is not enough"


def test_of_a_crawl_that_shrinks_it_is_never_said_that_it_grows() -> None:
    """Its seeds were read when the first moment was kept; it finds little, and rests."""
    lines = said(
        [
            moment(0, 0, 0),
            *(moment(5 * n, 400 - n, n, found=n // 3) for n in range(1, 100)),
            *(moment(500 + 5 * n, 301, 99, found=33) for n in range(100)),
        ],
        [work(300)],
    )
    assert lines[:2] == ["", ""]
    assert all(line.startswith("ends in") for line in lines[5:])


def test_a_frontier_that_has_grown_and_shrinks_again_does_not_grow() -> None:
    """Most was left at its start, and less 30 s ago than now."""
    left = [107, 89, 86, 86, 86, 87, 87, 89, 93, 98, 98, 94, 89]
    lines = said([moment(5 * n, at, 8 * n, found=7 * n) for n, at in enumerate(left)], [work(30)])
    assert "end unknown: the frontier grows" in lines[:11]
    assert lines[11:] == ["end unknown: 100 fetches bring 88 new URLs"] * 2


def test_urls_that_come_while_it_runs_are_no_growth() -> None:
    """As in a shared crawl, where seeds count as found, and after `add`."""
    crawl = [moment(5 * n, 400 - n, n, found=0) for n in range(50)]
    crawl += [moment(250 + 5 * n, 9_000 - n, 50 + n, found=9_000) for n in range(12)]
    lines = said(crawl, [work(300)])
    assert all(line.startswith("ends in") for line in lines[4:50])
    assert [line[:7] for line in lines[-6:]] == ["ends in"] * 6


def test_a_crawl_that_finds_more_than_it_fetches_has_no_end() -> None:
    crawl = [moment(5 * n, 10 + 5 * n, 10 * n, found=15 * n) for n in range(30)]
    lines = said(crawl, [work(300)])
    assert set(lines[:6]) == {""}
    assert set(lines[6:]) == {"end unknown: the frontier grows"}


def test_of_a_crawl_that_shrinks_slowly_it_is_said_what_it_finds() -> None:
    crawl = [moment(5 * n, 1_000 - 2 * n, 10 * n, found=8 * n) for n in range(30)]
    assert said(crawl, [work(300)])[-1] == "end unknown: 100 fetches bring 80 new URLs"


def test_where_the_rate_of_all_is_the_limit_that_is_said() -> None:
    crawl = [moment(5 * n, 100_000 - 500 * n, 500 * n) for n in range(20)]
    assert said(crawl, [work(30)])[-1] == "ends in 15 min 5 s: 90,501 URLs at 100 a second"


def test_the_number_of_pages_that_was_asked_for_may_be_the_end() -> None:
    crawl = [moment(5 * n, 9_000 + n, 10 * n, found=11 * n) for n in range(20)]
    lines = said(crawl, [work(3_000)], most_pages=400)
    assert lines[-1] == "ends in 105 s: 210 pages at 2.0 a second"


def test_a_crawl_that_visits_pages_again_has_no_end_but_the_one_that_was_asked_for() -> None:
    """Pages that wait for their next visit are not left to do."""
    end, by_pages = (
        EndForecast(WorkAhead(lambda limit: [work(300)], list, lambda _: RULES)) for _ in range(2)
    )
    for n in range(20):
        now = moment(5 * n, 300 - n, n)
        now = replace(now, counts=with_fields(now.counts, later=12_345, again=12_345))
        shown, until = end.at(now), end.at(now, until=now.at + 86_400)
        pages = by_pages.at(now, 39, now.at + 86_400)
    assert str(shown) == "runs until it is stopped: 12,345 pages are visited again"
    assert str(until).startswith("ends in 1 d 0 h (")
    assert str(pages).startswith("ends in 100 s ("), "so many pages come first"


def test_a_crawl_all_pages_of_which_are_due_again_has_no_end() -> None:
    """As at a start after a month. They wait, at the level of later visits."""
    end = EndForecast(WorkAhead(lambda limit: [work(300)], list, lambda _: RULES))
    for n in range(20):
        now = moment(5 * n, 300 - n, n)
        shown = end.at(replace(now, counts=with_fields(now.counts, levels=(1, 0, 0, 299 - n))))
    assert str(shown) == "runs until it is stopped: 280 pages are visited again"


def test_the_end_that_was_asked_for_counts_if_it_comes_first() -> None:
    end = EndForecast(WorkAhead(lambda limit: [work(300)], list, lambda _: RULES))
    shown = [str(end.at(moment(5 * n, 300 - n, n), until=NOON + 200)) for n in range(20)]
    assert shown[0].startswith("ends in 3 min 20 s ("), "it is known at once"
    assert shown[-1].startswith("ends in 105 s (") and shown[-1].endswith("as until says")
    later = [str(end.at(moment(100 + 5 * n, 280 - n, 20 + n), until=NOON + 1e6)) for n in range(5)]
    assert "URLs at" in later[-1], "its hosts are done before"


def test_a_date_that_is_far_is_no_forecast_before_one_is_known() -> None:
    """Nor after the last URL that waited."""
    hosts = [work(40)]
    end = EndForecast(WorkAhead(lambda limit: hosts, list, lambda _: RULES))
    crawl = [moment(0, 50, 0), moment(5, 48, 2), moment(10, 40, 10), moment(15, 35, 15)]
    shown = [str(end.at(each, until=NOON + 3_600)) for each in crawl]
    assert shown[0].startswith("ends in 1 h 0 min ("), "it is known at once"
    assert all(each.endswith("at the latest: as until says") for each in shown[:2])
    assert "URLs at" in shown[3] and "latest" not in shown[3]
    hosts.clear()
    assert str(end.at(moment(20, 0, 50), until=NOON + 3_600)) == LAST_FETCHES


def test_the_time_that_is_left_is_that_of_the_machines_clock() -> None:
    """That of a crawl goes on from where it was, if the machine's was set back meanwhile."""
    ahead_s, counts = 3_600.0, Counts(again=5, later=5)
    crawl: Any = SimpleNamespace(
        leases=SimpleNamespace(
            clock=Clock(lambda: time() + ahead_s, monotonic),
            frontier=SimpleNamespace(counts=lambda: counts),
            shared=None,
        ),
        stats=SimpleNamespace(figures=Figures()),
        selection=SimpleNamespace(
            allowed_origins=SimpleNamespace(
                visits_again=True, operator=SimpleNamespace(paused_until=lambda now: None)
            )
        ),
        settings=SimpleNamespace(arguments=None, ends_at=time() + 7_200.0),
    )
    end = EndForecast(WorkAhead(lambda limit: [], list, lambda _: RULES))
    assert re.match("ends in (2 h 0|1 h 59) min ", str(end_of(crawl, end)))


def test_the_last_fetches() -> None:
    assert said([moment(5 * n, 0, 10 * n) for n in range(3)], [])[-1] == (
        "ends with the fetches under way"
    )


def test_between_two_looks_the_time_goes_on() -> None:
    looks: list[int] = []

    def longest_hosts(limit: int) -> list[HostWork]:
        looks.append(limit)
        return [work(100)]

    end = EndForecast(WorkAhead(longest_hosts, list, lambda _: RULES))
    end.note(moment(0, 200, 0))
    end.note(moment(EVERY_S, 195, 5))
    shown = [end.at(moment(2 * EVERY_S + 0.5 * n, 190, 10)).when for n in range(5)]
    assert [each.split(" (")[0] for each in shown] == [
        "ends in 102 s",
        *("ends in 102 s", "ends in 101 s", "ends in 101 s", "ends in 100 s"),
    ]
    assert looks == [100]


@pytest.mark.parametrize(
    ("in_s", "form"),
    [
        pytest.param(0.0, r"\d\d:\d\d", id="today"),
        pytest.param(2 * 86_400.0, r"\w+ \d\d:\d\d", id="within a week"),
        pytest.param(30 * 86_400.0, r"\d\d \w+ \d{4}", id="later"),
    ],
)
def test_the_time_of_day(in_s: float, form: str) -> None:
    assert re.fullmatch(form, clock(NOON, in_s))
