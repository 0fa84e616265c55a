"""What an operator is told of a host that is not contacted, and of a URL that is not fetched."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import pytest
from msgspec.structs import replace as changed

from crawler.cli.frontier_text import paces_text
from crawler.config.settings import Config
from crawler.model.types import HostKey, Outcome, Pace, Pacing
from crawler.policy.operator_rules import OperatorRules, read_rules
from crawler.report.why_text import why_text
from crawler.view.budgets import DomainRow
from crawler.view.formats import FAR
from crawler.view.port import HostState
from crawler.view.rows import _because, _host, _rest_because, next_contact
from crawler.view.why import Why

NOW = 1000.0
POLITENESS = Config().politeness  # 1 s at least, ten times what an answer took
NO_RULES = read_rules("", 3)
SLOWER = read_rules('[[rule]]\nfor = "a.example"\ndelay_s = 30.0\n', 3)


def state(rest_s: float, **pace: float) -> HostState:
    given: Any = pace
    return HostState(HostKey("a.example"), 5, "resting", NOW + rest_s, Pace(**given), 9)


@pytest.mark.parametrize(
    ("host", "rules", "said"),
    [
        pytest.param(state(-1, gap_s=1), NO_RULES, "", id="its rest is over"),
        pytest.param(state(0.5, gap_s=1), NO_RULES, "rests 1.0 s: the shortest rest", id="usual"),
        pytest.param(state(5, gap_s=20), NO_RULES,
                     "rests 20 s: an answer took 2.0 s and it rests 10 times that, or it failed not"
                     " long ago",
                     id="slow answers"),
        pytest.param(state(5, gap_s=1, crawl_delay_s=10), NO_RULES,
                     "rests 10 s: its robots.txt asks for it (Crawl-delay)", id="Crawl-delay"),
        pytest.param(state(5, gap_s=1, crawl_delay_s=1e6), NO_RULES,
                     "rests 1 h 0 min: its robots.txt asks for it (Crawl-delay)",
                     id="a Crawl-delay beyond the longest"),
        pytest.param(state(5, gap_s=30), SLOWER, "rests 30 s: a rule asks for it", id="a rule"),
        pytest.param(state(5, gap_s=8, failures=2), NO_RULES,
                     "rests 8.0 s: backs off after 2 failures in a row", id="failures"),
        pytest.param(state(90, gap_s=1), NO_RULES, "rests as its answer asked (Retry-After)",
                     id="Retry-After"),
        pytest.param(state(900, gap_s=8, failures=5, pauses=1), NO_RULES,
                     "paused after 5 failures in a row", id="paused"),
    ],
)  # fmt: skip
def test_why_a_host_is_not_contacted(host: HostState, rules: OperatorRules, said: str) -> None:
    assert _because(host, rules, POLITENESS, NOW) == said


def test_a_host_that_waits_for_its_address_says_so() -> None:
    waiting = replace(state(90, gap_s=1), address="192.0.2.1", waits_for_address=True)
    assert _because(waiting, NO_RULES, POLITENESS, NOW) == "waits for its turn at 192.0.2.1"


@pytest.mark.parametrize(
    ("text", "next_at"),
    [
        ("", NOW + 5),
        ('[[rule]]\nfor = "a.example"\npaused = true\n', FAR),
        ("paused = true\n", FAR),
        ('[[rule]]\nfor = "a.example"\npaused = 2100-01-01T00:00:00Z\n', 4102444800.0),
        ('[[rule]]\nfor = "a.example"\npaused = 1970-01-01T00:00:01Z\n', NOW + 5),
        ('[[rule]]\nfor = "b.example"\npaused = true\n', NOW + 5),
    ],
    ids=["no pause", "of the host", "of the crawl", "until a time", "that is over", "of another"],
)
def test_a_pause_counts_for_when_a_host_may_be_contacted(text: str, next_at: float) -> None:
    rules = read_rules(text, 3)
    assert next_contact(NOW + 5, rules.of_host("a.example"), rules, NOW) == next_at


MEAN_S = 0.08
PACED: dict[str, Any] = {"gap_s": 0.16, "fetches": 64, "log_fetch_s": log(MEAN_S)}


@pytest.mark.parametrize(
    ("pace", "rules", "stage", "base_s", "factor", "share", "refused_interval_s"),
    [
        pytest.param(Pace(), NO_RULES, "", 0, 10, 0, 0, id="never asked"),
        pytest.param(Pace(**PACED, pacing=Pacing(count=5)), NO_RULES, "first", 0, 10, 1 / 3, 0,
                     id="the first answers"),
        pytest.param(Pace(**PACED, pacing=Pacing(step=2, base_s=0.07)), NO_RULES,
                     "paced", 0.07, 2, 1 / 3, 0, id="fast"),
        pytest.param(Pace(**PACED, pacing=Pacing(step=2, base_s=0.07, is_probing=True)), NO_RULES,
                     "probes", 0.07, 5, 1 / 3, 0, id="the base is measured anew"),
        pytest.param(Pace(**PACED, pacing=Pacing(step=1, base_s=0.07, interval_s=4)), NO_RULES,
                     "paced", 0.07, 5, 1 / 3, 4, id="it refused"),
        pytest.param(Pace(**PACED, crawl_delay_s=7.92, pacing=Pacing(step=3, base_s=0.07)),
                     NO_RULES, "paced", 0.07, 1, 0.01, 0, id="a Crawl-delay"),
        pytest.param(Pace(**PACED | {"gap_s": 30.0}, pacing=Pacing(step=2, base_s=0.07)), SLOWER,
                     "paced", 0.07, 0, MEAN_S / 30.08, 0, id="a rule"),
    ],
)  # fmt: skip
def test_the_pace_of_a_host_in_columns(
    pace: Pace,
    rules: OperatorRules,
    stage: str,
    base_s: float,
    factor: float,
    share: float,
    refused_interval_s: float,
) -> None:
    row = _host(HostState(HostKey("a.example"), 5, "active", NOW, pace, 9), rules, Config(), NOW)
    assert (row.stage, row.base_s, row.refused_interval_s) == (stage, base_s, refused_interval_s)
    assert row.at_once == 1
    assert (row.factor, row.share) == pytest.approx((factor, share))
    line = list(paces_text([row], NOW))[1].split()
    assert line[-2] == (stage or "-")
    assert ("apart" in line) == (refused_interval_s > 0)


def test_why_a_host_that_was_never_asked_rests() -> None:
    assert _rest_because(Pace(), None, POLITENESS) == "not fetched from yet"


DOMAIN = DomainRow(
    domain="a.example", rank=8_000, rank_by="links", ranked=90_000, linked_by=3,
    budget=12, budget_by="CRAWLER_DOMAIN_BUDGET", used=12, next_round_at=NOW + 90, round_s=3600.0,
    admitted=500, most=None, spilled=131, capped=False, sampled_out=4_000, kept_share=0.125,
)  # fmt: skip
BARE: dict[str, Any] = {
    "url": "http://a.example:81/x", "host": "a.example", "seen": False, "rule": "", "refused": "",
    "scope_judged": True, "robots": "allowed", "robots_detail": "",
}  # fmt: skip
FAILED = Outcome(
    at=NOW - 9, url="http://a.example:81/x", host="a.example", fate="retry", status=503
)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "Never queued: no page so far links to it, and it is no seed."),
        ({"seen_as": "http://a.example/x"},
         "Never queued: http://a.example/x was, which is another address."),
        ({"rule": "denied", "refused": "the pattern is /x"}, "Never queued: the pattern is /x."),
        ({"seen": True, "waiting": 3, "host_next_at": NOW + 5},
         "Not fetched yet: it waits, and its host may be contacted in 5.0 s."),
        ({"seen": True, "leased_at": NOW}, "It is being fetched."),
        ({"seen": True, "waiting": 3, "host_next_at": NOW + 5, "outcomes": [FAILED]},
         ("Not fetched yet: its last try failed (status 503); it waits, and its host may be"
          " contacted in 5.0 s.")),
        ({"seen": True, "later_at": NOW + 60}, "It is fetched again in 60 s."),
        ({"seen": True, "later_at": NOW + 60, "outcomes": [FAILED]},
         "Its last try failed (status 503); it is fetched again in 60 s."),
        ({"seen": True, "dead_at": NOW, "dead_reason": "timeout"}, "Given up: timeout."),
        ({"seen": True, "refused_at": NOW, "refused_by": "rules.toml line 2"},
         "Not fetched: a rule refuses it (rules.toml line 2)."),
        ({"seen": True}, "It was fetched, or is on its way: its outcome is not on record."),
        ({"spilled": 7, "domain": DOMAIN},
         ("Not fetched yet: it waits for the budget of a.example, which has room in 90 s, or when"
         " nothing else is due.")),
        ({"spilled": 7, "domain": changed(DOMAIN, capped=True),
          "rule": "domain_budget", "refused": "its registered domain is full"},
         ("Not fetched yet: its registered domain is full; a start with a larger budget puts it"
         " back.")),
        ({"sampled_out": True, "domain": DOMAIN},
         "Never queued: if it was found, its domain was over its budget; it was not kept."),
        ({"seen": True, "spilled": 7, "domain": DOMAIN, "waiting": 3, "host_next_at": NOW},
         "Not fetched yet: it waits, and its host may be contacted now."),
    ],
)  # fmt: skip
def test_one_sentence_says_why_a_url_was_not_fetched(known: dict[str, Any], said: str) -> None:
    assert list(why_text(Why(**{**BARE, **known}), NOW))[1].strip() == said


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"spilled": 7}, "waits behind 7 of them"),
        ({"sampled_out": True}, "was not kept, if it was found"),
        ({}, "is not among them: not found, or not kept"),
        ({"seen": True}, "was within it"),
    ],
)
def test_the_budget_of_a_domain_is_explained(known: dict[str, Any], said: str) -> None:
    lines = [line.strip() for line in why_text(Why(**{**BARE, "domain": DOMAIN, **known}), NOW)]
    assert "of a.example, rank 8,000 of 90,000 domains: 3 other domains link to it, about" in lines
    assert (
        "its budget while others wait: 12 URLs in 1 h 0 min (CRAWLER_DOMAIN_BUDGET), 12 used; the"
        " next round begins in 90 s"
    ) in lines
    assert f"over budget: 131 spilled, 4,000 sampled out; this one {said}" in lines


def test_one_sentence_says_what_became_of_a_url() -> None:
    outcome = Outcome(NOW - 60, BARE["url"], "a.example", "done", status=404)
    found = list(why_text(Why(**{**BARE, "seen": True, "outcomes": [outcome]}), NOW))[1]
    assert found.strip().startswith("Its last fetch was 60 s ago: ") and "404" in found
    refused = Outcome(NOW - 60, BARE["url"], "a.example", "refused", reason="robots")
    found = list(why_text(Why(**{**BARE, "seen": True, "outcomes": [refused]}), NOW))[1]
    assert found.strip().startswith("Not fetched; decided 60 s ago: ")
