"""The guarantees of a frontier, over every implementation: one test for each guarantee or corner
case."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec
import pytest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.records import FrontierTotals, UrlEvent, UrlState
from crawler.model.types import (
    Again,
    Claim,
    ConfigError,
    Dead,
    Done,
    Moved,
    OverBudgetLinks,
    Pace,
    PageHistory,
    Purpose,
    PutBack,
    Rest,
    RetryAt,
    Standing,
    StoreUnavailable,
)
from tests.harness.frontiers import EmbeddedWorld, candidate, drain, rest


def urls(leases):
    return [one.candidate.url for one in leases]


def test_a_url_is_leased_until_it_is_finished_and_then_never_again(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (first,) = frontier.lease(0.0, 10)
    frontier.release(first, rest(2), 1.0)
    frontier.finish(first, RetryAt(1.0), 1.0)
    assert drain(frontier, 2.9) == []
    (second,) = drain(frontier, 3.0)
    assert second.candidate.url == first.candidate.url
    assert second.candidate.attempts == 1
    frontier.release(second, rest(2), 4.0)
    frontier.finish(second, Done(), 4.0)
    assert frontier.add([candidate("x")], 5.0).seen == 1
    assert drain(frontier, 1e6) == []
    assert frontier.wake_at() is None


def test_the_seen_test_counts_inside_one_call_too(world):
    frontier = world.reopen(0.0)
    added = frontier.add([candidate("x"), candidate("x"), candidate("y")], 0.0)
    assert (added.new, added.seen) == (2, 1)


def test_an_unfiltered_url_passes_the_seen_test_every_time(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    assert frontier.add([candidate("x")], 0.0).seen == 1
    for _ in range(2):
        assert frontier.add([candidate("x", needs_seen_test=False)], 0.0).new == 1


def test_an_unfiltered_url_is_not_marked_as_seen(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x", needs_seen_test=False)], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, Moved(candidate("x", chain=(lease.candidate.key,))), 0.0)
    added = frontier.add([candidate("x")], 0.0)
    assert (added.new, added.seen) == (1, 0), "nor is the target of its own redirect"


def test_two_leases_are_never_open_on_one_host(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y"), candidate("z", host="b")], 0.0)
    assert sorted(one.candidate.host for one in drain(frontier, 0.0)) == ["a", "b"]


def two_at_once(host, pace):
    return 2


def bundle(frontier, now):
    """Lease all of host a's URLs that may be fetched at once."""
    leases = frontier.lease(now, 1, per_host=two_at_once)
    assert [each.candidate.host for each in leases] == ["a", "a"]
    return leases


def test_some_urls_of_a_host_are_leased_together_and_it_rests_when_the_last_is_released(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(each) for each in "vwxyz"], 0.0)
    first, second = bundle(frontier, 0.0)
    assert urls([first, second]) == ["http://a/v", "http://a/w"]
    frontier.release(second, rest(9), 1.0)
    frontier.finish(second, Done(), 1.0)
    assert drain(frontier, 100.0) == [], "one of them is under way"
    frontier.release(first, rest(0.5), 3.0)
    assert drain(frontier, 9.9) == [], "the longest rest of all"
    again = bundle(frontier, 10.0)
    assert {each.pace.gap_s for each in again} == {0.5}, "the pace of the last"
    for lease in (first, *again):
        assert frontier.finish(lease, Done(), 11.0)
    frontier.add([candidate("u")], 20.0)
    assert len(frontier.lease(20.0)) == 1, "one at once, if nothing else is asked for"


