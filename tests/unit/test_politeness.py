"""How long a host rests: by table, by a walk through all states, and in a simulated week; and
whether a failure is the host's or ours."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import PolitenessSettings
from crawler.model.choices import HostUnit
from crawler.model.types import Answer, HostKey, Pace, Rest
from crawler.page.challenge import Challenge, Reception
from crawler.policy.politeness import (
    STORM,
    TRANSITIONS,
    Circuit,
    CircuitEvent,
    Uplink,
    UplinkLimits,
    as_new,
    circuit,
    event_of,
    is_left,
    next_rest,
    no_contact,
    rest_after_all,
    should_give_up,
    with_challenge,
    with_pages_of,
)

RULES = PolitenessSettings()
FRESH = Pace()
DAY_S = 86_400.0


class Least(Random):
    """Jitter that never adds anything: the guarantees must hold even then."""

    def uniform(self, a: float, b: float) -> float:
        return min(a, b)


class Most(Random):
    """Jitter that adds all it may."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def ok(duration_s: float = 0.05, status: int = 200) -> Answer:
    return Answer(duration_s, status)


def bad(status: int | None = 503, error: str = "", retry_after_s: float | None = None) -> Answer:
    return Answer(0.05, status, error, retry_after_s)


@pytest.mark.parametrize(
    ("pace", "answer", "want_s", "reason"),
    [
        pytest.param(FRESH, ok(0.5), 5.0, "gap", id="ten times the last fetch"),
        pytest.param(FRESH, ok(0.01), 1.0, "gap", id="never below the minimum"),
        pytest.param(FRESH, ok(100.0), 300.0, "gap", id="never above the maximum"),
        pytest.param(Pace(crawl_delay_s=20.0), ok(0.5), 20.0, "crawl-delay", id="its crawl-delay"),
        pytest.param(
            Pace(crawl_delay_s=900.0), ok(), 900.0, "crawl-delay", id="which our maximum cannot cut"
        ),
        pytest.param(
            Pace(crawl_delay_s=1e6), ok(), 3600.0, "crawl-delay", id="but a maximum of its own"
        ),
        pytest.param(Pace(crawl_delay_s=2.0), ok(0.5), 5.0, "gap", id="the longer of the two"),
        pytest.param(FRESH, ok(status=404), 1.0, "gap", id="a 404 is an answer"),
        pytest.param(FRESH, ok(status=301), 1.0, "gap", id="a redirect too"),
        pytest.param(FRESH, bad(None, "protocol"), 1.0, "gap", id="a broken answer is one"),
        pytest.param(FRESH, bad(None, "cancelled"), 1.0, "gap", id="stopped by us: the gap"),
        pytest.param(FRESH, bad(503), 2.0, "backoff", id="503 adds a second"),
        pytest.param(Pace(failures=1), bad(429), 3.0, "backoff", id="429 adds two the next time"),
        pytest.param(Pace(failures=3), bad(500), 9.0, "backoff", id="and eight the fourth time"),
        pytest.param(FRESH, bad(None, "timeout"), 2.0, "backoff", id="no answer in time"),
        pytest.param(FRESH, bad(None, "connect"), 2.0, "backoff", id="no connection"),
        pytest.param(FRESH, bad(403, "challenge"), 2.0, "backoff", id="a guard that tests us"),
        pytest.param(FRESH, bad(200, "timeout"), 2.0, "backoff", id="no end of the answer in time"),
        pytest.param(FRESH, bad(200, "disconnect"), 2.0, "backoff", id="a body that broke off"),
        pytest.param(
            Pace(failures=9), bad(200, "disconnect"), 61.0, "backoff", id="which pauses nothing"
        ),
        pytest.param(Pace(8.0), bad(503), 17.0, "backoff", id="added to twice the gap before"),
        pytest.param(Pace(8.0), ok(), 5.6, "easing", id="which eases with each answer"),
        pytest.param(Pace(300.0), ok(), 21.0, "easing", id="from half a minute at most"),
        pytest.param(Pace(failures=4), bad(503), 301.0, "pause", id="the fifth failure: a pause"),
        pytest.param(
            Pace(0.0, 5, 1), bad(503), 601.0, "pause", id="its probe fails: twice as long"
        ),
        pytest.param(Pace(0.0, 9, 5), bad(503), 3601.0, "pause", id="up to an hour"),
        pytest.param(Pace(0.0, 5, 1), ok(), 1.0, "gap", id="its probe is answered: as ever"),
        pytest.param(
            Pace(0.0, 5, 1), bad(None, "cancelled"), 1.0, "gap", id="its probe is stopped: no pause"
        ),
        pytest.param(
            FRESH, bad(429, retry_after_s=120.0), 132.0, "retry-after", id="Retry-After, and more"
        ),
        pytest.param(FRESH, Answer(0.05, 200, "", 50.0), 55.0, "retry-after", id="on any answer"),
        pytest.param(
            FRESH, bad(503, retry_after_s=1e9), DAY_S + 60, "retry-after", id="for a day at most"
        ),
        pytest.param(
            FRESH, bad(503, retry_after_s=0.0), 2.0, "backoff", id="zero does not hurry us"
        ),
        pytest.param(
            Pace(failures=4), bad(503, retry_after_s=9.0), 301.0, "pause", id="nor end a pause"
        ),
    ],
)
def test_rest_with_all_the_jitter(pace: Pace, answer: Answer, want_s: float, reason: str) -> None:
    rest = next_rest(pace, answer, RULES, Most())
    assert rest.seconds == pytest.approx(want_s)
    assert rest.reason == reason


