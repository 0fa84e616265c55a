"""Which pages are rendered: the signs of a plain answer, and what is learned of hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from crawler.content.parsers.html import HtmlParser
from crawler.model.choices import RenderChoice
from crawler.model.page import Source
from crawler.page.script_signs import (
    ScriptSigns,
    added_links,
    brings_less,
    brings_more,
    may_have_scripts,
    signs_of,
)
from crawler.policy import rendering
from crawler.policy.rendering import (
    SAMPLE,
    TRIED_FIRST,
    LeftOut,
    RenderPolicy,
    RenderReason,
    refused_kind,
    render_pattern,
)

WORDS = "Of all that is written here a reader sees each word without any script at all. " * 20
LINKS = "".join(f"<a href=/{name}>{name}</a> " for name in ("one", "two", "three", "four"))
SCRIPT = "<script src=/app.js></script>"
SCRIPTED = ScriptSigns(has_scripts=True, chars=5000, links=frozenset("abcdef"))
SHELL = ScriptSigns(has_scripts=True, asks=True)


def signs(html: str) -> ScriptSigns:
    body = html.encode()
    return signs_of(body, HtmlParser().parse(Source("http://a.test/", "text/html", body)))


@pytest.mark.parametrize(
    ("html", "asks"),
    [
        (f"<body><div id=root></div>{SCRIPT}", True),
        (f'<body><div class=a id="app"> <!-- app --> </div>{SCRIPT}', True),
        (f"<body><div id='__next'></div>{SCRIPT}", True),
        (f"<body><app-root></app-root>{SCRIPT}", True),
        (f"<body><my-shell class=x>\n</my-shell>{SCRIPT}", True),
        (f"<body>{WORDS}{LINKS}<noscript>You need to enable JavaScript.</noscript>{SCRIPT}", True),
        (f"<body>{WORDS}{LINKS}<noscript><b>Bitte Javascript an</b></noscript>{SCRIPT}", True),
        (f"<body>{WORDS}{LINKS}<noscript><img src=/javascript.gif></noscript>{SCRIPT}", False),
        (f"<body><div id=root>{WORDS}{LINKS}</div>{SCRIPT}", False),
        (f"<body><div id=rooted></div>{WORDS}{LINKS}{SCRIPT}", False),
        (f"<body><tab-list></tab-list>{WORDS}{LINKS}{SCRIPT}", False),
    ],
)
def test_mount_points_and_pleas_ask_for_scripts(html, asks):
    assert signs(html).asks is asks
    assert signs(html).has_scripts


@pytest.mark.parametrize(
    "script",
    [
        '<script type="application/ld+json">{}</script>',
        "<script type=application/json>{}</script>",
        "<script type='importmap'>{}</script>",
        '<script id=t type="text/template"><b>{{ name }}</b></script>',
    ],
)
def test_data_is_no_script(script):
    assert not signs(f"<div id=root></div>{script}").has_scripts
    assert may_have_scripts(script.encode())
    assert not may_have_scripts(b"<p>described</p>")


@pytest.mark.parametrize(
    ("html", "is_thin"),
    [
        (f"<p>Loading...</p>{SCRIPT}", True),
        (f"<p>{WORDS[:800]}</p><a href=/>Home</a>{SCRIPT}", True),
        (f"<p>{WORDS[:800]}</p>{LINKS}{SCRIPT}", False),
        (f"<p>{WORDS}</p>{SCRIPT}", False),
    ],
)
def test_a_page_with_little_text_and_few_links_is_thin(html, is_thin):
    assert signs(html).is_thin is is_thin


@pytest.mark.parametrize(
    ("after", "is_more"),
    [
        (SCRIPTED, False),
        (ScriptSigns(has_scripts=True, chars=5900, links=SCRIPTED.links | {"x"}), False),
        (ScriptSigns(has_scripts=True, chars=5000, links=SCRIPTED.links | {"x", "y"}), True),
        (ScriptSigns(has_scripts=True, chars=6400, links=SCRIPTED.links), True),
        (ScriptSigns(has_scripts=True, chars=100), False),
    ],
)
def test_more_is_new_links_or_a_quarter_more_text(after, is_more):
    new_links = added_links(SCRIPTED, after, "http://a.test/")
    assert brings_more(SCRIPTED, after, len(new_links)) is is_more


def test_links_that_leave_the_domain_and_anchors_are_not_added_ones():
    before = ScriptSigns(has_scripts=True, chars=2000, links=frozenset({"/a", "/b#c"}))
    elsewhere = {"https://share.test/?u=http://a.test/", "//b.test/", "mailto:a@a.test", "http://["}
    own = {"/new", "next?page=2", "http://www.a.test/", "//a.test/c"}
    links = before.links | elsewhere | own | {"/a#one", "/b", "#two", "javascript:open()"}
    after = ScriptSigns(has_scripts=True, chars=2000, links=links)
    assert added_links(before, after, "http://a.test/page") == own


DOC = ScriptSigns(has_scripts=True, chars=2000, links=frozenset("abcdefghijklmno"))
MENU = frozenset({"/latest", "/stable", "/v1", "/v2", "/pdf", "/epub"})


def rendered_of(pages: int, links_of: Callable[[int], frozenset[str]]) -> int:
    """How many pages of a host are rendered whose scripts add *links_of* them."""
    policy, rendered = RenderPolicy(RenderChoice.AUTO), 0
    for number in range(pages):
        url = f"http://a.test/page/{number}"
        if policy.decide("a.test", url, DOC, RenderChoice.AUTO) is None:
            continue
        rendered += 1
        after = structs.replace(DOC, links=DOC.links | links_of(number))
        new = policy.new_links("a.test", url, DOC, after)
        policy.learn("a.test", url, paid=brings_more(DOC, after, new))
    return rendered


def test_a_menu_that_scripts_add_to_each_page_is_new_once():
    assert rendered_of(200, lambda _: MENU) <= 2 + 200 / SAMPLE
    assert rendered_of(200, lambda n: MENU - {sorted(MENU)[n % 6]}) <= 3 + 200 / SAMPLE
    share = "http://share.test/?u=/page/"
    assert rendered_of(200, lambda n: frozenset({f"{share}{n}", f"{share}{n}&b"})) <= 6


def test_links_that_scripts_bring_to_some_pages_each_are_new():
    assert rendered_of(100, lambda n: MENU | {f"/page/{n - 1}", f"/page/{n + 1}"}) == 100


WALL = f"<h1>Before you continue</h1><button>Accept</button><a href=/terms>Terms</a>{SCRIPT}"
BROKEN = f"<html><body><parsererror style='display: block'><h3>Errors:</h3></parsererror>{WORDS}"
PLEA = f"<noscript>{WORDS[:600]}</noscript><div id=root></div>{SCRIPT}"
INDEX = "".join(f"<a href=/{number}>{number}</a> " for number in range(30))
APP = "".join(f"<a href=/item/{number}>{number}</a> " for number in range(30))


@pytest.mark.parametrize(
    ("before", "after", "is_less"),
    [
        (f"{WORDS}{LINKS}{SCRIPT}", f"<h2>Application error</h2>{SCRIPT}", True),
        (f"{WORDS}{LINKS}{SCRIPT}", WALL, True),
        (f"{WORDS}{LINKS}{SCRIPT}", f"{WORDS}{SCRIPT}", True),  # its links are lost
        (f"{INDEX}{SCRIPT}", WALL, True),
        (f"{WORDS}{LINKS}{SCRIPT}", BROKEN + LINKS, True),  # the error page of XHTML
        (f"{WORDS}{LINKS}{SCRIPT}", f"{WORDS[:1200]}{LINKS}", False),
        (f"{WORDS}{LINKS}{SCRIPT}", f"{WORDS}{LINKS.replace('href=/', 'href=/en/')}", False),
        (f"{WORDS[:600]}{SCRIPT}", f"{WORDS[:200]}{APP}", False),  # a list in place of a text
        (PLEA, "<h1>Not found</h1>", False),
        (f"<div id=root></div>{LINKS}{SCRIPT}", "<h1>Not found</h1><a href=/>Home</a>", False),
        (f"<p>Please wait...</p>{LINKS}{SCRIPT}", "<h1>Not found</h1>", False),
    ],
)
def test_less_is_what_an_error_or_a_wall_leaves_of_a_page(before, after, is_less):
    assert brings_less(signs(before), signs(after)) is is_less


class Crawl:
    """Pages that are decided about, one after the other."""

    def __init__(self, choice: RenderChoice = RenderChoice.AUTO, share: float = 1.0) -> None:
        self.policy = RenderPolicy(choice, share)
        self.choice = choice

    def visit(self, url: str, signs: ScriptSigns, *, pays: bool = False) -> RenderReason | None:
        host = url.split("/")[2]
        reason = self.policy.decide(host, url, signs, self.choice)
        if reason is not None:
            self.policy.learn(host, url, paid=pays)
        return reason

    def count(self, url: str, signs: ScriptSigns, pages: int, *, pays: bool = False) -> int:
        """How many of *pages* are rendered; their URLs are *url* with a number."""
        urls = [f"{url}{number}" for number in range(pages)]
        return sum(self.visit(each, signs, pays=pays) is not None for each in urls)


def test_a_site_made_by_scripts_is_rendered():
    assert Crawl().count("http://a.test/page/", SHELL, 500, pays=True) == 500


def test_what_brings_nothing_is_tried_five_times():
    crawl = Crawl()
    assert crawl.count("http://a.test/page/", SHELL, 1000) == TRIED_FIRST
    thin = ScriptSigns(has_scripts=True, chars=150, links=frozenset("ab"))
    assert crawl.count("http://a.test/other/", thin, 1000) == 0  # never again


def test_a_pattern_that_brings_nothing_on_a_host_that_does_is_sampled():
    crawl = Crawl()
    crawl.count("http://a.test/app/", SHELL, 10, pays=True)
    tried = crawl.count("http://a.test/page/", SHELL, 1000)
    assert tried == pytest.approx(TRIED_FIRST + 1000 / SAMPLE, abs=1)


def test_pages_without_signs_are_sampled_until_that_is_known_to_bring_nothing():
    crawl = Crawl()
    assert crawl.count("http://a.test/page/", SCRIPTED, 100) <= 4
    assert crawl.count("http://a.test/page/", SCRIPTED, 5000) <= TRIED_FIRST


def test_a_sample_finds_what_no_sign_says():
    crawl = Crawl()
    assert crawl.count("http://a.test/page/", SCRIPTED, 200, pays=True) == 200


def test_a_page_with_much_less_text_than_its_like_is_tried():
    crawl = Crawl()
    crawl.count("http://a.test/page/", SCRIPTED, 20)
    few = ScriptSigns(has_scripts=True, chars=900, links=SCRIPTED.links)
    assert crawl.visit("http://a.test/page/21", few) is RenderReason.SIGNS


def test_a_page_without_scripts_is_never_rendered():
    plain = ScriptSigns(has_scripts=False, asks=True)
    for choice in RenderChoice:
        assert Crawl(choice).count("http://a.test/", plain, 100) == 0


def test_always_and_never_learn_nothing():
    assert Crawl(RenderChoice.ALWAYS).count("http://a.test/", SCRIPTED, 100) == 100
    assert Crawl(RenderChoice.NEVER).count("http://a.test/", SHELL, 100) == 0


def test_a_request_goes_before_a_rule_and_that_before_the_settings():
    policy = RenderPolicy(RenderChoice.AUTO)
    assert policy.choice_for(None, None) is RenderChoice.AUTO
    assert policy.choice_for(RenderChoice.NEVER, None) is RenderChoice.NEVER
    assert policy.choice_for(RenderChoice.NEVER, True) is RenderChoice.ALWAYS
    assert policy.choice_for(RenderChoice.ALWAYS, False) is RenderChoice.NEVER


@pytest.mark.parametrize("choice", [RenderChoice.AUTO, RenderChoice.ALWAYS])
def test_the_share_of_rendered_pages_is_bounded(choice):
    assert Crawl(choice, 0.1).count("http://a.test/", SHELL, 1000, pays=True) == 100
    assert Crawl(choice, 0.0).count("http://a.test/", SHELL, 1000, pays=True) == 20


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(rendering, "_MOST_HOSTS", 100)
    crawl = Crawl()
    for number in range(1000):
        crawl.visit(f"http://{number}.test/a/b", SHELL)
    for number in range(100):
        crawl.visit(f"http://a.test/{'x' * number}/b", SHELL, pays=True)
    assert len(crawl.policy._hosts) == 100
    assert len(crawl.policy._hosts["a.test"].patterns) <= 33


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("http://a.test/", "/*"),
        ("http://a.test/about", "/*"),
        ("http://a.test/docs/begin", "/docs/*"),
        ("http://a.test/docs/17", "/docs/#"),
        ("http://a.test/docs/17?page=2", "/docs/#?page"),
    ],
)
def test_names_in_one_folder_are_of_one_pattern(url, pattern):
    assert render_pattern(url) == pattern


def test_only_what_brings_text_is_fetched_for_a_page():
    for kind in ("script", "stylesheet", "fetch", "xhr"):
        assert refused_kind(kind, "GET", with_requisites=False) is None
        assert refused_kind(kind, "POST", with_requisites=True) is LeftOut.METHOD
    for kind in ("image", "media", "font", "manifest"):
        assert refused_kind(kind, "GET", with_requisites=False) is LeftOut.KIND
        assert refused_kind(kind, "GET", with_requisites=True) is None
    for kind in ("document", "websocket", "eventsource", "ping", "other", "texttrack"):
        assert refused_kind(kind, "GET", with_requisites=True) is LeftOut.KIND


def test_what_failed_or_lacked_something_says_nothing_of_its_host():
    policy = RenderPolicy(RenderChoice.AUTO)
    tried = 0
    for number in range(500):
        url = f"http://a.test/page/{number}"
        if policy.decide("a.test", url, SHELL, RenderChoice.AUTO) is not None:
            policy.learn("a.test", url, paid=None)
            tried += 1
    assert tried == pytest.approx(TRIED_FIRST + 6 + 400 / SAMPLE, abs=3)  # none is tried for ever
    policy.learn("a.test", "http://a.test/page/1", paid=True)
    assert policy.decide("a.test", "http://a.test/page/501", SHELL, RenderChoice.AUTO) is not None


def test_a_page_that_a_request_asks_for_is_rendered_whatever_the_share():
    policy = RenderPolicy(RenderChoice.NEVER, 0.0)
    for number in range(100):
        url = f"http://a.test/page/{number}"
        assert policy.decide("a.test", url, SHELL, RenderChoice.ALWAYS, is_asked=True)


def test_a_moment_of_trouble_does_not_decide_about_a_pattern():
    policy, fails, rendered = RenderPolicy(RenderChoice.AUTO), 6, 0
    urls = [f"http://a.test/page/{number}" for number in range(30)]
    for url in urls:
        if policy.decide("a.test", url, SHELL, RenderChoice.AUTO) is not None:
            fails, rendered = fails - 1, rendered + (fails <= 0)
            policy.learn("a.test", url, paid=None if fails >= 0 else True, comes_again=True)
    assert rendered >= 20
    for url in urls[:5]:  # that come again
        assert policy.decide("a.test", url, SHELL, RenderChoice.AUTO) is RenderReason.AGAIN
        policy.learn("a.test", url, paid=None, comes_again=True)
        assert policy.decide("a.test", url, SHELL, RenderChoice.AUTO) is RenderReason.AGAIN


def test_what_comes_again_is_rendered_once_more_also_where_its_host_is_settled():
    crawl = Crawl()
    crawl.policy.learn("a.test", "http://a.test/app/1", paid=None, comes_again=True)
    crawl.count("http://a.test/page/", SHELL, 20)
    crawl.count("http://a.test/other/", SHELL, 20)
    assert crawl.policy.is_settled("a.test", "http://a.test/app/2", b"")
    assert not crawl.policy.is_settled("a.test", "http://a.test/app/1", b"")
    assert crawl.visit("http://a.test/app/1", SHELL) is RenderReason.AGAIN
    assert crawl.visit("http://a.test/app/1", SHELL) is None


def test_an_application_in_a_folder_of_an_ordinary_host_is_found():
    crawl, thin = Crawl(), ScriptSigns(has_scripts=True, chars=150, links=frozenset("ab"))
    assert crawl.count("http://a.test/page", thin, 20) == TRIED_FIRST
    long = f"<p>{WORDS * 10}</p>".encode()
    assert crawl.policy.is_settled("a.test", "http://a.test/docs/1", long)
    body = f"<div id=root></div>{SCRIPT}{'<!-- x -->' * 1000}".encode()
    assert not crawl.policy.is_settled("a.test", "http://a.test/app/1", body)
    assert crawl.count("http://a.test/app/", SHELL, 50, pays=True) == 50


def test_empty_pages_of_a_settled_host_are_tried_five_times_in_all():
    crawl, thin = Crawl(), ScriptSigns(has_scripts=True, chars=150, links=frozenset("ab"))
    crawl.count("http://a.test/page", thin, 20)
    tried = sum(crawl.count(f"http://a.test/{folder}/", SHELL, 50) for folder in "abcd")
    assert tried == TRIED_FIRST
    assert crawl.policy.is_settled("a.test", "http://a.test/e/1", b"")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_scripts_are_seen_however_they_are_written(encoding):
    assert may_have_scripts("<p>a</p><ScRipt src=x></script>".encode(encoding))
    assert not may_have_scripts("<p>a description</p>".encode(encoding))