def test_a_bundle_ends_with_what_waits_at_its_level(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y"), candidate("later", level=1)], 0.0)
    frontier.add([candidate("z", host="b"), candidate("later", host="b", level=1)], 0.0)
    leases = frontier.lease(0.0, 2, per_host=two_at_once)
    assert sorted(urls(leases)) == ["http://a/x", "http://a/y", "http://b/z"]
    hosts = [each.candidate.host for each in leases]
    assert hosts in (["a", "a", "b"], ["b", "a", "a"]), "those of a host one after another"


@pytest.mark.parametrize("released", [0, 1])
def test_a_bundle_that_was_under_way_at_a_crash_counts_as_the_longest_fetch(world, released):
    frontier = world.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"], 0.0)
    for lease in bundle(frontier, 0.0)[:released]:
        frontier.release(lease, rest(1), 0.5)
        frontier.finish(lease, Done(), 0.5)
    frontier = world.reopen(8.0)
    assert frontier.put_back_at_open == 2 - released
    assert drain(frontier, 11.9) == [], "8 s, and a gap of half of it"
    assert len(drain(frontier, 12.0)) == 1


def test_a_bundle_released_before_the_crash_keeps_its_longest_rest(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"], 0.0)
    for lease, seconds in zip(bundle(frontier, 0.0), (5, 2), strict=True):
        frontier.release(lease, rest(seconds), 1.0)
    frontier = world.reopen(5.0)
    assert frontier.put_back_at_open == 2
    assert drain(frontier, 5.9) == []
    assert len(drain(frontier, 6.0)) == 1


def test_what_a_head_of_a_bundle_asked_for_survives_the_death_of_the_process(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"], 0.0)
    first, second = bundle(frontier, 0.0)
    frontier.note_trouble(second, asks(50), 1.0)
    frontier.release(first, rest(1), 1.5)
    frontier = world.reopen(2.0)
    assert drain(frontier, 50.9) == []
    assert len(drain(frontier, 1000.0)) == 1


def test_a_rest_survives_that_the_host_runs_dry(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(50), 1.0)
    frontier.finish(lease, Done(), 1.0)
    frontier.add([candidate("y")], 2.0)
    assert drain(frontier, 50.9) == []
    assert urls(drain(frontier, 51.0)) == ["http://a/y"]


def test_a_rest_survives_a_restart(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(50), 1.0)
    frontier.finish(lease, Done(), 1.0)
    frontier = world.reopen(2.0)
    assert drain(frontier, 50.9) == []
    assert urls(drain(frontier, 51.0)) == ["http://a/y"]


def test_a_lease_open_at_a_crash_is_put_back_after_its_hosts_full_gap(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier = world.reopen(1.0)
    assert frontier.put_back_at_open == 1
    assert drain(frontier, 2.9) == []
    (again,) = drain(frontier, 3.0)
    assert again.candidate.url == lease.candidate.url, "to the head, not to the tail"
    assert again.id != lease.id, "a fencing token is never used twice"


def test_a_fetch_cut_off_by_a_crash_counts_as_long_as_it_can_have_taken(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    frontier.lease(0.0)
    frontier = world.reopen(8.0)
    assert drain(frontier, 11.9) == [], "8 s, and a gap of half of it"
    assert len(drain(frontier, 12.0)) == 1
    frontier = world.reopen(1000.0)
    assert len(drain(frontier, 1002.0)) == 1, "its longest gap is long over"


def asks(seconds):
    """The rest after an answer whose Retry-After asks for *seconds*."""
    return Rest(seconds, Pace(gap_s=1.0, failures=1), "retry-after", seconds)


def test_what_a_head_asked_for_survives_the_death_of_the_process(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.note_trouble(lease, asks(50), 1.0)
    assert not drain(frontier, 40.0), "the lease stays as it is"
    frontier = world.reopen(2.0)
    assert drain(frontier, 50.9) == []
    (again,) = drain(frontier, 1000.0)
    assert again.pace.failures == 1


def test_a_lost_answer_counts_as_one_that_asked_for_the_longest_time_the_host_ever_asked_for(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, asks(50), 1.0)
    frontier.finish(lease, Done(), 1.0)
    (lease,) = frontier.lease(60.0)
    frontier.release(lease, asks(3), 61.0)
    frontier.finish(lease, RetryAt(61.0), 61.0)
    assert len(frontier.lease(70.0)) == 1
    frontier = world.reopen(71.0)
    assert drain(frontier, 120.9) == [], "1 s of the fetch, and the longer of both"
    assert len(drain(frontier, 122.0)) == 1


def test_what_a_host_asked_for_is_forgotten_after_a_day_without_trouble(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, asks(50), 1.0)
    frontier.finish(lease, Done(), 1.0)
    day = 86_400.0
    assert len(frontier.lease(day + 10)) == 1
    frontier = world.reopen(day + 11)
    assert len(drain(frontier, day + 14)) == 1


def test_a_host_released_before_the_crash_keeps_its_rest(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(3), 1.0)
    frontier = world.reopen(2.0)
    assert drain(frontier, 3.9) == []
    assert len(drain(frontier, 4.0)) == 1


def test_a_crash_while_a_page_is_stored_puts_it_back_too(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(1), 0.5)
    frontier = world.reopen(10.0)
    assert urls(drain(frontier, 20.0)) == ["http://a/x"]


@pytest.mark.parametrize(
    ("leased_again", "died", "due"),
    [
        pytest.param(20.0, 30.0, 35.0, id="not too early: the cut-off fetch is the later one"),
        pytest.param(0.5, 6.5, 9.5, id="not too late: the earlier one was over at once"),
    ],
)
def test_only_the_newest_of_a_hosts_open_leases_can_have_been_cut_off(
    world, leased_again, died, due
):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    assert len(frontier.lease(leased_again)) == 1
    frontier = world.reopen(died)
    assert drain(frontier, due - 0.01) == []
    assert len(drain(frontier, due + 0.01)) == 1


def test_a_restart_rests_a_host_its_own_gap_or_crawl_delay(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, Rest(1.0, Pace(gap_s=1.0, crawl_delay_s=30.0)), 0.0)
    frontier.finish(lease, Done(), 0.0)
    (lease,) = drain(frontier, 1.0)
    frontier = world.reopen(10.0)
    assert drain(frontier, 39.9) == []
    assert len(drain(frontier, 40.0)) == 1


def test_a_lease_of_a_dead_process_changes_nothing(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier = world.reopen(10.0)
    assert not frontier.release(lease, rest(1), 10.0)
    assert not frontier.finish(lease, Done(), 10.0)
    assert frontier.counts().waiting == 1


def test_a_lease_is_released_and_finished_once(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    assert frontier.release(lease, rest(1), 1.0)
    assert not frontier.release(lease, rest(1), 1.0)
    assert frontier.finish(lease, Done(), 1.0)
    assert not frontier.finish(lease, Done(), 1.0)
    assert not frontier.release(lease, rest(1), 1.0)


def test_finishing_without_release_rests_the_host_too(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.finish(lease, Done(), 1.0)
    assert drain(frontier, 2.9) == []
    assert len(drain(frontier, 3.0)) == 1


@pytest.mark.parametrize(
    ("verdict", "moves"),
    [
        pytest.param(Done(), [("leased", "finish")], id="done"),
        pytest.param(
            Done(again=Again(PageHistory(1, 1, 1), at=9.0)),
            [("leased", "finish"), ("done", "revisit")],
            id="a next visit",
        ),
        pytest.param(RetryAt(9.0), [("leased", "postpone")], id="retry"),
        pytest.param(Moved(candidate("y")), [("leased", "finish"), ("unknown", "add")], id="moved"),
        pytest.param(PutBack(), [("leased", "put back")], id="put back"),
        pytest.param(PutBack(is_first=False), [("leased", "put back")], id="put back as the last"),
        pytest.param(Dead("gone"), [("leased", "give up")], id="dead"),
        pytest.param(None, [("leased", "lose")], id="its process died"),
    ],
)
def test_the_counters_change_as_the_table_of_moves_says(world, verdict, moves):
    frontier, expected = world.reopen(0.0), FrontierTotals()
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    if verdict is None:
        frontier = world.reopen(1.0)
    else:
        frontier.release(lease, rest(2), 1.0)
        frontier.finish(lease, verdict, 1.0)
    for state, event in [("unknown", "add"), ("waiting", "lease"), *moves]:
        expected.count(UrlState(state), UrlEvent(event))
    counters = [state for state in UrlState if state is not UrlState.UNKNOWN]
    counts = frontier.counts()
    assert {each: getattr(counts, each) for each in counters} == {
        each: getattr(expected, each) for each in counters
    }


def test_put_back_goes_to_the_head_and_counts_no_attempt(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(name) for name in "xyz"], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, PutBack(), 0.0)
    (again,) = drain(frontier, 0.0)
    assert again.candidate == lease.candidate


def test_a_failure_of_the_whole_host_counts_no_attempt_and_its_pace_is_kept(world):
    frontier, down = world.reopen(0.0), Pace(2.0, 20, 16, standing=Standing.ANSWERS, answered=True)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    assert not lease.pace.answered
    frontier.release(lease, Rest(2.0, down), 0.0)
    frontier.finish(lease, RetryAt(2.0, is_counted=False), 0.0)
    (again,) = drain(frontier, 2.0)
    assert again.candidate.attempts == 0
    assert again.pace == down


def test_what_is_put_back_as_the_last_goes_behind_its_equals(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(name) for name in "xy"], 0.0)
    order = []
    for now in (0.0, 1.0, 2.0, 3.0):
        (lease,) = drain(frontier, now)
        order.append(lease.candidate)
        frontier.release(lease, rest(0), now)
        frontier.finish(lease, PutBack(is_first=False), now)
    assert order[:2] == order[2:], "no attempt is counted"
    assert order[0] != order[1]


def test_a_robots_txt_that_another_host_waits_for_goes_before_all_urls_of_its_own(world):
    """Else it would stand behind a page that waits for the robots.txt of the other host."""
    frontier = world.reopen(0.0)
    frontier.add([candidate(name) for name in "xyz"], 0.0)
    (page,) = frontier.lease(0.0)
    robots = candidate(
        "robots.txt", purpose=Purpose.ROBOTS, authority="http://b", needs_seen_test=False
    )
    frontier.add([robots], 0.0)
    frontier.release(page, rest(1), 0.0)
    frontier.finish(page, PutBack(is_first=False), 0.0)
    assert urls(drain(frontier, 1.0)) == [robots.url]
    assert (frontier.counts().waiting, frontier.counts().later) == (3, 0)


@pytest.mark.parametrize("verdict", [RetryAt(0.0), PutBack(), PutBack(is_first=False)])
def test_a_url_put_back_keeps_the_fields_of_its_verdict(world, verdict):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    lost = msgspec.structs.replace(lease.candidate, may_be_archived=True)
    frontier.release(lease, rest(0), 0.0)
    assert frontier.finish(msgspec.structs.replace(lease, candidate=lost), verdict, 0.0)
    (again,) = drain(frontier, 0.0)
    assert (again.candidate.url, again.candidate.may_be_archived) == (lost.url, True)


def test_what_is_put_back_is_leased_before_its_equals_across_a_restart(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(name) for name in "xyz"], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, PutBack(), 0.0)
    frontier = world.reopen(0.0)
    assert urls(drain(frontier, 0.0)) == ["http://a/x"]


def test_a_later_url_waits_for_its_date_across_a_restart(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x", not_before=100.0)], 0.0)
    assert frontier.counts().later == 1
    frontier = world.reopen(1.0)
    assert drain(frontier, 99.9) == []
    assert not world.wakes(frontier, 99.999)
    assert world.wakes(frontier, 100.00001)
    assert urls(drain(frontier, 100.001)) == ["http://a/x"]


def test_done_with_a_next_visit_comes_again_as_new(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(1), 0.0)
    frontier.finish(lease, Done(again=Again(PageHistory(0, 0, 0), at=1000.0)), 0.0)
    (again,) = drain(frontier, 1000.001)
    assert again.candidate.attempts == 0


def test_a_redirect_target_waits_for_its_own_host(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("busy", host="b")], 0.0)
    leases = {one.candidate.host: one for one in drain(frontier, 0.0)}
    frontier.release(leases["a"], rest(1), 0.0)
    frontier.finish(leases["a"], Moved(candidate("target", host="b")), 0.0)
    assert drain(frontier, 0.0) == [], "b is leased"
    frontier.release(leases["b"], rest(5), 0.0)
    frontier.finish(leases["b"], Done(), 0.0)
    assert urls(drain(frontier, 5.0)) == ["http://b/target"]


def test_a_redirect_to_a_seen_url_adds_nothing(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, Moved(candidate("y")), 0.0)
    assert urls(drain(frontier, 0.0)) == ["http://a/y"]
    assert frontier.counts().waiting == 0


def test_a_redirect_to_a_key_of_its_own_chain_is_no_seen_test(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0), 0.0)
    bounce = candidate("x", chain=(lease.candidate.key,))
    frontier.finish(lease, Moved(bounce), 0.0)
    (again,) = drain(frontier, 0.0)
    assert again.candidate.chain == (lease.candidate.key,)


def test_a_dead_letter_is_kept_with_its_reason(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.finish(lease, Dead("gave up after 3 tries: timeout"), 0.0)
    assert frontier.counts().dead == 1
    (letter,) = world.letters()
    assert "gave up after 3 tries" in letter.reason
    assert drain(frontier, 1e6) == []


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(Done, id="of a page"),
        pytest.param(
            partial(Done, again=Again(PageHistory(0, 0, 0), at=5.0)),
            id="of a page that is fetched again",
        ),
        pytest.param(partial(Moved, candidate("y")), id="of a page that names another URL"),
    ],
)
def test_a_claim_is_written_with_the_finish(world, verdict, status):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = frontier.lease(0.0)
    claim = Claim(b"digest", "http://a/x", "f:0", 1.0, b"wire", status)
    frontier.finish(lease, verdict(claim=claim), 0.0)
    assert world.claim(b"digest") == claim


def test_budgets_refuse_without_marking_seen(world):
    world.limits = replace(world.limits, max_urls_per_domain=2)
    frontier = world.reopen(0.0)
    added = frontier.add([candidate(name) for name in "xyz"], 0.0)
    assert (added.new, added.over_budget) == (2, 1)
    assert added.kept_out == (OverBudgetLinks("domain", "a", 1, 2),)
    assert frontier.add([candidate("z")], 0.0).over_budget == 1, "each time that it is found"
    world.limits = replace(world.limits, max_urls_per_domain=3)
    assert world.reopen(0.0).add([candidate("z")], 0.0).new == 1


def test_a_hosts_budget_is_its_own(world):
    world.limits = replace(world.limits, max_urls_per_host=1)
    frontier = world.reopen(0.0)
    found = [candidate("x"), candidate("y"), candidate("x", host="b")]
    added = frontier.add(found, 0.0)
    assert (added.over_budget, added.kept_out) == (1, (OverBudgetLinks("host", "a", 1, 1),))


def test_of_two_budgets_that_are_used_up_the_host_s_is_named(world):
    world.limits = replace(world.limits, max_urls_per_host=1, max_urls_per_domain=1)
    added = world.reopen(0.0).add([candidate("x"), candidate("y")], 0.0)
    assert added.kept_out == (OverBudgetLinks("host", "a", 1, 1),)


def test_redirect_targets_count_against_the_budget(world):
    world.limits = replace(world.limits, max_urls_per_host=2)
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    pages = []
    for hop in range(5):
        leases = drain(frontier, 0.0)
        if not leases:
            break
        pages += urls(leases)
        frontier.release(leases[0], rest(0), 0.0)
        frontier.finish(leases[0], Moved(candidate(f"hop{hop}")), 0.0)
    assert pages == ["http://a/x", "http://a/hop0"]


def test_a_robots_txt_is_no_page_of_any_budget(world):
    world.limits = replace(world.limits, max_urls_per_host=1, max_urls_per_domain=1)
    frontier = world.reopen(0.0)
    robots = candidate("robots.txt", purpose=Purpose.ROBOTS, needs_seen_test=False)
    assert frontier.add([candidate("x"), robots, robots], 0.0).new == 3
    assert frontier.add([candidate("y")], 0.0).over_budget == 1


def test_what_a_spiders_code_names_counts_against_no_budget(world):
    world.limits = replace(world.limits, max_urls_per_host=2, max_urls_per_domain=2)
    frontier = world.reopen(0.0)
    named = [candidate(f"named{n}", request=b"packed") for n in range(5)]
    added = frontier.add([*named, *(candidate(name) for name in "xyz")], 0.0)
    assert (added.new, added.over_budget) == (7, 1)
    frontier = world.reopen(0.0)
    assert frontier.add([candidate("later", request=b"packed")], 0.0).new == 1
    (lease,) = drain(frontier, 0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, Moved(candidate("target", request=b"packed")), 0.0)
    assert sum(1 for _ in iter(lambda: take_one(frontier), None)) == 8


def take_one(frontier):
    for lease in drain(frontier, 0.0):
        frontier.release(lease, rest(0), 0.0)
        frontier.finish(lease, Done(), 0.0)
        return lease
    return None


def test_within_a_host_better_levels_come_first_then_arrival(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("low", level=2), candidate("mid1", level=1)], 0.0)
    frontier.add([candidate("mid2", level=1), candidate("top", level=0)], 0.0)
    order = []
    while leases := drain(frontier, 0.0):
        order += urls(leases)
        frontier.release(leases[0], rest(0), 0.0)
        frontier.finish(leases[0], Done(), 0.0)
    assert [url[-4:].strip("/") for url in order] == ["top", "mid1", "mid2", "low"]


def test_a_better_url_is_taken_next_even_while_its_host_is_active(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n), level=2) for n in range(5)], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.add([candidate("top", level=0)], 0.0)
    frontier.release(lease, rest(0), 0.0)
    frontier.finish(lease, Done(), 0.0)
    assert urls(drain(frontier, 0.0)) == ["http://a/top"]


def test_levels_share_the_leases_and_none_starves(world):
    frontier = world.reopen(0.0)
    for level in range(3):
        for host in range(40):
            name = f"l{level}h{host}"
            frontier.add([candidate(str(n), host=name, level=level) for n in range(30)], 0.0)
    leases_of_host = [0, 0, 0]
    for _ in range(400):
        (lease,) = frontier.lease(0.0)
        leases_of_host[lease.candidate.level] += 1
        frontier.release(lease, rest(0), 0.0)
        frontier.finish(lease, Done(), 0.0)
    assert leases_of_host == pytest.approx([240, 120, 40], abs=3)


def test_one_big_host_does_not_delay_other_hosts(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n), host="big") for n in range(100)], 0.0)
    frontier.add([candidate("x", host=f"small{n}") for n in range(10)], 0.0)
    taken = []
    for _ in range(40):
        (lease,) = frontier.lease(0.0)
        taken.append(lease.candidate.host)
        frontier.release(lease, rest(0), 0.0)
        frontier.finish(lease, Done(), 0.0)
    assert {f"small{n}" for n in range(10)} <= set(taken)


