"""A crawl described in a file: what it says becomes arguments, what is wrong is named with its
line."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.config.arguments import read_arguments
from crawler.engine.seeds import open_seeds, survey_seeds
from crawler.model.types import ConfigError
from crawler.policy.crawl_file import EXAMPLE, read_crawl
from crawler.policy.seed_terms import TermsOfSeeds

FOLDER = "/crawls"


def read(text: str) -> dict[str, str]:
    return read_crawl(text, "crawl.toml", FOLDER)


def test_the_example_is_read_and_each_part_of_it_has_its_terms(tmp_path: Path) -> None:
    text = EXAMPLE.replace('"ADDRESS"', '"crawls@w3.org"')
    said = read_crawl(text, "crawl.toml", str(tmp_path))
    (tmp_path / "pages.txt").write_text("https://www.example.org/one\n")
    assert f"{tmp_path}/pages.txt scope=page" in said["seeds"].splitlines()
    assert said["max_bytes"] == "2GB" and said["deny"] == "/print/\n[?&]sort="
    assert said["scope"] == "host", "what is added while it runs may lead as far as any seed"
    arguments = read_arguments(said)
    scope = survey_seeds(open_seeds(said["seeds"], TermsOfSeeds(arguments.terms))).scope()
    for url, depth, is_in in (
        ("https://www.example.org/x", 5, True),
        ("https://www.example.org/x", 6, False),
        ("https://docs.example.org/guide/x", 5, True),
        ("https://docs.example.org/blog/", 1, False),
        ("https://news.example.org/2026/1", 2, True),
        ("https://news.example.org/2026/1", 3, False),
        ("https://news.example.org/2025/1", 1, False),
        ("https://www.example.org/x?a=1&sort=up", 1, False),
    ):
        refusal = scope.refusal(url, url[url.index("/", 8) :].partition("?")[0], depth, False)
        assert (refusal is None) is is_in, (url, depth, refusal)
    place = scope.place_of("https://docs.example.org/guide/a/b")
    assert place is not None and place.terms.max_pages == 500 and place.terms.extra_hops == 1
    for url, name in (
        ("https://docs.example.org/guide/a/b", "docs.example.org/guide/"),
        ("https://www.example.org/one", "https://www.example.org/one"),
        ("https://www.example.org/x", "example.org"),
        ("https://news.example.org/2026/1", ""),
    ):
        found = scope.place_of(url)
        assert found is not None and found.name == name


INLINE = 'seeds = [  # {\n {url = "https://a.example/{"},\n {url = "https://b.example/",'
SEED = '\n[[seeds]]\nurl = "https://a.example/"\n'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("max_page = 5" + SEED, 1, "unknown key max_page; did you mean max_pages?"),
        ("max_pages = 0" + SEED, 1, "max_pages is '0'; want"),
        ('max_time = "soon"' + SEED, 1, "max_time is 'soon'; want a time such as"),
        ('# x\ncontact = "me@example.org"' + SEED, 2, "example.org is a placeholder"),
        ('crawl = "other.toml"' + SEED, 1, "unknown key crawl"),
        ("deny = ['(']" + SEED, 1, "does not compile"),
        ('scope = "regex"' + SEED, 1, "no allow says which"),
        (SEED + "depth = 3", 4, "unknown key depth"),
        (SEED + 'scope = "site"', 4, "scope is 'site'; want any or domain"),
        (SEED + 'scope = "page"\nmax_pages = 3', 5, "the scope page is one page"),
        (SEED + "max_pages = 3", 4, "the scope any is no seed's own"),
        (SEED + 'scope = "regex"\nallow = "/"\nmax_time = "1h"', 6, "may be on any host"),
        (SEED + "extra_hops = 99", 4, "extra_hops is '99'; want"),
        ('[[seeds]]\nurl = "www.a.example"', 2, "no scheme: write https://www.a.example/"),
        ('[[seeds]]\nurl = "ftp://a.example"', 2, "the scheme is ftp"),
        ('[[seeds]]\nurl = [\n"https://a.example/",\n"https://",\n]', 4, "not a URL"),
        ("[[seeds]]\nurl = 5", 2, "url is 5; want text"),
        (SEED + 'list = "x"', 2, "a seed has a url, or a list"),
        ('[[seeds]]\nscope = "host"', 1, "a seed has a url, or a list"),
        ('[[seeds]]\nlist = "https://a.example/x.txt"', 2, "is no path of a list"),
        ("max_pages = 5", 1, "no seeds: write each under a line [[seeds]]"),
        ("[seeds]\nurl = 'https://a.example/'", 1, "no seeds: write each under"),
        ("max_depth = 5\n[seeds]\nurl = 'https://a.example/'", 2, "no seeds: write each under"),
        ("# x\n[limits]\nmax_pages = 5" + SEED, 2, "there is no table [limits]"),
        ("# x\n[[seed]]\nurl = 'https://a.example/'", 2, "unknown key seed; did you mean seeds?"),
        (SEED + 'contact = "me@w3.org"', 4, "write it at the top of the file"),
        (SEED + "max_depth = [1]", 4, "max_depth is [1]; want text"),
        ('[[seeds]]\nurl = ""', 2, "it is empty"),
        (INLINE + ' scop = "host"}]', 3, "unknown key scop; did you mean scope?"),
        (INLINE + " max_pages = 5}]\nmax_pages = 9", 3, "the scope any is no seed's own"),
        (INLINE + " list = 'x'}]", 3, "a seed has a url, or a list"),
        ("# \u2028\nmax_page = 5" + SEED, 2, "unknown key max_page"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert str(refused.value).startswith(f"crawl.toml line {line}: "), refused.value
    assert said in str(refused.value)


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"crawl.toml is not TOML: .*line 2"):
        read("max_pages = 5\nmax_time = 2h")
    for text in (f"x = {'[' * 9999}", f"max_pages = {'1' * 9999}"):
        with pytest.raises(ConfigError, match=r"crawl.toml is not TOML: "):
            read(text)


def test_expressions_with_commas_and_spaces_come_through() -> None:
    said = read(SEED + "allow = ['/a, b/', '/c{1,2}/', 'd\\ \\te']\nscope = 'host'")
    terms = TermsOfSeeds()
    survey_seeds(open_seeds(said["seeds"], terms))
    allow = terms.all()[1].allow
    assert [each.search("https://a.example/a, b/") is not None for each in allow] == [
        True,
        False,
        False,
    ]
    assert allow[1].search("https://a.example/cc/") and allow[2].search("d \te")


def test_seeds_that_claim_the_same_pages_with_other_options_are_refused() -> None:
    two = SEED + "scope = 'host'\nmax_depth = 1" + SEED + "scope = 'host'\nmax_depth = 2"
    with pytest.raises(ConfigError, match=r"https://a.example/ and https://a.example/ are seeds"):
        survey_seeds(open_seeds(read(two)["seeds"], TermsOfSeeds()))


def test_a_page_that_is_a_seed_belongs_to_itself() -> None:
    seeds = '[[seeds]]\nurl = "https://a.example/one"' + SEED + "scope = 'host'\nmax_pages = 2"
    said = read('scope = "page"\n' + seeds)
    terms = TermsOfSeeds(read_arguments(said).terms)
    scope = survey_seeds(open_seeds(said["seeds"], terms)).scope()
    one, other = (scope.place_of(f"https://a.example/{path}") for path in ("one", "two"))
    assert one is not None and one.terms.scope == "page"
    assert other is not None and other.terms.max_pages == 2


def test_a_seed_that_is_added_opens_no_more_than_the_others() -> None:
    terms = TermsOfSeeds()
    scope = survey_seeds(open_seeds("https://a.example/ scope=host", terms)).scope()
    wider = scope.with_seeds(["b.example"])
    for url, is_in in (("https://b.example/x", True), ("https://c.example/", False)):
        assert (wider.place_of(url) is not None) is is_in
