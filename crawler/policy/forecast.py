"""When a crawl ends, by the host that is last done: the requests that are left of it, times its
rest and fetch.

Rule: pure. Requests to one host follow each other, so more slots make no crawl end earlier whose
largest host has 3,000 URLs at 1.3 s; that all URLs together were fetched at some rate says little.

The times of a host's fetches are known as mean and variance of their logarithms. What few
fetches say of a host is drawn to what those of all hosts say, by how much hosts differ (DerSimonian
and Laird, 1986), and how far it may still be off counts for the end, which is that of the last host
(Morris, 1983). What all hosts say is taken from a sample, as the hosts that are looked at are those
that seem slow: the slowest tenth of 1,000 equal hosts, by their first fetches, would take twice as
long as all do. A host's next fetches are then simulated, with fixed random numbers, by the rule of
its rests, as long rests come from the spread of the fetches: with 10 times a fetch of 0.08 s, from
1 s up, and a log-normal spread of 0.5, a rest takes 1.3 s, not 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import erf, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crawler.config.settings import PolitenessSettings
from crawler.model.types import HostKey, HostWork, Pace, Pacing
from crawler.policy.pacing import (
    FIRST_ANSWERS,
    PROBE_FACTOR,
    PROBED_EVERY_S,
    PROBES,
    WINDOW,
    WINDOW_S,
    factors,
    times_as_fast,
)
from crawler.policy.politeness import (
    GAP_FACTORS,
    MAX_REMEMBERED_GAP_S,
    CircuitEvent,
)

MOST_HOSTS: Final = 100
"""Hosts that a forecast looks at, those with most left to do: 3 ms."""

_FETCHES: Final = 64  # simulated of each host, and from then on as many more as there are
_TIMES: Final = 16  # each simulation
_SETTLED: Final = 48  # after so many fetches the first rest has no effect
_USUAL_VARIANCE: Final = 0.25  # of the logarithms of a host's fetches, as long as few are known
_USUAL_WEIGHT: Final = 4.0  # fetches that this counts as
_COMMON_WEIGHT: Final = 32.0  # fetches that the variance of all hosts counts as, for each of them
_SAMPLE: Final = 10  # so many hosts of a sample say more of all than those that are looked at
_EASING: Final = GAP_FACTORS[CircuitEvent.ANSWERED]
_HALVINGS: Final = 30

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the last host is done, and which one that is."""

    seconds: float  # from now: as likely earlier as later
    host: HostKey
    urls: int  # that wait there
    cycle_s: float  # rest and fetch of one URL there, on average


def forecast(
    hosts: Sequence[HostWork],
    settings_of: Callable[[HostKey], PolitenessSettings],
    now: float,
    growth: float = 0.0,
    sample: Sequence[Pace] = (),
) -> Forecast | None:
    """Return when all *hosts* are done, or None if nothing is known of any fetch. *growth*: new
    URLs that a fetch brings now. *sample*: of hosts that were chosen neither by what is left there
    nor by how slow they seem, whether anything is left there or not."""
    if not _are_known(hosts, sample):
        return None
    requests = np.array([_requests(each, growth) for each in hosts])
    fetches, errors = _fetches(hosts, sample)
    spans, spreads, usual = _spans(hosts, requests, fetches, settings_of, now)
    slower = _spans(hosts, requests, fetches * np.exp(errors)[:, None, None], settings_of, now)[0]
    spreads = np.hypot(spreads, slower - spans)
    spans += [max(0.0, each.rest_until - now) for each in hosts]
    last = int(spans.argmax())
    return Forecast(
        seconds=_median_of_latest(spans, spreads),
        host=hosts[last].host,
        urls=hosts[last].waiting,
        cycle_s=float(usual[last]),
    )


def spans_left(
    hosts: Sequence[HostWork],
    settings_of: Callable[[HostKey], PolitenessSettings],
    now: float,
) -> list[float | None]:
    """Return how many seconds each of *hosts*, some hundred at most, takes from now on for what
    waits there; None: nothing is known of any fetch."""
    if not _are_known(hosts, ()):
        return [None] * len(hosts)
    requests = np.array([_requests(each, 0.0) for each in hosts])
    spans, _, _ = _spans(hosts, requests, _fetches(hosts, ())[0], settings_of, now)
    return [
        float(span) + max(0.0, each.rest_until - now) if each.waiting else 0.0
        for span, each in zip(spans, hosts, strict=True)
    ]


