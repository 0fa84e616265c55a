"""What a page needs to be shown: requests under its lease, and under turns that are borrowed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from crawler.config.settings import PolitenessSettings
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.loop.life import Life, Lives, Plan
from crawler.loop.loop import Loop, LoopLimits
from crawler.model.types import (
    Answer,
    BorrowedTurn,
    HostKey,
    NotItsTurn,
    NoTurn,
)
from crawler.policy.operator_rules import NO_RULES, read_rules
from crawler.policy.politeness import Uplink, UplinkLimits
from crawler.policy.silent_hosts import SilentHosts
from tests.harness.frontiers import EmbeddedWorld, at_once, candidate, memory_store

A, URL = HostKey("a"), "http://a/script.js"
SETTINGS = PolitenessSettings(delay_factor=10.0, min_delay_s=1.0, backoff_base_s=0.0)


class LoopOverAFrontier:
    """A loop, over a frontier of host *a*, whose URL is leased if *is_leased*."""

    def __init__(self, folder: Path, rules: str = "") -> None:
        with memory_store(folder) as store:
            self.world = EmbeddedWorld(store, folder)
        self.frontier: TwoTierFrontier = self.world.reopen(0.0)
        self.frontier.add([candidate("page")], 0.0)
        self.now = 0.0
        self.figures = Mock()
        parts: dict[str, Any] = dict.fromkeys([each.name for each in fields(Loop) if each.init])
        self.loop = Loop(
            **parts
            | {
                "frontier": self.frontier,
                "figures": self.figures,
                "now": lambda: self.now,
                "origins": Mock(operator=read_rules(rules, 3) if rules else NO_RULES),
                "limits": LoopLimits(politeness=SETTINGS),
                "uplink": Uplink(UplinkLimits()),
                "silent_hosts": SilentHosts(),
                "random": Random(1),
                "precheck": Mock(),
                "lives": Lives(),
            }
        )

    def lease(self) -> Life:
        (lease,) = self.frontier.lease(self.now)
        life = Life(Plan(lease=lease, url=lease.candidate.url))
        self.loop.begin(life)
        return life

    def borrow(self) -> BorrowedTurn | NotItsTurn:
        return at_once(self.loop.borrow(A, URL, self.now + 5.0))

    def turn(self) -> BorrowedTurn:
        turn = self.borrow()
        assert isinstance(turn, BorrowedTurn)
        return turn

    @property
    def rest_until(self) -> float:
        return self.frontier.record_of(A).rest_until


@pytest.fixture
def over(tmp_path: Path) -> LoopOverAFrontier:
    return LoopOverAFrontier(tmp_path)


def test_a_host_rests_after_a_page_as_after_all_requests_for_it(over: LoopOverAFrontier) -> None:
    life = over.lease()
    over.now = 0.5
    over.loop.note_aside(life, Answer(0.3, 200))
    over.loop.note_aside(life, Answer(0.02, 404))
    over.now = 2.0
    over.loop.note_answer(life, Answer(0.18, 200))
    over.loop.release(life)
    assert over.rest_until == pytest.approx(2.0 + 1.8 + 3.0 + 2.1), "the last eases"
    record = over.frontier.record_of(A)
    assert (record.tally.fetches, record.tally.pages, record.tally.failures) == (3, 1, 1)
    assert record.pace.gap_s == pytest.approx(2.1)


@pytest.mark.parametrize("asides", [1, 2, 3, 6, 7, 40])
def test_a_crash_leaves_the_rest_of_all_that_was_sent(tmp_path: Path, asides: int) -> None:
    over = LoopOverAFrontier(tmp_path)
    life = over.lease()
    life.end(0.1)
    for _ in range(asides):
        over.loop.note_aside(life, Answer(0.1, 200))
    over.frontier = over.world.reopen(0.0)
    sent = 2 + asides  # with one under way
    assert sent <= over.rest_until <= 4 * sent, "a second for each, and not many more"


def test_trouble_beside_a_page_is_written_at_once_and_counts_once(over: LoopOverAFrontier) -> None:
    over.now = 1.0
    life = over.lease()
    over.loop.note_aside(life, Answer(0.1, 200))
    over.loop.note_aside(life, Answer(0.1, 503, retry_after_s=40.0))
    over.loop.note_aside(life, Answer(0.1, 503))
    over.frontier = over.world.reopen(0.0)
    assert over.rest_until >= 40.0
    over.loop.frontier = Mock()
    rest = over.loop.release(life)
    assert rest is not None and rest.seconds >= 40.0
    assert rest.asked_s == 40.0 and rest.pace.failures == 1


def test_a_head_beside_a_page_does_not_shorten_what_another_asked_for(
    over: LoopOverAFrontier,
) -> None:
    life = over.lease()
    over.loop.note_head(life, 429, b"60")
    over.loop.note_head(life, 429, b"5")
    assert life.head is not None and life.head.retry_after_s == 60.0


def test_a_host_rests_after_a_borrowed_turn_by_its_answers(over: LoopOverAFrontier) -> None:
    turn = over.turn()
    over.now = 1.0
    rest = over.loop.give_back(
        turn, URL, [Answer(0.2, 200), Answer(0.1, 200)], crawl_delay_s=4.0, body_bytes=70
    )
    assert (rest.seconds, rest.reason) == (8.0, "crawl-delay")
    assert over.rest_until == 9.0
    record = over.frontier.record_of(A)
    assert (record.tally.fetches, record.tally.pages, record.tally.bytes) == (2, 0, 70)
    assert record.pace.answered and not record.pace.has_page
    assert over.figures.count_rest.call_args.args[1] == [Answer(0.2, 200), Answer(0.1, 200)]


def test_a_turn_without_a_request_needs_no_rest(over: LoopOverAFrontier) -> None:
    over.loop.give_back(over.turn(), URL, [])
    assert over.rest_until == 0.0
    assert over.turn()


@pytest.mark.parametrize(
    ("status", "retry_after", "ends"),
    [(200, None, False), (404, None, False), (503, None, True), (429, b"90", True)],
)
def test_a_head_with_trouble_ends_a_turn_and_is_written_at_once(
    over: LoopOverAFrontier, status: int, retry_after: bytes | None, ends: bool
) -> None:
    turn = over.turn()
    before = over.rest_until
    assert over.loop.note_turn_head(turn, URL, status, retry_after, 0.1) is ends
    over.frontier = over.world.reopen(0.0)
    assert over.rest_until >= (90.0 if retry_after else before)


def test_failures_under_turns_pause_a_host_as_those_of_pages_do(over: LoopOverAFrontier) -> None:
    for _ in range(SETTINGS.pause_after_failures):
        rest = over.loop.give_back(over.turn(), URL, [Answer(0.1, None, "timeout")])
        over.now += rest.seconds
    assert rest.reason == "pause"


def test_while_our_own_connection_is_down_no_host_is_charged(over: LoopOverAFrontier) -> None:
    turn = over.turn()
    over.loop.uplink = Mock(charges_host=lambda: False, is_down=lambda now: True, probe_at=8.0)
    rest = over.loop.give_back(turn, URL, [Answer(0.1, None, "connect")])
    assert not rest.pace.failures
    assert over.borrow() == NotItsTurn(A, NoTurn.UPLINK, 8.0)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param('[[rule]]\nfor = "a"\nrefuse = true\n', NoTurn.REFUSED, id="its host"),
        pytest.param('[[rule]]\nfor = "http://a/*.js"\nrefuse = true\n', NoTurn.REFUSED, id="URL"),
        pytest.param('[[rule]]\nfor = "a"\npaused = true\n', NoTurn.PAUSED, id="pause"),
        pytest.param("paused = true\n", NoTurn.PAUSED, id="pause of all"),
    ],
)
def test_what_the_operator_says_goes_before(tmp_path: Path, rules: str, why: NoTurn) -> None:
    turn = LoopOverAFrontier(tmp_path, rules).borrow()
    assert isinstance(turn, NotItsTurn) and turn.why is why
