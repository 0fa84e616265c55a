"""Bundles: what is left of one when an answer of it has trouble, or lets no other be asked for."""

from __future__ import annotations

from unittest.mock import Mock

from crawler.config.settings import PolitenessSettings
from crawler.loop.bundles import Bundles
from crawler.loop.life import Life, LifeEvent, Plan
from crawler.model.types import Candidate, HostKey, Lease, Pace, Pacing, Standing
from crawler.policy.pacing import spacing_s

HOST = HostKey("a")
SETTINGS = PolitenessSettings(paced_connections=3)
PACE = Pace(standing=Standing.ANSWERS, pacing=Pacing(step=3, base_s=0.2, at_once=3))
REFUSED = Pace(standing=Standing.ANSWERS, failures=1, pacing=Pacing(step=3, base_s=0.2, at_once=1))
LEASES = [Lease(n, Candidate(f"http://a/{n}", n, HOST, "a"), PACE, 0.0) for n in range(6)]
ANSWERS = (Standing.ANSWERS,)
SPACING_S = spacing_s(PACE, SETTINGS)


def life_of(bundles: Bundles, lease: Lease | None) -> Life:
    assert lease is not None
    life = Life(Plan(lease=lease, url=lease.candidate.url))
    bundles.add(life)
    return life


def begun() -> tuple[Mock, Bundles, list[Life]]:
    """A bundle of six URLs of which two are handed out."""
    frontier = Mock()
    bundles = Bundles(frontier, lambda _: SETTINGS, lambda _: SETTINGS)
    lives = [life_of(bundles, bundles.first_of(LEASES, 0.0))]
    assert bundles.next(SPACING_S - 0.01, ANSWERS) is None, "they are spread"
    assert bundles.wake_at(ANSWERS) == SPACING_S
    lives.append(life_of(bundles, bundles.next(SPACING_S, ANSWERS)))
    return frontier, bundles, lives


def put_back(frontier: Mock) -> list[int]:
    return sorted(call.args[0].id for call in frontier.finish.call_args_list)


def test_as_many_are_under_way_as_may_be_and_an_answer_lets_the_next_go() -> None:
    frontier, bundles, lives = begun()
    lives.append(life_of(bundles, bundles.next(2 * SPACING_S, ANSWERS)))
    assert bundles.next(9.0, ANSWERS) is None
    assert bundles.wake_at(ANSWERS) is None, "the end of a fetch wakes the engine"
    lives[0].step(LifeEvent.REST)
    bundles.note_released(lives[0], PACE, 9.0)
    assert bundles.wake_at(ANSWERS) == 3 * SPACING_S
    assert bundles.wake_at((Standing.NEW,)) is None, "no slot of its standing is free"
    assert bundles.next(9.0, (Standing.NEW,)) is None
    assert bundles.next(9.0, ANSWERS) == LEASES[3]
    assert not put_back(frontier)


def test_after_a_refusal_nothing_of_a_bundle_is_sent_though_it_was_handed_out() -> None:
    frontier, bundles, (first, second) = begun()
    bundles.stop(HOST, 1.0)  # the head of an answer says so
    assert put_back(frontier) == [2, 3, 4, 5]
    assert bundles.is_stopped(second)
    bundles.note_released(first, REFUSED, 1.1)
    assert second.lease.pace == REFUSED, "its own rest begins with what is known of the host"
    assert bundles.is_stopped(second)
    bundles.note_released(second, REFUSED, 1.2)
    assert not bundles.has(second)
    assert bundles.next(99.0, ANSWERS) is None


def test_what_is_refused_without_a_head_stops_a_bundle_too() -> None:
    frontier, bundles, (first, second) = begun()
    bundles.note_released(first, REFUSED, 1.0)
    assert put_back(frontier) == [2, 3, 4, 5]
    assert bundles.is_stopped(second)


def test_a_pause_of_the_crawl_puts_back_what_is_not_asked_for() -> None:
    frontier, bundles, lives = begun()
    bundles.give_back_all(1.0)
    assert put_back(frontier) == [2, 3, 4, 5]
    assert not bundles.is_stopped(lives[1]), "it is handed out"
    for life in lives:
        bundles.note_released(life, PACE, 2.0)
    assert not bundles.has(lives[0])


def test_a_bundle_goes_on_when_the_operator_allows_more_in_its_middle() -> None:
    allowed = [2]

    def politeness(_: object) -> PolitenessSettings:
        return PolitenessSettings(paced_connections=allowed[0])

    bundles = Bundles(Mock(), politeness, politeness)
    lives = [life_of(bundles, bundles.first_of(LEASES, 0.0))]
    lives.append(life_of(bundles, bundles.next(1.0, ANSWERS)))
    assert bundles.next(2.0, ANSWERS) is None, "two are under way"
    allowed[0] = 3
    for life in lives:
        bundles.note_released(life, PACE, 3.0)
    assert bundles.next(4.0, ANSWERS) is not None


def test_a_bundle_ends_before_a_url_that_a_rule_gives_a_rest_of_its_own() -> None:
    frontier = Mock()
    alone = PolitenessSettings(paced_connections=3, min_delay_s=2.0, paced_min_delay_s=2.0)
    bundles = Bundles(
        frontier, lambda _: SETTINGS, lambda url: alone if url.endswith(("2", "4")) else SETTINGS
    )
    assert bundles.first_of(LEASES, 0.0) == LEASES[0]
    assert put_back(frontier) == [2, 3, 4, 5]