def _are_known(hosts: Sequence[HostWork], sample: Sequence[Pace]) -> bool:
    """Return whether there are *hosts*, and the time of any fetch is known."""
    return bool(hosts) and any(each.fetches for each in (*(one.pace for one in hosts), *sample))


def _fetches(hosts: Sequence[HostWork], sample: Sequence[Pace]) -> tuple[_Floats, _Floats]:
    """Return simulated times of fetches of each host, and by how much the logarithm of all of them
    may be off, as one standard deviation."""
    means, errors, variances = _fetch_times([each.pace for each in hosts], sample)
    return np.exp(means[:, None, None] + np.sqrt(variances)[:, None, None] * _noise()), errors


def _requests(work: HostWork, growth: float) -> int:
    """Return how many requests the host gets: of one never asked its robots.txt too. Growth is
    expected to fall evenly to none while the waiting URLs are fetched, since pages lead more and
    more to what is known."""
    is_new = not work.pace.fetches and not work.rest_until
    return max(1, round(work.waiting * (1.0 + growth / 2)) + is_new + work.is_leased)


def _spans(
    hosts: Sequence[HostWork],
    requests: NDArray[np.int64],
    fetches: _Floats,
    settings_of: Callable[[HostKey], PolitenessSettings],
    now: float,
) -> tuple[_Floats, _Floats, _Floats]:
    """Return how long the *requests* to each host take, by how much that varies by chance, and how
    long one usually takes with its rest."""
    rests = _rests(hosts, fetches, settings_of, now)
    cycles = fetches + rests
    usual = cycles[:, :, _SETTLED:].mean(axis=(1, 2))
    sums = np.cumsum(cycles.mean(axis=1), axis=1)
    simulated = np.minimum(requests, _FETCHES)
    spans = sums[np.arange(len(hosts)), simulated - 1] + (requests - simulated) * usual
    spans -= rests[:, :, _SETTLED:].mean(axis=(1, 2))  # the last one rests for nothing
    spreads = np.sqrt(cycles.sum(axis=2).var(axis=1) / _FETCHES * requests)
    return spans, spreads, usual


@cache
def _noise() -> _Floats:
    """Return numbers of a standard normal distribution, always the same: of each fetch one of each
    _TIMES-th part of it, so that their mean is exact."""
    random = np.random.default_rng(1)
    parts = np.sort(random.standard_normal(_TIMES * 4_096)).reshape(_TIMES, -1).mean(axis=1)
    drawn = random.permuted(np.tile(parts[:, None] / parts.std(), _FETCHES), axis=0)
    centred: _Floats = drawn - drawn.mean()
    return centred


def _fetch_times(hosts: Sequence[Pace], sample: Sequence[Pace]) -> tuple[_Floats, _Floats, _Floats]:
    """Return the mean of the logarithms of the next fetches of each of *hosts*, by how much it may
    be off (one standard deviation), and their variance."""
    paces, looked_at = [*hosts, *sample], len(hosts)
    fetched = np.array([each.fetches for each in paces], float)
    known = np.maximum(fetched - 1, 0)  # in the mean, unless there was one only
    if not known.any():
        known = fetched
    means = np.array([each.log_fetch_s for each in paces])
    variances = np.array([each.log_variance for each in paces])
    asked = known > 0
    if asked[looked_at:].sum() >= min(asked[:looked_at].sum(), _SAMPLE):
        asked[:looked_at] = False
    else:
        asked[looked_at:] = False
    counts = known[asked]
    within = float(
        ((counts * variances[asked]).sum() + _USUAL_WEIGHT * _USUAL_VARIANCE)
        / ((counts - 1).sum() + _USUAL_WEIGHT)
    )
    of_all = float((counts * means[asked]).sum() / counts.sum())
    # By how much their means differ more than equal hosts' would, and more than by chance.
    degrees = len(counts) - 1
    chance = within * (degrees + sqrt(2 * degrees))
    differ = float((counts * (means[asked] - of_all) ** 2).sum()) - chance
    freedom = float(counts.sum() - (counts**2).sum() / counts.sum())
    between = max(0.0, differ / freedom) if freedom > 0 else 0.0
    weights = 1.0 / (between + within / counts)
    of_all = float((weights * means[asked]).sum() / weights.sum())
    known, means, variances = (each[:looked_at] for each in (known, means, variances))
    own = between / (between + within / np.maximum(known, 1e-9))
    expected = own * means + (1.0 - own) * of_all
    spread = (known * variances + _COMMON_WEIGHT * within) / (known + _COMMON_WEIGHT)
    return expected, np.sqrt((1.0 - own) * between), spread


