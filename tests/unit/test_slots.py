"""Which fetches take a slot: by checks of their progress, one after another, without a clock."""

from __future__ import annotations

import pytest

from crawler.loop.slots import SlotLimits, Slots
from crawler.model.types import Answer, Standing

RULES = SlotLimits(concurrency=4, max_waiting=8, slow_after_s=1.0, slow_bytes=100)
NEW, ANSWERS, FAILS = Standing.NEW, Standing.ANSWERS, Standing.FAILS


def nothing():
    """A callback for when no fetch waits for a slot."""


def begin(slots, number, standing):
    for request in range(number):
        slots.begin((standing, request), standing)
        slots.set_waiting(slots.progress_of((standing, request)), for_host=True)


def pass_s(slots, seconds):
    for _ in range(round(seconds / RULES.check_interval_s) + 1):
        slots.check(RULES.check_interval_s)


def test_hosts_of_one_standing_take_no_slot_of_another():
    slots = Slots(RULES, nothing)
    begin(slots, 4, NEW)
    assert slots.free_standings() == (ANSWERS, FAILS), "the best first"
    begin(slots, 1, FAILS)
    assert slots.free_standings() == (ANSWERS,), "hosts that failed have a quarter"
    begin(slots, 4, ANSWERS)
    assert slots.free_standings() == ()


def test_a_stalled_fetch_gives_its_slot_away():
    freed: list[tuple[Standing, ...]] = []
    slots = Slots(RULES, lambda: freed.append(slots.free_standings()))
    begin(slots, 4, ANSWERS)
    assert ANSWERS not in slots.free_standings()
    pass_s(slots, 1.0)
    assert slots.free_slots(ANSWERS) == 4
    assert slots.slow_count == 4
    assert len(slots) == 4, "it goes on"
    assert freed == [(ANSWERS, NEW, FAILS)], "the wait for a slot ends, once"


def test_a_fetch_with_progress_keeps_its_slot_or_takes_one_again():
    slots = Slots(RULES, nothing)
    begin(slots, 1, ANSWERS)
    progress = slots.progress_of((ANSWERS, 0))
    progress.received_bytes += 100
    pass_s(slots, 1.0)
    assert slots.slow_count == 0
    progress.received_bytes += 99  # it drips
    pass_s(slots, 1.0)
    assert slots.slow_count == 1
    progress.received_bytes += 5000
    pass_s(slots, 1.0)
    assert slots.slow_count == 0


def test_a_fetch_that_waits_for_us_keeps_its_slot():
    slots = Slots(RULES, nothing)
    begin(slots, 1, ANSWERS)
    slots.set_waiting(slots.progress_of((ANSWERS, 0)), for_host=False)
    pass_s(slots, 5.0)
    assert slots.slow_count == 0


def test_fetches_that_wait_for_their_host_are_limited_and_then_take_slots():
    slots = Slots(RULES, nothing)
    for _ in range(5):
        begin_at = len(slots)
        for request in range(begin_at, begin_at + slots.free_slots(NEW)):
            slots.begin(request, NEW)
            slots.set_waiting(slots.progress_of(request), for_host=True)
        pass_s(slots, 1.0)
    assert len(slots) == 4 + 8
    assert slots.free_standings() == (ANSWERS, FAILS)
    slots.end(0)
    assert slots.free_slots(NEW) == 1


def test_a_late_event_loop_makes_no_host_slow():
    slots = Slots(RULES, nothing)
    begin(slots, 1, ANSWERS)
    slots.check(60.0)
    slots.check(60.0)
    assert slots.slow_count == 0


def test_all_is_given_back_at_the_end():
    slots = Slots(RULES, nothing)
    begin(slots, 3, NEW)
    pass_s(slots, 1.0)
    begin_more = [(NEW, request) for request in range(3)]
    for request in begin_more:
        slots.end(request)
    pass_s(slots, 3.0)
    assert (len(slots), slots.slow_count, slots.free_slots(NEW)) == (0, 0, 4)


def test_without_a_limit_there_is_always_room():
    slots = Slots(SlotLimits(concurrency=0), nothing)
    begin(slots, 500, ANSWERS)
    assert slots.free_standings() == (ANSWERS, NEW, FAILS)


@pytest.mark.parametrize(
    ("seconds", "size", "hung"),
    [
        pytest.param(30.0, 30, True, id="a byte a second"),
        pytest.param(30.0, 30_000, False, id="slow, and large enough"),
        pytest.param(9.0, 30, False, id="slow to answer, and short"),
    ],
)
def test_an_answer_that_dripped_shows_a_host_that_hangs(seconds, size, hung):
    assert RULES.is_hung(Answer(seconds, 200), size) is hung


@pytest.mark.parametrize("most", [50_000, 2_000, 300, 10])
def test_there_are_never_more_connections_than_files(most):
    rules = SlotLimits().with_connections(most)
    slots_alone = SlotLimits(max_waiting=0).most_connections
    assert rules.most_connections <= max(most, slots_alone)
    assert 0 <= rules.max_waiting <= SlotLimits().max_waiting
