"""Which URLs look like a trap."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.types import ConfigError
from crawler.policy.scope import Reason, TrapRules

HOST = "http://example.com"
RULES = TrapRules()
UNBOUNDED = TrapRules(max_path_segments=1000)


def reason(path: str, rules: TrapRules = RULES) -> Reason | None:
    refusal = rules.refusal(HOST + path, path.partition("?")[0])
    return refusal.reason if refusal else None


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/", None, id="a home page"),
        pytest.param("/" + "x" * (2048 - len(HOST) - 1), None, id="2,048 characters"),
        pytest.param("/" + "x" * (2048 - len(HOST)), Reason.URL_TOO_LONG, id="2,049"),
        pytest.param("/?" + "x" * 2048, Reason.URL_TOO_LONG, id="the query counts"),
        pytest.param("/1/2/3/4/5/6/7/8/9/10", None, id="10 segments"),
        pytest.param("/1/2/3/4/5/6/7/8/9/10/", None, id="10 and a slash"),
        pytest.param("/1/2/3/4/5/6/7/8/9/10/11", Reason.PATH_TOO_DEEP, id="11 segments"),
        pytest.param("/?/1/2/3/4/5/6/7/8/9/10/11", None, id="a query has none"),
        pytest.param("/a/a/x", None, id="twice in a row"),
        pytest.param("/a/a/a/x", Reason.REPEATED_SEGMENTS, id="three times in a row"),
        pytest.param("/x/a/a/a/", Reason.REPEATED_SEGMENTS, id="further down"),
        pytest.param("/2001/1/1/1", None, id="the last segment is no directory"),
        pytest.param("/a/b/a/b/x", None, id="a pair twice"),
        pytest.param("/a/b/a/b/a/b/x", Reason.REPEATED_SEGMENTS, id="a pair three times"),
        pytest.param("/a/x/a/y/a/z", Reason.REPEATED_SEGMENTS, id="every other directory"),
        pytest.param("/a/x/a/y/b/a/", None, id="but not in step"),
        pytest.param("/x////y", Reason.REPEATED_SEGMENTS, id="empty directories"),
        pytest.param("/a//b//c//d", None, id="double slashes alone are only bad manners"),
        pytest.param("/en/docs/api/en", None, id="a word that comes again"),
        pytest.param("/?a=1&b=2&a=1", None, id="a parameter twice"),
        pytest.param("/?a=1&a=1&a=1", Reason.REPEATED_QUERY, id="a parameter three times"),
        pytest.param("/?a=1&a=1&b=2&a=1", Reason.REPEATED_QUERY, id="with another between"),
        pytest.param("/?a[]=1&a[]=2&a[]=3&a[]=4", None, id="a list"),
        pytest.param("/?a[]=&a[]=&a[]=&b=&b=&b=", None, id="a form left empty"),
        pytest.param("/?a=1&&&&b=2", None, id="ampersands alone are only bad manners"),
        pytest.param("/?" + "&".join(f"a{n}=1" for n in range(50)), None, id="50 parameters"),
        pytest.param(
            "/?" + "&".join(f"a{n}=1" for n in range(51)), Reason.QUERY_TOO_LONG, id="51 parameters"
        ),
        pytest.param("/a;jsessionid=1A2B?x=1", None, id="a session"),
        pytest.param("/a;jsessionid=1;jsessionid=2", Reason.REPEATED_SESSION, id="two in a path"),
        pytest.param("/a?PHPSESSID=1&b=2&PHPSESSID=3", Reason.REPEATED_SESSION, id="in a query"),
        pytest.param(
            "/a;jsessionid=1?to=%2Fb%253BJSESSIONID%253D2", Reason.REPEATED_SESSION, id="nested"
        ),
        pytest.param("/a;jsessionid=1?PHPSESSID=2", None, id="of two programs"),
        pytest.param("/courses?session=1&session=2&sid=3", None, id="what may choose the page"),
    ],
)
def test_paths(path: str, want: Reason | None) -> None:
    assert reason(path) == want


def test_figures_by_setting() -> None:
    rules = TrapRules(max_url_chars=30, max_path_segments=2, max_repeats=1)
    assert reason("/a/b", rules) is None
    assert reason("/a/b/c", rules) is Reason.PATH_TOO_DEEP
    assert reason("/a/a/x", TrapRules(max_repeats=1)) is Reason.REPEATED_SEGMENTS
    assert reason("/" + "x" * 30, rules) is Reason.URL_TOO_LONG


@pytest.mark.parametrize(
    "figure", ["max_url_chars", "max_path_segments", "max_repeats", "max_parameters"]
)
def test_a_figure_below_one_is_refused(figure: str) -> None:
    with pytest.raises(ConfigError):
        TrapRules(**{figure: 0})


# The rules as their authors wrote them, the expressions of Heritrix and Nutch.
HERITRIX = re.compile(r".*?/(.*?/)\1{2,}.*")
NUTCH = re.compile(r".*(/[^/]+)/[^/]+\1/[^/]+\1/")


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=9), st.sampled_from(["", "x", "a"]))
def test_repetition_is_what_heritrix_and_nutch_call_it(directories: list[str], last: str) -> None:
    path = "/" + "".join(f"{each}/" for each in directories) + last
    theirs = bool(HERITRIX.match(path) or NUTCH.match(path))
    assert (reason(path, UNBOUNDED) is Reason.REPEATED_SEGMENTS) is theirs


def test_a_refusal_names_its_figures() -> None:
    refusal = RULES.refusal(HOST + "/a/b/a/b/a/b/x", "/a/b/a/b/a/b/x")
    assert refusal is not None
    assert refusal.explain() == (
        "a path that repeats itself is taken for a trap: 'a/b/' comes 3 times"
    )