def _rests(
    hosts: Sequence[HostWork],
    fetches: _Floats,
    settings_of: Callable[[HostKey], PolitenessSettings],
    now: float,
) -> _Floats:
    """Return the rest after each of *fetches*, by host, simulation and fetch: as
    `politeness.next_rest` after answers without trouble. A server that was not slow lately is
    expected to stay fast."""
    settings = [settings_of(each.host) for each in hosts]
    usual = np.exp(np.log(fetches).mean(axis=(1, 2)))
    stages = [
        _stages(each.pace, own, float(fetch_s), now)
        for each, own, fetch_s in zip(hosts, settings, usual, strict=True)
    ]
    factor = np.stack([each.factors for each in stages])[:, None, :]
    least = np.stack([each.least_s for each in stages])[:, None, :]
    most = _column([own.max_delay_s for own in settings])
    refused = _column([each.pace.pacing.interval_s if each.pace.pacing else 0.0 for each in hosts])
    asked = np.array(
        [
            min(each.pace.crawl_delay_s, own.max_crawl_delay_s)
            for each, own in zip(hosts, settings, strict=True)
        ]
    )[:, None, None]
    rests: _Floats = np.clip(factor * fetches, np.minimum(least, most), most)
    rests = np.maximum(np.maximum(rests, asked), refused - fetches)
    easing = np.where(factor < _column([own.delay_factor for own in settings]), 0.0, _EASING)
    rest = np.array([each.pace.gap_s for each in hosts])[:, None]
    for at in range(fetches.shape[2]):
        eased = easing[:, :, at] * np.minimum(rest, MAX_REMEMBERED_GAP_S)
        rests[:, :, at] = rest = np.maximum(rests[:, :, at], eased)
    rests += np.where(easing, 0.0, _column([each.probes_s for each in stages]))
    times = _column(
        [times_as_fast(each.pace, own) for each, own in zip(hosts, settings, strict=True)]
    )
    return (fetches + rests) / times - fetches


def _column(values: Sequence[float]) -> _Floats:
    return np.array(values, float)[:, None, None]


@dataclass(frozen=True, slots=True)
class _Stages:
    """What is expected of the next fetches of a host."""

    factors: _Floats  # each rest is so many times the fetch
    least_s: _Floats  # and so long at least
    probes_s: float  # what probes make each of the later ones longer


def _stages(pace: Pace, settings: PolitenessSettings, fetch_s: float, now: float) -> _Stages:
    steps, pacing = factors(settings), pace.pacing or Pacing()
    found, least_s = np.full(_FETCHES, steps[0]), np.full(_FETCHES, settings.min_delay_s)
    if len(steps) == 1:
        return _Stages(found, least_s, 0.0)
    begin, step = (0, pacing.step) if pacing.base_s else (FIRST_ANSWERS - pacing.count, 1)
    while True:
        rest_s = max(steps[step] * fetch_s, settings.paced_min_delay_s)
        found[begin:], least_s[begin:] = (
            steps[step],
            settings.paced_min_delay_s if step else settings.min_delay_s,
        )
        if step == len(steps) - 1 or now < pacing.wait_until:
            break
        begin += round(max(WINDOW, WINDOW_S / (fetch_s + rest_s)))
        step += 1
    longer_s = max(0.0, PROBE_FACTOR * fetch_s - rest_s)
    return _Stages(
        found, least_s, PROBES * longer_s / (PROBED_EVERY_S / (fetch_s + rest_s) + PROBES)
    )


def _median_of_latest(spans: _Floats, spreads: _Floats) -> float:
    """Return the time before and after which the last of all is done with equal probability, if
    their times are normal: of forty equal hosts the last one is late."""
    latest = float(spans.max())
    near = spans + 4 * spreads >= latest
    pairs = list(zip(spans[near].tolist(), spreads[near].tolist(), strict=True))
    low, high = latest, latest + 4 * float(spreads.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        chance = 1.0
        for span, spread in pairs:
            if spread > 0:
                chance *= 0.5 + 0.5 * erf((middle - span) / (spread * sqrt(2)))
        low, high = (middle, high) if chance < 0.5 else (low, middle)
    return low