CHALLENGED = Answer(0.05, 403, "challenge", detail="Cloudflare")
CALLED_OFF, LATE = bad(None, "cancelled"), bad(429, retry_after_s=50.0)


@pytest.mark.parametrize(
    ("pace", "answers", "want_s", "reason", "gap_s"),
    [
        pytest.param(FRESH, [ok(0.5)], 5.0, "gap", 5.0, id="one answer"),
        pytest.param(FRESH, [ok(0.2), ok(0.5)], 7.0, "gap", 5.0, id="ten times each"),
        pytest.param(FRESH, [ok()] * 4, 4.0, "gap", 1.0, id="the least gap for each"),
        pytest.param(
            Pace(crawl_delay_s=20.0), [ok()] * 3, 60.0, "crawl-delay", 20.0, id="crawl-delays"
        ),
        pytest.param(
            Pace(crawl_delay_s=3600.0), [ok()] * 64, DAY_S, "crawl-delay", 3600.0, id="a day"
        ),
        pytest.param(Pace(8.0), [ok()] * 2, 9.52, "easing", 3.92, id="easing with each"),
        pytest.param(FRESH, [ok(), ok(), bad()], 5.0, "backoff", 3.0, id="a backoff"),
        pytest.param(FRESH, [ok(), LATE], 56.0, "retry-after", 3.0, id="a Retry-After"),
        pytest.param(Pace(failures=3), [CALLED_OFF, bad()], 11.0, "backoff", 10.0, id="stopped"),
    ],
)
def test_rest_after_several_answers(
    pace: Pace, answers: list[Answer], want_s: float, reason: str, gap_s: float
) -> None:
    rest = rest_after_all(pace, answers, RULES, Most())
    assert (rest.seconds, rest.pace.gap_s) == (pytest.approx(want_s), pytest.approx(gap_s))
    assert rest.reason == reason


def test_a_slow_request_does_not_hold_up_all_that_follow_it() -> None:
    slow = rest_after_all(FRESH, [ok(0.1), Answer(10.0, error="timeout")], RULES, Least())
    assert slow.seconds == pytest.approx(101.0)
    rest = rest_after_all(slow.pace, [ok(0.1)] * 30, RULES, Least())
    assert (rest.seconds, rest.reason) == (pytest.approx(88.2, abs=0.1), "easing")
    assert rest.pace.gap_s == 1.0


def test_what_is_sent_beside_a_page_is_no_page() -> None:
    refused = ok(status=403)
    assert rest_after_all(FRESH, [ok(), *[refused] * 30], RULES, Least()).pace.forbidden == 0
    assert rest_after_all(FRESH, [refused, ok()], RULES, Least()).pace.forbidden == 1
    assert rest_after_all(FRESH, [ok(), CHALLENGED], RULES, Least()).pace.unwelcome == 1


