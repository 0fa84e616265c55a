"""Whole crawls on a virtual clock, judged from outside; the faults that the judges must find are in
test_simulated_faults.py."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from crawler.page.soft404 import looks_like_error
from crawler.simulate.judges import judge
from crawler.simulate.policies import policy_world
from crawler.simulate.run import SHARED_ADDRESSES, SMALL, OperatorAct, run, small_world
from crawler.simulate.servers import ServerParameters
from crawler.simulate.web import START, Web, WebParameters, read_edges


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_a_crawl_does_nothing_wrong(first: int) -> None:
    for seed in range(first, first + 10):
        found = judge(run(small_world(seed), SMALL))
        assert found == [], f"python -m crawler.simulate --seed {seed}"


def test_hosts_of_one_address_take_turns() -> None:
    for seed in range(30):
        found = judge(run(small_world(seed), SHARED_ADDRESSES))
        assert found == [], f"SHARED_ADDRESSES, seed {seed}"


def test_a_rule_to_visit_once_ends_later_visits_and_keeps_all_histories() -> None:
    world = small_world(4)
    hosts = sorted(world.revisits)
    at = (START + world.until) / 2
    modes = dict.fromkeys(hosts[1:], "once") | {hosts[0]: "adaptive"}
    rules = "".join([f'[[rule]]\nfor = "{h}"\nrevisit = "{mode}"\n' for h, mode in modes.items()])
    acts = (*(act for act in world.acts if act.at < at), OperatorAct(at, rules))
    ruled = run(replace(world, crashes=(), acts=acts), SMALL)
    before = run(replace(world, crashes=(), acts=acts, until=at), SMALL)
    assert before.histories.keys() <= ruled.histories.keys() != set()
    late = {hit.url for hit in ruled.log.hits if hit.start > at + 3600.0}
    assert {url for url in late if not (url.endswith("/robots.txt") or hosts[0] in url)} == set()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(920, id="a host that never answered is paused when only such hosts are left"),
        pytest.param(950, id="two hosts, each with the robots.txt of the other"),
        pytest.param(3562, id="a probe for a URL that was tried before is challenged"),
        pytest.param(5170, id="the host that has the robots.txt of another never answers"),
        pytest.param(6255, id="a host that never answered is paused, and then another one in turn"),
        pytest.param(8416, id="a host that is given up answers for the robots.txt of another"),
        pytest.param(9143, id="the same, and one of them paused meanwhile"),
    ],
)
def test_a_crawl_that_did_something_wrong_once(seed: int) -> None:
    assert judge(run(small_world(seed), SMALL)) == []


def test_the_same_seed_gives_the_same_events_in_each_process() -> None:
    code = "from crawler.simulate.run import *; print(run(small_world(1), SMALL).log.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    digests.add(f"{run(small_world(1), SMALL).log.digest}\n".encode())
    assert len(digests) == 1


def test_page_404_of_a_host_does_not_look_like_an_error() -> None:
    web = Web(1, WebParameters(hosts=1, largest=500))
    assert not looks_like_error("", web.content("http://h0.test/p/oo", START).text)


def test_a_given_graph_is_crawled_from_its_own_pages() -> None:
    links = {"https://a.test/x": "https://a.test/y", "https://a.test/y": "http://b.test/z"}
    edges = read_edges([*(f"{url}\t{target}\n" for url, target in links.items()), "no link\n"])
    servers = ServerParameters(troubles=0.0, dead=0.0, limited=0.0, broken_off=0.0)
    found = run(replace(policy_world(1), edges=edges, servers=servers))
    assert judge(found) == []
    assert {each.url for each in found.log.outcomes if each.status == 200} == {
        *links,
        "http://b.test/z",
    }
