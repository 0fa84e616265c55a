"""What a file of rules says about a URL, and what is wrong with one that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from crawler.data.operator_files import RuleEdit, edited
from crawler.model.page import LinkKind
from crawler.model.types import ConfigError
from crawler.policy.operator_rules import OperatorRules, Overrides, read_rules

FILE = """
# of the whole crawl
concurrency = 8

[[rule]]
for = "*.example.org"
delay_s = 5
level = 2
note = "the university asked for it"

[[rule]]
for = ["www.example.org", "m.example.org"]
delay_s = 2.5
follow_kinds = ["a"]

[[rule]]
for = "www.example.org/cart/*"
refuse = true

[[rule]]
for = "https://www.example.org/cart/open"
refuse = false
max_bytes = 1000

[[rule]]
for = "late.example"
paused = 2026-12-01T08:00:00+01:00
"""


def read(written: str = FILE) -> OperatorRules:
    return read_rules(written, 3)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        pytest.param("https://other.net/", Overrides(), id="no rule says nothing"),
        pytest.param(
            "http://a.b.example.org/x",
            Overrides(delay_s=5.0, level=2),
            id="a domain and below",
        ),
        pytest.param(
            "https://m.example.org/",
            Overrides(delay_s=2.5, level=2, follow_kinds=(LinkKind.A,)),
            id="a host over its domain, each key for itself",
        ),
        pytest.param(
            "https://www.example.org/cart/1",
            Overrides(delay_s=2.5, level=2, follow_kinds=(LinkKind.A,), refuse=True),
            id="a pattern over its host",
        ),
        pytest.param(
            "https://www.example.org/cart/open",
            Overrides(
                delay_s=2.5, level=2, follow_kinds=(LinkKind.A,), refuse=False, max_bytes=1000
            ),
            id="a URL over a pattern",
        ),
    ],
)
def test_the_narrowest_rule_decides(url: str, says: Overrides) -> None:
    assert read().of_url(url) == says


def test_why_names_the_rule_of_each_key() -> None:
    deciding = read().explain("https://www.example.org/cart/1")

    assert {key: rule.line for key, rule in deciding.items()} == {
        "delay_s": 11,
        "level": 5,
        "follow_kinds": 11,
        "refuse": 16,
    }


def test_a_pause_ends_at_its_time() -> None:
    says = read().of_url("https://late.example/")
    end = datetime(2026, 12, 1, 7, tzinfo=UTC).timestamp()

    assert says.paused_until(end - 1) == end
    assert says.paused_until(end) is None
    assert read("paused = true").paused_until(1e12) == float("inf")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[[rule]]\nfor = x y\n", r"not TOML: .*line 2"),
        ("[rule]\nfor = 'a.example'", r"write each rule under a line \[\[rule\]\]"),
        ("\n[[rule]]\nrefuse = true", "line 2: the rule does not say what it is for"),
        ("[[rule]]\nfor = 'two words'", "line 2: 'two words' is no target"),
        ("[[rule]]\nfor = 'a.example'\n\ndelay = 5", "line 4: there is no key 'delay'; there are"),
        ("[[rule]]\nfor = 'a.example'\ndelay_s = -1", "line 3: delay_s is -1; want a number of"),
        ("[[rule]]\nfor = 'a.example'\nlevel = 3", "line 3: level is 3; this crawl has 0 to 2"),
        (
            "[[rule]]\nfor = 'a.example'\nrefuse = true\n[[rule]]\nfor = 'b.example'\nrefuse = 'x'",
            "line 6: refuse is 'x'; want True or False",
        ),
        ("[[rule]]\nfor = 'a.example'\npaused = 2026-12-01", "a date without a time"),
        ("[[rule]]\nfor = 'a.example'\npaused = 2026-12-01T08:00:00", "without an offset"),
        ("[[rule]]\nfor = 'a.example'\nfollow_kinds = ['links']", "line 3: follow_kinds is"),
        ("[[rule]]\nfor = 'a.example/x*'\nmax_urls = 5", "line 3: max_urls is for a host"),
        ("[[rule]]\nfor = '*.a.b.example'\nmax_urls = 5", "line 3: max_urls is for a host"),
        ("concurrency = 0", "line 1: concurrency is 0"),
        ("speed = 9", "line 1: there is no key 'speed'"),
    ],
)
def test_an_error_is_named_with_its_line(written: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(written)


def test_an_edit_keeps_comments_and_is_undone_by_what_it_returns() -> None:
    edits = [
        RuleEdit("www.example.org/cart/*", "refuse", None),
        RuleEdit("*.example.org", "delay_s", 7.5),
        RuleEdit("new.example", "paused", True),
        RuleEdit("", "concurrency", 3),
    ]

    after, undo = edited(FILE, edits)

    assert "# of the whole crawl" in after and "the university" in after
    changed = read(after)
    assert changed.of_url("https://www.example.org/cart/1").refuse is None
    assert changed.of_url("https://a.example.org/").delay_s == 7.5
    assert changed.of_url("https://new.example/").paused == float("inf")
    assert changed.concurrency == 3
    back, _ = edited(after, undo)
    for url in ("https://www.example.org/cart/1", "https://a.example.org/", "https://new.example/"):
        assert read(back).of_url(url) == read().of_url(url)
    assert read(back).concurrency == 8


def test_the_end_of_a_pause_is_written_as_a_time() -> None:
    end = datetime(2026, 12, 1, 7, tzinfo=UTC).timestamp()

    after, (undo,) = edited("", [RuleEdit("a.example", "paused", end)])

    assert "paused = 2026-12-01T07:00:00" in after
    assert read(after).of_url("https://a.example/").paused == end
    later, (again,) = edited(after, [RuleEdit("a.example", "paused", end + 60)])
    assert again.value == end
    assert not read(edited(later, [undo])[0]).rules, "a rule that says nothing is removed"