ANSWERS = st.builds(
    Answer,
    st.floats(0, 60),
    st.sampled_from([None, 200, 301, 404, 410, 418, 429, 500, 502, 503]),
    st.sampled_from(["", "", "timeout", "connect", "dns", "tls", "protocol", "cancelled"]),
    st.one_of(st.none(), st.floats(0, 1e6)),
)
PACES = st.builds(Pace, st.floats(0, 300), st.integers(0, 9), st.integers(0, 9), st.floats(0, 1e5))
TURNS = st.tuples(st.sampled_from(HostUnit), st.sampled_from((None, 5.0)))


@given(PACES, ANSWERS)
def test_no_host_is_contacted_before_it_asked_to_be(pace: Pace, answer: Answer) -> None:
    rest = next_rest(pace, answer, RULES, Least())
    assert rest.seconds >= min(10 * answer.duration_s, 300.0)
    assert rest.seconds >= max(1.0, min(pace.crawl_delay_s, 3600.0))
    assert rest.seconds >= min(answer.retry_after_s or 0.0, DAY_S)
    assert rest.pace.crawl_delay_s == pace.crawl_delay_s


@given(PACES, st.lists(ANSWERS, min_size=1, max_size=40), TURNS, st.integers())
def test_after_several_requests_a_host_rests_as_after_each_of_them(
    pace: Pace, answers: list[Answer], turn: tuple[HostUnit, float | None], seed: int
) -> None:
    unit, begun_at = turn
    rules = replace(RULES, host_unit=unit)
    rest = rest_after_all(pace, answers, rules, Random(seed), begun_at)
    random, singles, after = Random(seed), [], pace
    for answer in answers:
        single = next_rest(after, answer, rules, random, begun_at)
        after = single.pace if not singles else with_pages_of(after, single.pace)
        singles.append(single)
    in_all_s = sum(each.seconds for each in singles)
    longest_s = max(each.seconds for each in singles)
    assert rest.seconds == pytest.approx(max(longest_s, min(in_all_s, DAY_S)))
    assert rest.pace == after
    assert rest.reason in {each.reason for each in singles}
    of_address_s = [each.address_s for each in singles if each.address_s is not None]
    assert rest.address_s == (pytest.approx(sum(of_address_s)) if of_address_s else None)


@given(PACES, st.lists(ANSWERS, min_size=1, max_size=5))
def test_after_several_requests_a_host_rests_no_shorter_than_after_any(
    pace: Pace, answers: list[Answer]
) -> None:
    rest = rest_after_all(pace, answers, RULES, Least())
    asked_s = max(each.retry_after_s or 0.0 for each in answers)
    assert rest.seconds >= min(asked_s, DAY_S)
    least_s = len(answers) * max(1.0, min(pace.crawl_delay_s, 3600.0))
    assert rest.seconds >= min(least_s, DAY_S)
    took_s = sum(each.duration_s for each in answers)
    assert rest.seconds >= min(10 * took_s, 300.0)


@given(PACES, ANSWERS)
def test_no_host_waits_for_ever(pace: Pace, answer: Answer) -> None:
    rest = next_rest(pace, answer, RULES, Most())
    assert rest.seconds <= 3600.0 + max(3600.0, DAY_S)
    assert rest.pace.gap_s <= 3600.0 + 60.0


@given(PACES, ANSWERS, st.integers())
def test_the_same_seed_gives_the_same_rest(pace: Pace, answer: Answer, seed: int) -> None:
    once = next_rest(pace, answer, RULES, Random(seed))
    assert once == next_rest(pace, answer, RULES, Random(seed))


# The circuit

SAMPLES = {Circuit.CLOSED: (FRESH, Pace(failures=2)), Circuit.HALF_OPEN: (Pace(0.0, 5, 1),)}
HAPPENINGS = {
    CircuitEvent.ANSWERED: (ok(), ok(status=404), bad(None, "protocol")),
    CircuitEvent.BROKE_OFF: (bad(200, "disconnect"),),
    CircuitEvent.FAILED: (bad(503), bad(429), bad(None, "timeout"), bad(None, "dns")),
    CircuitEvent.CHALLENGED: (bad(403, "challenge"), bad(200, "challenge")),
    CircuitEvent.CANCELLED: (bad(None, "cancelled"),),
}