def test_the_hosts_in_memory_are_bounded(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n), host=f"h{host}") for host in range(60) for n in range(3)], 0.0)
    pages = 0
    for tick in range(600):
        for lease in frontier.lease(tick / 10):
            pages += 1
            frontier.release(lease, rest(3), tick / 10)
            frontier.finish(lease, Done(), tick / 10)
        assert frontier.counts().hosts_active <= world.limits.max_active_hosts + 1
    assert pages == 180, "and yet every due host had its turn"


def test_counts_survive_a_restart(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(name) for name in "xyz"], 0.0)
    frontier.add([candidate("later", not_before=9.0)], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.finish(lease, Done(), 0.0)
    before = frontier.counts()
    after = world.reopen(0.0).counts()
    assert msgspec.structs.replace(after, hosts_active=0) == msgspec.structs.replace(
        before, hosts_active=0
    )
    assert (after.waiting, after.later, after.done, after.seen) == (2, 1, 1, 4)


@pytest.mark.parametrize("drift", [-1, 19])
def test_the_end_is_read_from_the_queues_not_from_the_counters(world, drift):
    """-1: as if nothing waited, though one URL does."""
    frontier = world.reopen(0.0)
    assert frontier.is_over()
    frontier.add([candidate("x"), candidate("later", not_before=50.0)], 0.0)
    world.drift(frontier, drift)
    (lease,) = frontier.lease(0.0)
    assert not frontier.is_over()
    frontier.release(lease, rest(10), 0.0)
    assert not frontier.is_over()
    frontier.finish(lease, Done(), 0.0)
    assert not frontier.is_over()
    (lease,) = frontier.lease(60.0)
    frontier.release(lease, rest(10), 60.0)
    frontier.finish(lease, Done(), 60.0)
    assert drain(frontier, 80.0) == []
    assert frontier.is_over()


def test_levels_may_grow_between_runs_but_not_shrink(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x", level=2)], 0.0)
    world.limits = replace(world.limits, level_shares=(60, 30, 10, 1))
    assert world.reopen(0.0).add([candidate("y", level=3)], 0.0).new == 1
    world.limits = replace(world.limits, level_shares=(60, 40))
    with pytest.raises(ConfigError, match="CRAWLER_LEVEL_SHARES"):
        world.reopen(0.0)


def test_time_never_goes_back_when_the_clock_was_set_back(world):
    frontier = world.reopen(1e9)
    frontier.add([candidate("x"), candidate("y")], 1e9)
    (lease,) = frontier.lease(1e9)
    frontier.release(lease, rest(2), 1e9)
    frontier.finish(lease, Done(), 1e9)
    frontier = world.reopen(0.0)
    assert frontier.clock == 1e9
    assert drain(frontier, 1e9 + 1.9) == []
    assert len(drain(frontier, 1e9 + 2.0)) == 1


class FullDisk(MemoryStore):
    full = False

    def write(self, changes):
        if self.full:
            raise StoreUnavailable("no space left on device")
        super().write(changes)


def test_after_a_refused_write_nothing_more_is_promised_and_nothing_is_lost(tmp_path):
    store = FullDisk()
    world = EmbeddedWorld(store, tmp_path)
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("y")], 0.0)
    store.full = True
    with pytest.raises(StoreUnavailable):
        frontier.lease(0.0)
    store.full = False
    with pytest.raises(StoreUnavailable):
        frontier.add([candidate("z")], 0.0)
    reopened = world.reopen(0.0)
    assert reopened.counts().waiting == 2
    assert len(drain(reopened, 0.0)) == 1


