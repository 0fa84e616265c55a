"""The budgets of registered domains, over every implementation: what is over them waits, and none
of it is lost or counts as seen."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from crawler.frontier.records import DomainRecord
from crawler.frontier.sweep import Forget
from crawler.model.types import Candidate, Done, LinkSource, OverBudgetLinks
from crawler.policy.budgets import BudgetRules
from crawler.policy.operator_rules import RuleBudgets, read_rules
from tests.harness.frontiers import Refusing, candidate, rest

HOUR_S = 3600.0
FEW = BudgetRules(least=3, most=3, ranked=1)


def link(name, host, domain):
    return replace_domain(candidate(name, host=host), domain)


def replace_domain(found, domain):
    return Candidate(
        found.url, found.key, found.host, domain, found.depth, found.level, cash=found.cash
    )


def fetch(frontier, now, limit=1):
    """Lease up to *limit* URLs and finish them; return their URLs."""
    done = []
    while len(done) < limit and (leases := frontier.lease(now, 1)):
        for lease in leases:
            done.append(lease.candidate.url)
            frontier.release(lease, rest(0.0), now)
            frontier.finish(lease, Done(), now)
    return done


def fill(world, budgets=FEW, **limits):
    # Small limits of other tests would let hosts leave memory.
    world.limits = replace(world.limits, budgets=budgets, **limits)
    return world.reopen(0.0)


@pytest.fixture
def busy(world):
    """A frontier of which one domain has its budget and more, while another has URLs that wait."""
    frontier = fill(world)
    added = frontier.add([candidate(f"x{n}") for n in range(8)], 0.0, at_once=True)
    assert (added.new, added.over_budget) == (3, 5)
    assert added.kept_out == (OverBudgetLinks("round", "a", 5, 3, 1),)
    frontier.add([candidate(f"s{n}", host="b", depth=0) for n in range(30)], 0.0)
    return frontier


def of_host(urls, host):
    return [url for url in urls if url.startswith(f"http://{host}/")]


def test_what_is_over_a_budget_waits_for_the_next_round_while_others_wait(world, busy):
    found = fetch(busy, 0.0, 12)
    assert of_host(found, "a") == [f"http://a/x{n}" for n in range(3)]
    assert busy.counts().spilled == 5
    busy = world.reopen(10.0)
    found = fetch(busy, HOUR_S, 12)
    assert of_host(found, "a") == [f"http://a/x{n}" for n in range(3, 6)]
    assert busy.counts().spilled == 2


def test_it_goes_at_once_if_no_other_waits(world, busy):
    found = fetch(busy, 0.0, 100)
    assert len(of_host(found, "b")) == 30
    assert sorted(of_host(found, "a")) == [f"http://a/x{n}" for n in range(8)]
    assert busy.counts().spilled == 0
    assert busy.is_over()


def test_it_does_not_count_as_seen_and_is_lost_by_no_crash(world, busy):
    spilled = candidate("x7").key
    assert busy.seen_of([spilled]) == set()
    for now in (1.0, 2.0, 3.0):
        busy = world.reopen(now)
    assert len(of_host(fetch(busy, 4.0, 100), "a")) == 8
    assert busy.seen_of([spilled]) == {spilled}


def test_a_link_that_is_repeated_is_spilled_once(busy):
    before = busy.counts().spilled
    for _ in range(5):
        busy.add([candidate("x7"), candidate("x6")], 1.0, at_once=True)
    assert busy.counts().spilled == before


def test_of_very_many_a_sample_is_kept(world):
    frontier = fill(world)
    frontier.add([candidate(f"s{n}", host="b", depth=0) for n in range(9)], 0.0)
    names = [f"x{n}" for n in range(1000)]
    for at in range(0, 1000, 50):
        frontier.add([candidate(each) for each in names[at : at + 50]], 0.0, at_once=True)
    counts = frontier.counts()
    assert counts.spilled + counts.sampled_out == 997
    assert 15 <= counts.spilled <= 3 * 20 + 50, "20 budgets, and what came at once"
    frontier = world.reopen(1.0)
    found = of_host(fetch(frontier, 1.0, 2000), "a")
    assert len(found) == len(set(found)) == 3 + counts.spilled
    out = next(name for name in names if f"http://a/{name}" not in found)
    assert frontier.add([candidate(out)], 1.0, at_once=True).seen == 0, "it was never seen"
    assert frontier.is_over() or fetch(frontier, 1.0, 10)


def test_seeds_and_what_code_names_and_redirects_have_no_budget_of_a_round(world):
    frontier = fill(world)
    assert frontier.add([candidate(f"s{n}", depth=0) for n in range(9)], 0.0).new == 9
    own = [candidate(f"r{n}", request=b"packed") for n in range(9)]
    assert frontier.add(own, 0.0).new == 9
    hop = [candidate(f"h{n}", chain=(7,)) for n in range(9)]
    assert frontier.add(hop, 0.0, at_once=True).new == 9
    assert frontier.add([candidate("x")], 0.0, at_once=True).over_budget == 1


def test_a_domain_that_has_its_full_number_in_all_waits_for_a_start_that_gives_it_more(world):
    frontier = fill(world, budgets=None, max_urls_per_domain=2)
    found = [candidate(name) for name in "vwxyz"]
    assert frontier.add(found, 0.0, at_once=True).over_budget == 3
    assert len(fetch(frontier, 0.0, 10)) == 2
    assert frontier.is_over(), "no budget can grow"
    assert frontier.wake_at() is None
    assert frontier.counts().spilled == 3
    world.limits = replace(world.limits, max_urls_per_domain=4)
    frontier = world.reopen(1.0)
    assert len(fetch(frontier, 1.0, 10)) == 2
    assert frontier.is_over()
    assert frontier.counts().spilled == 1
    world.limits = replace(world.limits, max_urls_per_domain=None)
    frontier = world.reopen(2.0)
    assert len(fetch(frontier, 2.0, 10)) == 1
    assert (frontier.is_over(), frontier.counts().spilled) == (True, 0)


def test_a_host_that_has_its_full_number_holds_up_no_other_of_its_domain(world):
    frontier = fill(world, max_urls_per_host=2)
    full = [link(f"x{n}", "www.d.example", "d.example") for n in range(9)]
    other = [link(f"y{n}", "shop.d.example", "d.example") for n in range(2)]
    frontier.add([*full, *other], 0.0, at_once=True)
    found = fetch(frontier, 0.0, 50)
    assert sorted(of_host(found, "shop.d.example")) == [
        "http://shop.d.example/y0",
        "http://shop.d.example/y1",
    ]
    assert len(of_host(found, "www.d.example")) == 2
    assert frontier.is_over()
    assert frontier.counts().spilled == 7


def test_a_rule_gives_a_domain_another_budget_while_the_crawl_runs(world):
    rules = RuleBudgets()
    frontier = fill(world, rule_budgets=rules)
    rules.set_rules(read_rules('[[rule]]\nfor = "*.d.example"\nbudget = 5\n', 3))
    added = frontier.add(
        [link(f"x{n}", "d.example", "d.example") for n in range(9)], 0.0, at_once=True
    )
    assert added.over_budget == 4


def test_hosts_of_a_domain_are_bounded_while_others_wait(world):
    frontier = fill(world, BudgetRules(least=8, most=8, ranked=1, hosts_per_url=1))
    frontier.add([candidate(f"s{n}", host="b", depth=0) for n in range(30)], 0.0)
    for hour in range(3):
        now = hour * HOUR_S
        names = [f"h{hour}-{n}.d.example" for n in range(6)]
        frontier.add([link("", name, "d.example") for name in names], now, at_once=True)
    hosts = {each.split("/")[2] for each in fetch(frontier, 2 * HOUR_S, 30)}
    assert len(hosts - {"b"}) == 8


def test_what_is_spilled_is_counted_and_filed(world):
    frontier = fill(world, BudgetRules(least=2, most=2, ranked=1), max_urls_per_domain=6)
    for name in ("full", "poor"):
        frontier.add([candidate(f"{n}", host=name) for n in range(9)], 0.0, at_once=True)
    frontier.add([candidate("s", host=f"b{n}", depth=0) for n in range(40)], 0.0)
    world.check(frontier)
    counts = frontier.counts()
    assert (counts.spilled, counts.spilled_domains, counts.capped) == (14, 2, 0)
    assert counts.left == counts.waiting + 14
    for hour in range(1, 4):
        fetch(frontier, hour * HOUR_S, 8)
        world.check(frontier)
    fetch(frontier, 4 * HOUR_S, 50)
    world.check(frontier)
    counts = frontier.counts()
    assert (counts.spilled, counts.spilled_domains, counts.capped) == (6, 2, 6)
    assert counts.left == 0 and frontier.is_over()
    world.limits = replace(world.limits, max_urls_per_domain=7)
    frontier = world.reopen(5 * HOUR_S)
    fetch(frontier, 5 * HOUR_S, 50)
    world.check(frontier)
    assert frontier.counts().capped == frontier.counts().spilled == 4
    world.limits = replace(world.limits, max_urls_per_domain=None)
    frontier = world.reopen(6 * HOUR_S)
    fetch(frontier, 6 * HOUR_S, 50)
    world.check(frontier)
    assert frontier.counts().spilled_domains == frontier.counts().spilled == 0


@pytest.mark.parametrize("seed", range(3))
def test_random_lives_lose_and_repeat_nothing(world, seed):
    """With rounds, budgets in all that change, and crashes; so few that none is sampled out."""
    random, now, number = Random(seed), 0.0, 0
    rules = BudgetRules(least=2, most=6, ranked=3, kept_rounds=30)
    frontier = fill(world, rules, max_urls_per_domain=40)
    added, found = set(), []
    for _ in range(60):
        match random.randrange(8):
            case 0:
                now += random.choice((60.0, HOUR_S))
            case 1:
                most = random.choice((20, 40, None))
                frontier = fill_again(world, now, max_urls_per_domain=most)
            case 2 | 3 | 4:
                host = random.choice("abc")
                links = [candidate(str(number + n), host=host) for n in range(random.randrange(9))]
                number += len(links)
                links += [candidate(url[9:], host=url[7]) for url in sorted(added)[:2]]
                source = LinkSource(random.choice("abcdef"))
                frontier.add(links, now, at_once=random.random() < 0.5, source=source)
                added |= {each.url for each in links}
            case _:
                found += fetch(frontier, now, random.randrange(6))
        world.check(frontier)
    frontier = fill_again(world, now, max_urls_per_domain=None)
    while not frontier.is_over():
        now += HOUR_S
        found += fetch(frontier, now, 1000)
        world.check(frontier)
    counts = frontier.counts()
    assert sorted(found) == sorted(added), counts
    assert (counts.spilled, counts.sampled_out, counts.left) == (0, 0, 0)


def fill_again(world, now, **limits):
    world.limits = replace(world.limits, **limits)
    return world.reopen(now)


def farm_and_friends(frontier, now=0.0):
    """Let 40 domains link to one, and 1,000 hosts of a farm to another."""
    for n in range(40):
        frontier.add([candidate("", host="good")], now, source=LinkSource(f"d{n}"))
    for n in range(1000):
        found = [link("", f"h{n}.farm", "farm"), candidate("", host="bought")]
        frontier.add(found, now, source=LinkSource("farm"))


def record_of(frontier, domain) -> DomainRecord:
    return frontier.budgets.peek(domain)


def test_a_domain_votes_once_and_not_for_itself(world):
    frontier = fill(world, BudgetRules(least=1, most=1000, ranked=5))
    farm_and_friends(frontier)
    assert record_of(frontier, "farm").degree == 0
    assert record_of(frontier, "bought").degree == 1
    assert 33 <= record_of(frontier, "good").degree <= 40
    frontier = world.reopen(1.0)
    farm_and_friends(frontier, 1.0)
    assert record_of(frontier, "bought").degree == 1, "after a crash, too"


def test_a_network_has_few_votes(world):
    frontier = fill(world)
    for n in range(500):
        source = LinkSource(f"bought{n}.example", f"192.0.2.{n % 250}")
        frontier.add([candidate("", host="spam")], 0.0, source=source)
    assert record_of(frontier, "spam").degree <= 16


def test_the_more_domains_link_to_one_the_more_it_gets(world):
    frontier = fill(world, BudgetRules(least=1, most=1000, ranked=20))
    for rank in range(10):
        for n in range(3 * (10 - rank)):
            found = [candidate("", host=f"r{rank}")]
            frontier.add(found, 0.0, source=LinkSource(f"d{n}"))
    frontier = world.reopen(1.0)
    budgets = [frontier.budgets.per_round(f"r{rank}") for rank in range(10)]
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[0] > 900
    assert len(set(budgets)) == 10


def test_equal_domains_have_the_worst_rank_of_them(world):
    frontier = fill(world, BudgetRules(least=1, most=1000, ranked=20))
    for n in range(30):
        frontier.add([candidate("", host=f"e{n}")], 0.0, source=LinkSource("source"))
    frontier = world.reopen(1.0)
    assert {frontier.budgets.per_round(f"e{n}") for n in range(30)} == {1}


class Ranks:
    def of_domain(self, name):
        return 1 if name == "known" else None


def test_a_rank_that_is_given_counts_in_place_of_links(world):
    frontier = fill(world, BudgetRules(least=2, most=1000, ranked=20), ranks=Ranks())
    assert frontier.budgets.per_round("known") == 1000
    frontier.add([candidate("x", host="known"), candidate("x", host="other")], 0.0, at_once=True)
    assert [record_of(frontier, name).given_rank for name in ("known", "other")] == [1, 0]


def test_what_is_spilled_can_be_forgotten_and_leaves_no_trace(world, busy):
    def fate(found):
        return Forget.FORGET if "x7" in found.url else None

    assert sum(busy.sweep(None, lambda host: True, fate, lambda: 1.0)) == 1
    busy.commit()
    assert not [key for key, value in world.store.scan(b"", b"\xff", 1_000_000) if b"x7" in value]
    busy = world.reopen(2.0)
    assert len(of_host(fetch(busy, 2.0, 100), "a")) == 7


def test_many_spilled_domains_are_released_by_rank(world):
    frontier = fill(world, BudgetRules(least=1, most=1000, ranked=2), ranks=Ranks())
    frontier.add([candidate(name, host=name) for name in "xyz"], 0.0, source=LinkSource("s"))
    frontier = world.reopen(0.0)
    fetch(frontier, 0.0, 3)
    frontier.add([candidate(f"k{n}", host="known") for n in range(1500)], 0.0, at_once=True)
    frontier.add([candidate(f"p{n}", host="poor") for n in range(5)], 0.0, at_once=True)
    order = fetch(frontier, 0.0, 1200)
    assert order.index("http://poor/p0") < 20
    late = [each for each in order if each.startswith("http://poor/")]
    assert len(late) == 1, "while the better one has spilled URLs, they go first"


def test_a_host_whose_last_urls_are_refused_holds_up_nothing(world):
    world.limits = replace(world.limits, budgets=FEW)
    frontier = world.reopen(0.0, Refusing(lambda url: "bad" in url))
    names = [f"bad{n}" for n in range(3)] + [f"x{n}" for n in range(4)]
    frontier.add([candidate(name) for name in names], 0.0, at_once=True)
    found = []
    for _ in range(20):
        found += fetch(frontier, 0.0, 10)
        if (wake := frontier.wake_at()) is None or wake > 0.0:
            break
    assert sorted(found) == [f"http://a/x{n}" for n in range(4)]
    assert frontier.is_over()


def test_what_was_refused_comes_back_within_the_budget_in_all_only_once(world):
    world.limits = replace(world.limits, budgets=FEW, max_urls_per_domain=2)
    rules = Refusing(lambda url: True)
    frontier = world.reopen(0.0, rules)
    frontier.add([candidate("x"), candidate("y")], 0.0, at_once=True)
    assert fetch(frontier, 0.0, 10) == []
    frontier.add([candidate("z")], 0.0, at_once=True)
    rules.refuses = lambda url: False
    frontier.judge_again()
    found = [url for _ in range(9) for url in fetch(frontier, 0.0, 10)]
    assert len(found) == len(set(found)) == 2
    assert frontier.counts().spilled + frontier.counts().refused == 1


def test_new_links_of_a_domain_whose_spilled_ones_are_all_capped_are_fetched(world):
    frontier = fill(world, max_urls_per_host=2)
    frontier.add([link(f"x{n}", "www.d.example", "d.example") for n in range(9)], 0.0, at_once=True)
    assert len(fetch(frontier, 0.0, 50)) == 2
    shops = [link(f"y{n}", f"shop{n}.d.example", "d.example") for n in range(8)]
    frontier.add(shops, 0.0, at_once=True)
    found = [url for _ in range(9) for url in fetch(frontier, 0.0, 10)]
    assert sorted(found) == [f"http://shop{n}.d.example/y{n}" for n in range(8)]
    assert frontier.is_over()


def test_links_behind_those_of_a_full_host_wait_for_no_more_rounds_than_budgets(world):
    frontier = fill(world, max_urls_per_host=2)
    frontier.add([candidate(f"s{n}", host="b", depth=0) for n in range(2)], 0.0)
    full = [link(f"x{n}", "www.d.example", "d.example") for n in range(40)]
    shops = [link("", f"shop{n}.d.example", "d.example") for n in range(4)]
    frontier.add([*full, *shops], 0.0, at_once=True)
    found = [url for hour in range(3) for _ in range(9) for url in fetch(frontier, hour * HOUR_S)]
    assert len([url for url in found if "shop" in url]) == 4
    assert frontier.is_over()


def test_a_round_may_end_within_a_second(world):
    frontier = fill(world, BudgetRules(least=1, most=1, ranked=1, round_s=1.5))
    frontier.add([candidate(f"x{n}") for n in range(3)], 0.0, at_once=True)
    (lease,) = frontier.lease(0.0, 1)
    wake = frontier.wake_at()
    assert wake is None or wake > 0.0 or not frontier.lease(0.0, 1)
    frontier.release(lease, rest(100.0), 0.0)
    frontier.finish(lease, Done(), 0.0)
    now = 0.0
    for _ in range(50):
        if (wake := frontier.wake_at()) is None or wake >= 100.0:
            break
        assert wake > now or not frontier.lease(now, 1)
        now = max(wake, now)
    assert wake == 100.0


def test_what_was_not_kept_is_fetched_when_all_that_was_has_left(world):
    frontier = fill(world)
    names = [f"x{n}" for n in range(300)]
    found = set()
    for day in range(20):
        now = day * 86_400.0
        frontier.add([candidate(each) for each in names], now, at_once=True)
        found |= {url for _ in range(9) for url in fetch(frontier, now, 400)}
        frontier = world.reopen(now)
    assert len(found) > 250


def test_a_domain_that_has_its_slots_beyond_the_budget_holds_up_no_other(world):
    frontier = fill(world)
    for name in ("first.example", "second.example"):
        hosts = [f"h{n}.{name}" for n in range(9)]
        frontier.add([link("", host, name) for host in hosts], 0.0, at_once=True)
    # Another domain waits, as its host rests.
    frontier.add([candidate(f"s{n}", host="b", depth=0) for n in range(3)], 0.0)
    held = []
    for _ in range(20):
        for lease in frontier.lease(0.0, 4):
            if lease.candidate.host == "b":
                frontier.release(lease, rest(50.0), 0.0)
                frontier.finish(lease, Done(), 0.0)
            else:
                held.append(lease.candidate.domain)
    assert held.count("first.example") == held.count("second.example") == 3 + 2