@pytest.mark.parametrize(("state", "event"), list(product(Circuit, CircuitEvent)))
def test_every_move_is_in_the_table_or_impossible(state: Circuit, event: CircuitEvent) -> None:
    if state is Circuit.OPEN:
        # Nobody is leased while it rests: no answer can find a host in this state.
        assert ((state, event) in TRANSITIONS) == (event is CircuitEvent.RESTED)
        assert TRANSITIONS[state, CircuitEvent.RESTED] is Circuit.HALF_OPEN
    else:
        assert (state, event) in TRANSITIONS


@pytest.mark.parametrize(("state", "event"), list(product(SAMPLES, HAPPENINGS)))
def test_a_pace_moves_as_its_state_in_the_table(state: Circuit, event: CircuitEvent) -> None:
    for pace, answer in product(SAMPLES[state], HAPPENINGS[event]):
        assert circuit(pace) is state
        happened = event_of(answer, pace, RULES)
        after = next_rest(pace, answer, RULES, Random(1)).pace
        moved = TRANSITIONS[state, happened]
        if moved is Circuit.OPEN:
            assert circuit(after, resting=True) is Circuit.OPEN
            moved = TRANSITIONS[Circuit.OPEN, CircuitEvent.RESTED]
        assert circuit(after) is moved


def test_the_fifth_failure_opens_the_circuit_breaker() -> None:
    assert event_of(bad(), Pace(failures=3), RULES) is CircuitEvent.FAILED
    assert event_of(bad(), Pace(failures=4), RULES) is CircuitEvent.FAILED_OFTEN
    once = replace(RULES, pause_after_failures=1)
    assert event_of(bad(), FRESH, once) is CircuitEvent.FAILED_OFTEN


def test_404s_never_open_the_circuit_breaker() -> None:
    pace = FRESH
    for _ in range(100):
        pace = next_rest(pace, ok(status=404), RULES, Most()).pace
    assert (pace.failures, pace.pauses) == (0, 0)


def test_a_404_ends_a_row_of_failures() -> None:
    pace = FRESH
    for answer in [bad()] * 4 + [ok(status=404)] + [bad()] * 4:
        pace = next_rest(pace, answer, RULES, Most()).pace
    assert circuit(pace) is Circuit.CLOSED


@pytest.mark.parametrize(("answered", "last"), [(True, 1), (False, 13)], ids=["lost", "never up"])
def test_a_dead_host_is_probed_ever_more_seldom_and_then_given_up(
    answered: bool, last: int
) -> None:
    pace, rests = Pace(answered=answered), []
    while not should_give_up(pace):
        rest = next_rest(pace, bad(None, "connect"), RULES, Least())
        pace = rest.pace
        rests.append(rest.seconds)
    assert rests == [1, 2, 4, 8, 316, 616, 1216, 2416, *[3616] * last]


# Hosts that do not welcome us

HOUR_S = 3600.0


def walk(*answers: Answer, pace: Pace = FRESH) -> tuple[Pace, list[Rest]]:
    """The pace after *answers*, and the rest after each."""
    rests = []
    for answer in answers:
        rests.append(next_rest(pace, answer, RULES, Least()))
        pace = rests[-1].pace
    return pace, rests


def test_a_host_that_challenges_is_probed_ever_more_seldom_and_then_left() -> None:
    pace, rests = walk(*[CHALLENGED] * 8)
    hours = [round(rest.seconds / HOUR_S) for rest in rests if rest.reason == "challenge"]
    assert hours == [1, 2, 4, 8, 16]
    assert [is_left(rest.pace) for rest in rests] == [False] * 7 + [True]
    assert max(rest.seconds for rest in rests[:2]) < 10, "two may be of a page"
    assert rests[-1].seconds < 600, "it is left, and not paused"
    assert not is_left(as_new(pace))
    assert walk(CHALLENGED, pace=as_new(pace))[1][0].reason != "challenge"


def test_pauses_for_challenges_end_at_a_day() -> None:
    rules = replace(RULES, challenge_pause_s=8 * HOUR_S)
    rest = next_rest(Pace(unwelcome=5), CHALLENGED, rules, Least())
    assert round(rest.seconds / HOUR_S) == 24


