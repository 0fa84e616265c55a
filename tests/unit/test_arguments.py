"""A spider's arguments are read as strictly as settings."""

from __future__ import annotations

import pytest

from crawler.config.settings import (
    Arguments,
    join_repeated,
    read_arguments,
)
from crawler.model.choices import ScopeChoice
from crawler.model.types import ConfigError


def test_only_seeds_are_needed():
    assert read_arguments({"seeds": "seeds.txt"}) == Arguments(seeds="seeds.txt")


def test_all_of_them_as_a_command_line_gives_them():
    read = read_arguments(
        {
            "seeds": "https://w3.org/, https://ietf.org/",
            "max_pages": "100",
            "max_depth": "0",
            "scope": "domain",
            "allow": "/a/\n^https:",
            "deny": r"\?",
            "_job": "6487ec79947edab326d6db28a2d86511e8247444",
        }
    )
    assert read.seeds == "https://w3.org/, https://ietf.org/"
    assert (read.max_pages, read.max_depth, read.scope) == (100, 0, ScopeChoice.DOMAIN)
    assert [one.pattern for one in read.allow] == ["/a/", "^https:"]
    assert [one.pattern for one in read.deny] == [r"\?"]


def test_values_as_a_script_gives_them():
    read = read_arguments({"seeds": "a.txt", "max_pages": 5, "allow": ["/a,b/", "/c/"]})
    assert read.max_pages == 5
    assert [one.pattern for one in read.allow] == ["/a,b/", "/c/"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param({}, "no seeds: .* -a seeds=seeds.txt", id="nowhere to start"),
        pytest.param({"seeds": " "}, "seeds is ' '; want", id="a blank to start"),
        pytest.param(
            {"seed": "a"}, "unknown argument seed; did you mean seeds", id="a letter lost"
        ),
        pytest.param({"maxpages": 1}, "did you mean max_pages", id="an underscore lost"),
        pytest.param({"zzz": 1}, "unknown argument zzz; there are seeds, max_pages", id="no idea"),
        pytest.param({"name": "b"}, "unknown argument name", id="Scrapy's own is not ours"),
        pytest.param({"max_pages": "0"}, "max_pages is '0'; want", id="no pages at all"),
        pytest.param({"max_pages": "many"}, "max_pages is 'many'; want", id="a word for a number"),
        pytest.param({"max_depth": "-1"}, "max_depth is '-1'; want", id="above the seeds"),
        pytest.param({"scope": "site"}, "want any or host or domain", id="a scope that is none"),
        pytest.param(
            {"allow": "(a"}, "allow is .*want .*does not compile", id="a broken expression"
        ),
        pytest.param({"deny": ["a", 5]}, "deny is ", id="a number for an expression"),
    ],
)
def test_mistakes_are_refused_by_name(given, text):
    with pytest.raises(ConfigError, match=text):
        read_arguments({"seeds": "seeds.txt", **given} if given else {})


def test_what_is_given_twice_is_joined_where_that_makes_sense():
    assert join_repeated(["seeds=a=b", "deny=x", "deny=y=z", "allow=q"]) == [
        "seeds=a=b",
        "deny=x\ny=z",
        "allow=q",
    ]
    with pytest.raises(ConfigError, match="argument seeds is given twice"):
        join_repeated(["seeds=a", "seeds=b"])
    assert join_repeated(["no value"]) == ["no value"]