def failing(seconds: float) -> Rest:
    return Rest(seconds, Pace(gap_s=seconds, standing=Standing.FAILS))


def answering(seconds: float) -> Rest:
    return Rest(seconds, Pace(gap_s=seconds, standing=Standing.ANSWERS))


def test_hosts_of_a_standing_that_may_not_be_leased_hold_up_no_others(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(name, host=host) for host in "abcdef" for name in "xy"], 0.0)
    rests = {"a": answering(1), "b": failing(1), "c": answering(9), "d": failing(9)}
    for lease in drain(frontier, 0.0):
        if lease.candidate.host in rests:
            frontier.release(lease, rests[lease.candidate.host], 0.0)
            frontier.finish(lease, Done(), 0.0)
    frontier = world.reopen(0.5)  # what was not released is NEW still, and rests until 2.5

    def hosts(now, *standings):
        leases = [lease for _ in range(8) for lease in frontier.lease(now, 1, standings)]
        assert all(lease.pace.standing in standings for lease in leases)
        return [lease.candidate.host for lease in leases]

    assert hosts(3.0, Standing.ANSWERS) == ["a"]
    assert not world.wakes(frontier, 8.999, (Standing.ANSWERS,)), "b, e and f wait"
    assert sorted(hosts(3.0, Standing.NEW)) == ["e", "f"]
    assert hosts(3.0, Standing.ANSWERS, Standing.NEW) == []
    assert world.wakes(frontier, 3.0, (Standing.FAILS,))
    assert hosts(3.0, Standing.FAILS) == ["b"]
    assert world.wakes(frontier, 9.00001, (Standing.ANSWERS,))
    assert hosts(9.0, Standing.FAILS) == ["d"]
    assert hosts(9.0, Standing.ANSWERS) == ["c"]