@pytest.mark.parametrize(
    ("between", "is_paused"),
    [
        pytest.param(ok(), False, id="a page"),
        pytest.param(ok(status=301), True, id="a redirect"),
        pytest.param(ok(status=404), True, id="a missing page"),
        pytest.param(ok(status=401), True, id="a login"),
        pytest.param(bad(503), True, id="an overload"),
        pytest.param(bad(None, "timeout"), True, id="no answer"),
        pytest.param(bad(200, "disconnect"), True, id="a page that broke off"),
        pytest.param(bad(None, "cancelled"), True, id="nothing: stopped by us"),
    ],
)
def test_only_a_page_ends_a_row_of_challenges(between: Answer, is_paused: bool) -> None:
    _, rests = walk(CHALLENGED, CHALLENGED, between, CHALLENGED)
    assert (rests[-1].reason == "challenge") is is_paused


def test_a_probe_that_fails_otherwise_pauses_the_host_for_as_long_again() -> None:
    pace, (rest,) = walk(bad(None, "timeout"), pace=Pace(unwelcome=4))
    assert (rest.reason, pace.unwelcome) == ("challenge", 4)
    assert rest.seconds >= 2 * HOUR_S


def test_403s_are_of_their_pages_until_there_is_nothing_else() -> None:
    pace, counted = FRESH, []
    for _ in range(STORM):
        answer = with_challenge(ok(status=403), None, pace)
        counted.append(answer.error)
        rest = next_rest(pace, answer, RULES, Least())
        pace = rest.pace
    assert counted == [""] * (STORM - 3) + ["challenge"] * 3
    assert rest.reason == "challenge"
    pace = next_rest(pace, ok(), RULES, Least()).pace
    assert with_challenge(ok(status=403), None, pace).error == ""


def test_the_tries_of_one_url_are_no_row_at_a_host_with_pages() -> None:
    cloudflare = Challenge(Reception.NOT_WELCOME, "Cloudflare")
    for first, is_paused in ((ok(), False), (ok(status=404), True)):
        pace, (rest,) = walk(first)
        for attempts in range(4):
            answer = with_challenge(ok(), cloudflare, pace, attempts)
            rest = next_rest(pace, answer, RULES, Least())
            pace = rest.pace
        assert (rest.reason == "challenge") is is_paused


def test_a_challenge_with_429_is_no_rate_limit() -> None:
    cloudflare = Challenge(Reception.NOT_WELCOME, "Cloudflare")
    answer = with_challenge(bad(429, retry_after_s=30.0), cloudflare, FRESH)
    assert (answer.error, answer.detail) == ("challenge", "Cloudflare")
    pace, (rest,) = walk(answer)
    assert (pace.failures, pace.unwelcome) == (0, 1)
    assert rest.seconds >= 30.0, "its Retry-After is kept all the same"


def test_what_is_too_fast_by_the_table_of_a_user_slows_down() -> None:
    queue = Challenge(Reception.TOO_FAST, "the shop's queue")
    assert with_challenge(bad(503), queue, FRESH) == bad(503)
    answer = with_challenge(ok(), queue, FRESH)
    assert (answer.error, event_of(answer, FRESH, RULES)) == ("too_fast", CircuitEvent.FAILED)
    private = Challenge(Reception.THIS_PAGE, "login")
    assert with_challenge(ok(status=401), private, FRESH) == ok(status=401)


def test_a_pace_outlives_the_process() -> None:
    pace = next_rest(Pace(1.5, 4, 0, 2.0), bad(), RULES, Random(1)).pace
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(pace), type=Pace) == pace


# A week, judged by the server


class FlakyHost:
    """A server with good and bad days, that writes down when it was contacted."""

    def __init__(self, seed: int, crawl_delay_s: float) -> None:
        self.random = Random(seed)
        self.crawl_delay_s = crawl_delay_s
        self.quiet_until = 0.0
        self.visits: list[tuple[float, bool]] = []

    def visit(self, now: float) -> Answer:
        assert now >= self.quiet_until, "contacted before it asked to be"
        answer = self.answer()
        self.visits.append((now, answer.status == 200))
        asked_s = max(10 * answer.duration_s, self.crawl_delay_s, answer.retry_after_s or 0.0)
        self.quiet_until = now + answer.duration_s + min(asked_s, DAY_S)
        return answer

    def answer(self) -> Answer:
        took_s = min(29.0, self.random.lognormvariate(-0.5, 1.0))
        match self.random.random():
            case luck if luck < 0.80:
                return Answer(took_s, 200)
            case luck if luck < 0.90:
                return Answer(took_s, 503)
            case luck if luck < 0.95:
                return Answer(took_s, 429, "", self.random.uniform(0, 900))
            case luck if luck < 0.98:
                return Answer(took_s, 404)
        return Answer(29.0, None, "timeout")


@pytest.mark.parametrize("crawl_delay_s", [0.0, 15.0])
def test_a_week_with_a_flaky_host(crawl_delay_s: float) -> None:
    host, random = FlakyHost(7, crawl_delay_s), Random(8)
    pace, now = Pace(crawl_delay_s=crawl_delay_s), 0.0
    while now < 7 * DAY_S:
        answer = host.visit(now)
        rest = next_rest(pace, answer, RULES, random)
        pace, now = rest.pace, now + answer.duration_s + rest.seconds
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(host.visits)]
    assert min(gaps) >= max(1.0, crawl_delay_s)
    # Polite is not shy: 83 of 100 visits can bring a page, and a rest is in proportion.
    assert sum(good for _, good in host.visits) > 0.75 * len(host.visits) > 3000


class LimitedHost:
    """A server that sends 429 to a client that requests again within five seconds."""

    def __init__(self) -> None:
        self.last = -9.0
        self.refused = self.served = 0

    def visit(self, now: float) -> Answer:
        too_soon, self.last = now - self.last < 5.0, now
        self.refused += too_soon
        self.served += not too_soon
        return Answer(0.01, 429 if too_soon else 200)


def test_the_pace_of_a_host_with_a_rate_limit_is_found() -> None:
    host, random, pace, now = LimitedHost(), Random(1), FRESH, 0.0
    while host.served < 1000:
        rest = next_rest(pace, host.visit(now), RULES, random)
        pace, now = rest.pace, now + rest.seconds
    assert host.refused < 0.7 * host.served
    assert now < 12 * host.served


UPLINK_RULES = UplinkLimits()
OK = Answer(0.1, 200)
NO_ROUTE = Answer(0.1, None, "connect")


def uplink_after(good: int, failing: int, every_s: float = 0.1) -> Uplink:
    """An uplink over which all have answered, and then the *failing* hosts did not."""
    uplink = Uplink(UPLINK_RULES)
    for number in range(good + failing):
        uplink.observe(HostKey(f"h{number}"), OK, 0.0)
    for number in range(failing):
        uplink.observe(HostKey(f"h{number}"), NO_ROUTE, number * every_s)
    return uplink


@pytest.mark.parametrize(
    ("uplink", "down"),
    [
        pytest.param(Uplink(UPLINK_RULES), False, id="nothing is known"),
        pytest.param(uplink_after(0, 19), False, id="a few that died"),
        pytest.param(uplink_after(0, 20), True, id="as many as it takes"),
        pytest.param(uplink_after(10, 50), False, id="most, but some answer"),
        pytest.param(uplink_after(2, 18), True, id="nearly all"),
        pytest.param(uplink_after(60, 20), False, id="twenty that died, of eighty"),
        pytest.param(uplink_after(0, 100, every_s=5.0), False, id="too seldom to be distinguished"),
    ],
)
def test_the_line_is_down_when_nearly_all_hosts_fail(uplink: Uplink, down: bool) -> None:
    assert (uplink.probe_at is not None) is down
    assert uplink.charges_host() is not down


def test_hosts_that_never_answered_are_no_evidence_about_our_uplink() -> None:
    uplink = Uplink(UPLINK_RULES)
    for number in range(100):
        uplink.observe(HostKey(f"dead{number}"), NO_ROUTE, 1.0)
    assert uplink.charges_host()


def test_a_host_that_fails_often_counts_once() -> None:
    uplink = uplink_after(0, 1)
    for second in range(50):
        uplink.observe(HostKey("h0"), NO_ROUTE, float(second))
    assert not uplink.is_down(50.0)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(OK, False, id="an answer"),
        pytest.param(Answer(0.1, 503), False, id="a bad answer is one"),
        pytest.param(Answer(0.1, 200, "timeout"), False, id="half an answer is one"),
        pytest.param(Answer(0.1, None, "dns"), True, id="no address"),
        pytest.param(NO_ROUTE, True, id="no connection"),
        pytest.param(Answer(0.1, None, "timeout"), True, id="nothing in time"),
        pytest.param(Answer(0.1, None, "tls"), False, id="a handshake that failed: they are there"),
    ],
)
def test_what_counts_as_no_contact(answer: Answer, want: bool) -> None:
    assert no_contact(answer) is want