def test_a_host_with_a_robots_txt_is_leased_before_hosts_never_asked(world):
    """Else it would wait for all the others twice: for its robots.txt, and for its first page."""
    frontier = world.reopen(0.0)
    frontier.add([candidate("x", host=f"h{n}") for n in range(60)], 0.0)
    (robots,) = frontier.lease(0.0)
    frontier.release(robots, rest(1.0), 0.0)
    frontier.finish(robots, PutBack(), 0.0)
    early = frontier.lease(0.9, 10)
    order = [lease.candidate for lease in [*early, *drain(frontier, 1.0)]]
    assert len(order) == 60
    # Three shards of a shared frontier, four of each asked for.
    assert robots.candidate in order[len(early) : len(early) + 12]


def test_the_hosts_that_are_left_are_known_when_nothing_else_is(tmp_path):
    """Those in memory, and those that rest for so long that they are on disk."""
    frontier = EmbeddedWorld(MemoryStore(), tmp_path).reopen(0.0)
    assert list(frontier.hosts_left()) == []
    frontier.add([candidate("x"), candidate("y", host="b")], 0.0)
    assert None in frontier.hosts_left(), "they wait for a turn"
    leases = {lease.candidate.host: lease for lease in drain(frontier, 0.0)}
    assert None not in frontier.hosts_left(), "they are leased, as the caller knows"
    for host, rest_s in (("a", 3.0), ("b", 5000.0)):
        frontier.release(leases[host], rest(rest_s), 0.0)
        frontier.finish(leases[host], PutBack(), 0.0)
    drain(frontier, 0.0)
    assert dict(frontier.hosts_left()) == {"a": 3.0, "b": 5000.0}
    (lease,) = drain(frontier, 3.0)
    frontier.release(lease, rest(1), 3.0)
    frontier.finish(lease, RetryAt(60.0), 3.0)
    assert None in frontier.hosts_left(), "one has a date"