def test_a_probe_is_let_through_and_decides() -> None:
    uplink = uplink_after(0, 20)
    at = uplink.probe_at
    assert at is not None
    assert uplink.is_down(at - 0.1)
    assert not uplink.is_down(at)
    uplink.observe(HostKey("a"), NO_ROUTE, at)
    assert uplink.is_down(at + 1)
    assert uplink.probe_at == at + UPLINK_RULES.probe_s
    uplink.observe(HostKey("b"), OK, at + 11)
    assert uplink.probe_at is None
    assert not uplink.is_down(at + 11)


def test_a_line_that_stays_down_is_not_the_line() -> None:
    uplink = uplink_after(0, 20)
    assert uplink.probe_at
    uplink.observe(HostKey("h0"), NO_ROUTE, UPLINK_RULES.max_down_s)
    assert not uplink.charges_host()
    uplink.observe(HostKey("h0"), NO_ROUTE, UPLINK_RULES.max_down_s + 10)
    assert uplink.charges_host()
    for number in range(20):  # and they must answer before they can tell again
        uplink.observe(HostKey(f"h{number}"), NO_ROUTE, UPLINK_RULES.max_down_s + 11)
    assert uplink.charges_host()


def test_fetches_that_we_stopped_are_no_evidence() -> None:
    uplink = uplink_after(0, 19)
    uplink.observe(HostKey("x"), OK, 2.0)
    uplink.observe(HostKey("x"), Answer(0.1, None, "cancelled"), 2.0)
    assert uplink.charges_host()


def test_only_recent_answers_count() -> None:
    uplink = uplink_after(0, 19)
    late = UPLINK_RULES.window_s + 5
    for number in range(19):
        uplink.observe(HostKey(f"n{number}"), OK, late)
        uplink.observe(HostKey(f"n{number}"), NO_ROUTE, late)
    assert uplink.charges_host()
    uplink.observe(HostKey("h0"), NO_ROUTE, late)
    assert not uplink.charges_host()


def test_the_uplink_stores_few_hosts() -> None:
    uplink = uplink_after(5000, 0)
    assert len(uplink) == UPLINK_RULES.max_hosts


def test_the_uplink_stores_the_hosts_that_answered_last() -> None:
    rules = UplinkLimits(min_hosts=1, max_hosts=2)
    uplink = Uplink(rules)
    for name in ("a", "b", "a", "c"):
        uplink.observe(HostKey(name), OK, 0.0)
    uplink.observe(HostKey("b"), NO_ROUTE, 100.0)
    assert uplink.charges_host()
    uplink.observe(HostKey("a"), NO_ROUTE, 100.0)
    assert not uplink.charges_host()


@pytest.mark.parametrize(
    ("pace", "answer", "of_host_s", "of_address_s"),
    [
        pytest.param(FRESH, ok(0.5), 5.0, 5.0, id="the machine has done the work of a fetch"),
        pytest.param(Pace(crawl_delay_s=60.0), ok(0.5), 60.0, 5.0, id="one site's Crawl-delay"),
        pytest.param(FRESH, bad(500), 1.0, 1.0, id="an error of one site"),
        pytest.param(FRESH, bad(429, "", 90.0), 90.0, 90.0, id="the machine asks for a rest"),
        pytest.param(FRESH, bad(503, "", 90.0), 90.0, 90.0, id="the same, overloaded"),
        pytest.param(FRESH, bad(404, "", 90.0), 90.0, 90.0, id="any Retry-After"),
        pytest.param(FRESH, bad(403, "challenge", 90.0), 90.0, 1.0, id="a guard of one site"),
        pytest.param(Pace(failures=4), bad(502), 301.0, 1.0, id="the pause of one site"),
        pytest.param(Pace(failures=4), bad(None, "connect"), 301.0, 1.0, id="the same, unreached"),
    ],
)
def test_what_others_on_the_address_of_a_host_wait_for(
    pace: Pace, answer: Answer, of_host_s: float, of_address_s: float
) -> None:
    by_address = replace(RULES, host_unit=HostUnit.ADDRESS)
    rest = next_rest(pace, answer, by_address, Least())
    assert (rest.seconds, rest.address_s) == (of_host_s, of_address_s)
    assert next_rest(pace, answer, RULES, Least()).address_s is None