def test_the_hosts_with_most_left_to_do_are_known(world):
    """By what is left times the rest; across evictions and a restart."""
    frontier = world.reopen(0.0)
    many = [candidate(f"{number}", host="many") for number in range(6)]
    slow = [candidate(f"{number}", host="slow") for number in range(2)]
    frontier.add([*many, *slow, candidate("x", host="few")], 0.0)
    (first,) = (one for one in drain(frontier, 0.0) if one.candidate.host == "slow")
    pace = Pace(gap_s=60.0, fetches=3, log_fetch_s=-2.5, log_variance=0.25)
    frontier.release(first, Rest(3.0, pace), 1.0)
    frontier.finish(first, Done(), 1.0)
    slowest, second, *_ = frontier.longest_hosts(100)
    assert (slowest.host, slowest.waiting, slowest.rest_until) == ("slow", 1, 4.0)
    assert slowest.pace == pace
    assert (second.host, second.waiting, second.is_leased) == ("many", 5, True)
    assert [one.host for one in frontier.longest_hosts(1)] == ["slow"]
    sampled = frontier.sampled_paces()
    assert len(sampled) == 3
    assert pace in sampled
    frontier = world.reopen(1000.0)
    for lease in drain(frontier, 2000.0):
        frontier.release(lease, Rest(0.0, lease.pace), 2000.0)
        frontier.finish(lease, Done(), 2000.0)
    found = frontier.longest_hosts(100)
    assert [(one.host, one.waiting) for one in found] == [("many", 5)]
    for lease in drain(frontier, 2000.0):
        frontier.finish(lease, Done(), 2000.0)
