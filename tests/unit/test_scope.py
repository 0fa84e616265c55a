"""Which URLs belong to a crawl, which addresses it may contact, and which URLs look like a trap or
an endless calendar."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.arguments import SeedTerms
from crawler.model.choices import ScopeChoice
from crawler.model.types import ConfigError
from crawler.model.url import fetch_form, split
from crawler.policy.addresses import (
    AddressKind,
    AllowedAddresses,
    address_kind,
    host_kind,
)
from crawler.policy.refusal import Reason
from crawler.policy.scope import Scope, SeedHosts, place_of_seed
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.traps import CalendarLimits, TrapLimits


def scope_of(**terms: Any) -> Scope:
    return Scope(terms=(SeedTerms(**terms),))


SEEDS = frozenset({"www.example.com", "docs.example.co.uk"})


@pytest.mark.parametrize(
    ("mode", "hostname", "inside"),
    [
        pytest.param(ScopeChoice.ANY, "anywhere.example", True, id="any host"),
        pytest.param(ScopeChoice.HOST, "www.example.com", True, id="a seed's host"),
        pytest.param(ScopeChoice.HOST, "example.com", True, id="without www"),
        pytest.param(ScopeChoice.HOST, "www.docs.example.co.uk", True, id="with www"),
        pytest.param(ScopeChoice.HOST, "docs.example.co.uk.", True, id="with the root's dot"),
        pytest.param(ScopeChoice.HOST, "blog.example.com", False, id="another host"),
        pytest.param(ScopeChoice.DOMAIN, "blog.example.com", True, id="a seed's domain"),
        pytest.param(ScopeChoice.DOMAIN, "a.b.example.co.uk", True, id="under a long suffix"),
        pytest.param(ScopeChoice.DOMAIN, "other.co.uk", False, id="not its neighbour there"),
        pytest.param(ScopeChoice.DOMAIN, "notexample.com", False, id="not what ends like it"),
    ],
)
def test_hosts(mode: ScopeChoice, hostname: str, inside: bool) -> None:
    refusal = scope_of(scope=mode).with_seeds(SEEDS).host_refusal(hostname)
    assert (refusal is None) is inside
    assert refusal is None or refusal.reason is Reason.OUT_OF_SCOPE


FOLDERS = (
    *("https://www.example.com/docs/en/index.html?x=/", "https://example.org", "http://a.b/x"),
    "http://c.d/日/%7Eu/",
)


@pytest.mark.parametrize(
    ("url", "mode", "inside"),
    [
        pytest.param("https://www.example.com/docs/en/", "prefix", True, id="a seed's folder"),
        pytest.param("http://example.com:81/docs/en/a/b?c", "prefix", True, id="below it"),
        pytest.param("https://example.com/docs/en", "prefix", False, id="not what is called so"),
        pytest.param("https://example.com/docs/english/", "prefix", False, id="or begins so"),
        pytest.param("https://example.com/docs/", "prefix", False, id="not above it"),
        pytest.param("https://example.com/?/docs/en/", "prefix", False, id="not in a query"),
        pytest.param("https://shop.example.com/docs/en/", "prefix", False, id="not another host"),
        pytest.param("https://example.org/docs/en/", "prefix", True, id="all below the root"),
        pytest.param("http://a.b/y", "prefix", True, id="a seed without a slash is in its folder"),
        pytest.param("https://www.example.com/d%6fcs/en/", "prefix", True, id="another escape"),
        pytest.param("http://c.d/%e6%97%a5/~u/x", "prefix", True, id="in lower case, or needless"),
        pytest.param("https://www.example.com/docs/en/", "page", False, id="no link"),
        pytest.param("https://elsewhere.example/", "page", False, id="nor one to another host"),
        pytest.param("https://example.com/docs/", "host", True, id="by host: anywhere on it"),
    ],
)
def test_folders_and_pages_of_seeds(url: str, mode: str, inside: bool) -> None:
    urls = [fetch_form(text) or "" for text in FOLDERS]
    scope = scope_of(scope=ScopeChoice(mode))
    pushed = scope.with_seeds(place_of_seed(each, scope.mode) for each in urls)
    listed = SeedHosts(TermsOfSeeds(scope.terms[0]), urls).scope()
    for one in (pushed, listed):
        assert all(map(one.has_place, [*urls, f"{urls[0].partition('?')[0]}/below/"]))
        refusal = one.host_refusal(split(url).hostname)
        refusal = refusal or one.refusal(url, split(url).path, 1, is_exempt=False)
        assert (refusal is None) is inside
        assert refusal is None or refusal.reason is Reason.OUT_OF_SCOPE


BLOG = scope_of(
    allow=(re.compile("/blog/"), re.compile(r"\.pdf$")), deny=(re.compile("/tag/"),), max_depth=3
)

NO_QUERY = scope_of(deny=(re.compile("[?]"),))
PAGES = Scope(denied_types=frozenset({"gz", "mp4", "zip"}))


@pytest.mark.parametrize(
    ("scope", "path", "depth", "want"),
    [
        pytest.param(Scope(), "/page", 1000, None, id="no bounds by default"),
        pytest.param(BLOG, "/blog/1", 3, None, id="allowed, at the last depth"),
        pytest.param(BLOG, "/paper.pdf", 1, None, id="allowed by the second pattern"),
        pytest.param(BLOG, "/blog/1", 4, Reason.MAX_DEPTH, id="too deep"),
        pytest.param(BLOG, "/shop/", 1, Reason.NOT_ALLOWED, id="not allowed"),
        pytest.param(BLOG, "/blog/tag/x", 1, Reason.DENIED, id="a denial over an allowance"),
        pytest.param(BLOG, "/", 0, None, id="a seed needs no allowance"),
        pytest.param(BLOG, "/tag/x", 0, Reason.DENIED, id="but is denied"),
        pytest.param(scope_of(max_depth=0), "/", 0, None, id="only seeds"),
        pytest.param(scope_of(max_depth=0), "/", 1, Reason.MAX_DEPTH, id="and no links"),
        pytest.param(
            scope_of(deny=(re.compile("[?]"),)), "/?x", 1, Reason.DENIED, id="in the query"
        ),
        pytest.param(PAGES, "/film.MP4", 1, Reason.FILE_TYPE, id="a file type, in capitals"),
        pytest.param(PAGES, "/a.tar.gz?x=1", 1, Reason.FILE_TYPE, id="before a query"),
        pytest.param(PAGES, "/film.mp4", 0, None, id="a seed's type is as wanted"),
        pytest.param(PAGES, "/get.php?file=a.zip", 1, None, id="the query has no type"),
        pytest.param(PAGES, "/a.zip/info", 1, None, id="nor has a directory"),
        pytest.param(PAGES, "/zip", 1, None, id="nor has a bare name"),
        pytest.param(PAGES, "/paper.pdf", 1, None, id="another type"),
        pytest.param(Scope(), "/a.zip", 1, None, id="all types by default"),
    ],
)
def test_urls(scope: Scope, path: str, depth: int, want: Reason | None) -> None:
    url = f"https://example.com{path}"
    refusal = scope.refusal(url, split(url).path, depth, is_exempt=depth == 0)
    assert (refusal.reason if refusal else None) is want


PUBLIC, LOOPBACK, INSIDE = AddressKind.PUBLIC, AddressKind.LOOPBACK, AddressKind.INSIDE
NOBODY = AllowedAddresses(allow_public=False)
OPENED = frozenset({("127.0.0.1", 80), ("::1", 80), ("a.localhost", 80), ("localhost", 80)})
LOCAL = AllowedAddresses(allow_public=False, opened=OPENED)
KNOWN = AllowedAddresses(allow_public=True)
KNOWN_AND_LOCAL = AllowedAddresses(allow_public=True, opened=OPENED)
OFFICE = AllowedAddresses(
    allow_public=True, inside=(ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
)
EVERYWHERE = AllowedAddresses(allow_public=True, inside=(ip_network("0.0.0.0/0"),))


@pytest.mark.parametrize(
    ("ip", "want"),
    [
        pytest.param("8.8.8.8", PUBLIC, id="a public IPv4 address"),
        pytest.param("2606:4700::1111", PUBLIC, id="a public IPv6 address"),
        pytest.param("127.0.0.1", LOOPBACK, id="loopback"),
        pytest.param("127.255.255.254", LOOPBACK, id="all of 127.0.0.0/8"),
        pytest.param("::1", LOOPBACK, id="IPv6 loopback"),
        pytest.param("0.0.0.0", INSIDE, id="unspecified, which reaches this machine"),
        pytest.param("::", INSIDE, id="unspecified IPv6"),
        pytest.param("10.0.0.1", INSIDE, id="private 10"),
        pytest.param("172.16.0.1", INSIDE, id="private 172.16"),
        pytest.param("172.32.0.1", PUBLIC, id="just past it"),
        pytest.param("192.168.1.1", INSIDE, id="private 192.168"),
        pytest.param("100.64.0.1", INSIDE, id="carrier-grade NAT"),
        pytest.param("100.128.0.1", PUBLIC, id="just past it too"),
        pytest.param("169.254.1.1", INSIDE, id="link-local"),
        pytest.param("169.254.169.254", INSIDE, id="cloud metadata"),
        pytest.param("168.63.129.16", INSIDE, id="a cloud's host agent"),
        pytest.param("100.100.100.200", INSIDE, id="cloud metadata in carrier NAT"),
        pytest.param("fd00:ec2::254", INSIDE, id="cloud metadata on IPv6"),
        pytest.param("224.0.0.1", INSIDE, id="multicast"),
        pytest.param("255.255.255.255", INSIDE, id="broadcast"),
        pytest.param("240.0.0.1", INSIDE, id="reserved"),
        pytest.param("192.0.2.1", INSIDE, id="documentation"),
        pytest.param("fe80::1", INSIDE, id="IPv6 link-local"),
        pytest.param("fe80::1%eth0", INSIDE, id="with a zone"),
        pytest.param("fc00::1", INSIDE, id="unique local"),
        pytest.param("ff02::1", INSIDE, id="IPv6 multicast"),
        pytest.param("2001:db8::1", INSIDE, id="IPv6 documentation"),
        pytest.param("2001::1", INSIDE, id="Teredo"),
        pytest.param("::ffff:8.8.8.8", PUBLIC, id="mapped public"),
        pytest.param("::ffff:10.0.0.1", INSIDE, id="mapped private"),
        pytest.param("::ffff:127.0.0.1", INSIDE, id="mapped loopback is a disguise"),
        pytest.param("2002:808:808::1", PUBLIC, id="6to4 of public"),
        pytest.param("2002:a00:1::1", INSIDE, id="6to4 of private"),
        pytest.param("2002:7f00:1::", INSIDE, id="6to4 of loopback"),
        pytest.param("64:ff9b::808:808", PUBLIC, id="NAT64 of public"),
        pytest.param("64:ff9b::a9fe:a9fe", INSIDE, id="NAT64 of cloud metadata"),
        pytest.param("64:ff9b:1::1", INSIDE, id="a private NAT64"),
        pytest.param("::10.0.0.1", INSIDE, id="IPv4-compatible, withdrawn"),
        pytest.param("rubbish", INSIDE, id="what cannot be read is not let in"),
    ],
)
def test_place_of_ip(ip: str, want: AddressKind) -> None:
    assert address_kind(ip) is want


ADDRESSES = st.one_of(
    st.ip_addresses(),
    st.ip_addresses(network="2000::/3"),
    st.ip_addresses(network="2002::/16"),
    st.ip_addresses(network="::ffff:0:0/96"),
)


@given(ADDRESSES)
def test_public_addresses_are_global_to_the_standard_library(
    address: IPv4Address | IPv6Address,
) -> None:
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    nat64 = address in ip_network("64:ff9b::/96")
    if address_kind(str(address)) is PUBLIC and not nat64:
        judged = mapped or address
        assert judged.is_global
        assert not judged.is_multicast


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param("http://localhost/", LOOPBACK, id="localhost"),
        pytest.param("http://localhost./", LOOPBACK, id="with the root's dot"),
        pytest.param("http://shop.LOCALHOST/", LOOPBACK, id="names below it"),
        pytest.param("http://notlocalhost/", PUBLIC, id="not what only ends like it"),
        pytest.param("http://localhost.example.com/", PUBLIC, id="nor begins like it"),
        pytest.param("http://127.1/", LOOPBACK, id="a short form"),
        pytest.param("http://0x7f000001/", LOOPBACK, id="a hexadecimal form"),
        pytest.param("http://2130706433/", LOOPBACK, id="a decimal form"),
        pytest.param("http://0177.0.0.1/", LOOPBACK, id="an octal form"),
        pytest.param("http://127.0.0.1./", LOOPBACK, id="with a dot"),
        pytest.param("http://①②⑦.0.0.1/", LOOPBACK, id="in circles"),
        pytest.param("http://[::1]/", LOOPBACK, id="IPv6"),
        pytest.param("http://[0:0::0:1]:8000/", LOOPBACK, id="IPv6 written out"),
        pytest.param("http://0/", INSIDE, id="nought"),
        pytest.param("http://[::ffff:a9fe:a9fe]/", INSIDE, id="metadata, mapped"),
        pytest.param("http://intranet/", PUBLIC, id="a name is public until resolved"),
    ],
)
def test_place_of_host_in_all_its_disguises(url: str, want: AddressKind) -> None:
    form = fetch_form(url)
    assert form is not None
    assert host_kind(split(form).hostname) is want


@pytest.mark.parametrize(
    ("rules", "hostname", "want"),
    [
        pytest.param(NOBODY, "example.com", Reason.NO_CONTACT, id="no contact, no public host"),
        pytest.param(NOBODY, "8.8.8.8", Reason.NO_CONTACT, id="nor a public address"),
        pytest.param(NOBODY, "127.0.0.1", Reason.INSIDE_ADDRESS, id="loopback needs its seed"),
        pytest.param(LOCAL, "127.0.0.1", None, id="a loopback seed admits its own host"),
        pytest.param(LOCAL, "127.0.0.2", Reason.INSIDE_ADDRESS, id="and no other of loopback"),
        pytest.param(LOCAL, "b.localhost", Reason.INSIDE_ADDRESS, id="nor another name"),
        pytest.param(LOCAL, "[::1]", None, id="an IPv6 one too"),
        pytest.param(LOCAL, "a.localhost", None, id="and a name"),
        pytest.param(LOCAL, "example.com", Reason.NO_CONTACT, id="but nothing public"),
        pytest.param(LOCAL, "10.0.0.1", Reason.INSIDE_ADDRESS, id="and nothing inside"),
        pytest.param(KNOWN, "example.com", None, id="a contact admits public hosts"),
        pytest.param(KNOWN, "localhost", Reason.INSIDE_ADDRESS, id="but not loopback"),
        pytest.param(KNOWN, "169.254.169.254", Reason.INSIDE_ADDRESS, id="nor metadata"),
        pytest.param(OFFICE, "10.1.2.3", None, id="a named network"),
        pytest.param(OFFICE, "[fd00::1]", None, id="a named IPv6 network"),
        pytest.param(OFFICE, "10.2.0.1", Reason.INSIDE_ADDRESS, id="not its neighbour"),
        pytest.param(EVERYWHERE, "192.168.0.1", None, id="every network"),
        pytest.param(EVERYWHERE, "localhost", None, id="loopback among them"),
    ],
)
def test_refusal(rules: AllowedAddresses, hostname: str, want: Reason | None) -> None:
    refusal = rules.refusal(hostname, 80)
    assert (refusal.reason if refusal else None) is want


def test_a_loopback_seed_opens_its_own_port_only() -> None:
    assert LOCAL.refusal("127.0.0.1", 80) is None
    assert LOCAL.refusal("127.0.0.1", 8080) is not None
    assert LOCAL.admits("127.0.0.1", "localhost", 80)
    assert not LOCAL.admits("127.0.0.1", "localhost", 8080)


@pytest.mark.parametrize(
    ("rules", "ip", "hostname", "want"),
    [
        pytest.param(KNOWN, "8.8.8.8", "example.com", True, id="public"),
        pytest.param(NOBODY, "8.8.8.8", "example.com", False, id="not without a contact"),
        pytest.param(KNOWN, "10.0.0.1", "example.com", False, id="a public name leads inside"),
        pytest.param(KNOWN, "127.0.0.1", "example.com", False, id="or to loopback"),
        pytest.param(
            KNOWN_AND_LOCAL, "127.0.0.1", "example.com", False, id="even if a seed is loopback"
        ),
        pytest.param(KNOWN_AND_LOCAL, "127.0.0.1", "localhost", True, id="localhost may"),
        pytest.param(LOCAL, "::1", "a.localhost", True, id="and names below it"),
        pytest.param(LOCAL, "10.0.0.1", "localhost", False, id="but only to loopback"),
        pytest.param(OFFICE, "10.1.2.3", "wiki.example.com", True, id="a named network"),
        pytest.param(LOCAL, "127.0.0.1", "127.0.0.1", True, id="a literal leads to itself"),
        pytest.param(LOCAL, "::1", "::1", True, id="an IPv6 literal too"),
        pytest.param(KNOWN, "10.0.0.1", "10.0.0.1", False, id="if it may be contacted"),
        pytest.param(KNOWN, "rubbish", "example.com", False, id="rubbish"),
    ],
)
def test_admits(rules: AllowedAddresses, ip: str, hostname: str, want: bool) -> None:
    assert rules.admits(ip, hostname, 80) is want


CALENDAR_RULES = CalendarLimits(from_year=1990, until=(2027, 6, 20))


def refused(url: str, limits: CalendarLimits = CALENDAR_RULES) -> str:
    path, _, query = url.partition("?")
    found = limits.refusal(path, query)
    assert found is None or found.reason is Reason.CALENDAR
    return found.detail if found else ""


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/2027/07/", id="a month ahead"),
        pytest.param("/calendar/2027/06/21", id="a day ahead"),
        pytest.param("/calendar/1989/12/31/view", id="a day before"),
        pytest.param("/1905/01", id="a month before"),
        pytest.param("/2027-06-21", id="a day in one word"),
        pytest.param("/1989-12/", id="a month in one word"),
        pytest.param("/events/2031-01-01.html", id="a day as a file"),
        pytest.param("/c?date=2031-01-01", id="a parameter date"),
        pytest.param("/c?view=list&day=2031-1-1&x=2", id="one digit, among others"),
        pytest.param("/c?month=2031-01", id="a month with its year"),
        pytest.param("/c?date=20310101", id="without separators"),
        pytest.param("/c?date=01/02/2031", id="the year last"),
        pytest.param("/c?date=1.12.2031", id="with dots"),
        pytest.param("/c?Date=01%2F02%2F1989", id="escaped slashes"),
        pytest.param("/c?month=1&year=2031", id="month and year apart"),
        pytest.param("/c?year=1950&a=b&month=12", id="in either order"),
        pytest.param("/c?tribe-bar-date=2031-01-01", id="a name that ends in date"),
        pytest.param("/c?cal[month]=7&cal[year]=2031", id="in a list"),
        pytest.param("/c?cal%5Bdate%5D=2031-07-01", id="in an escaped one"),
    ],
)
def test_refusals(url: str) -> None:
    assert refused(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/2027/06/", id="the month in which the range ends"),
        pytest.param("/2027/06/20/", id="its last day"),
        pytest.param("/1990/01/", id="the first month"),
        pytest.param("/2014/05/12/a-title", id="an article"),
        pytest.param("/product/2099", id="a number that looks like a year"),
        pytest.param("/product/2099/12345", id="and another beside it"),
        pytest.param("/product/2099/13/", id="no month"),
        pytest.param("/issues/2099/3/", id="a month would have two digits"),
        pytest.param("/2099/", id="a year alone"),
        pytest.param("/pull/4099/12/", id="too far for a calendar"),
        pytest.param("/pull/1250/12/", id="too long ago for one"),
        pytest.param("/history/1944-06-06-d-day", id="a day in a title"),
        pytest.param("/part-2099-12", id="a number of a part"),
        pytest.param("/article/20991231", id="eight digits"),
        pytest.param("/12099/12/", id="five digits"),
        pytest.param("/cars?year=1965", id="the year of a car"),
        pytest.param("/cars?year=1965&month=price", id="a month that is none"),
        pytest.param("/c?month=25", id="a number"),
        pytest.param("/c?date=2026-13-01", id="no date"),
        pytest.param("/c?q=2031-01-01", id="a parameter that says nothing"),
        pytest.param("/c?update=2031-01-01", id="a word that ends in date"),
        pytest.param("/c?date=2031-01-01-and-more", id="more than a date"),
        pytest.param("/c?date=2026-05-16", id="today"),
    ],
)
def test_not_refused(url: str) -> None:
    assert refused(url) == ""


def test_a_refused_calendar_names_its_figures() -> None:
    assert refused("/a/2031/05/") == "2031/05 is after 2027-06-20"
    assert refused("/?year=1950&month=1") == "1950-1 is before 1990"


def test_a_range_without_an_end_refuses_nothing() -> None:
    rules = CalendarLimits()
    assert refused("/2999/12/", rules) == refused("/?date=1001-01-01", rules) == ""


HOST = "http://example.com"
TRAP_RULES = TrapLimits()
UNBOUNDED = TrapLimits(max_path_segments=1000)


def reason(path: str, limits: TrapLimits = TRAP_RULES) -> Reason | None:
    refusal = limits.refusal(HOST + path, path.partition("?")[0])
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
    rules = TrapLimits(max_url_chars=30, max_path_segments=2, max_repeats=1)
    assert reason("/a/b", rules) is None
    assert reason("/a/b/c", rules) is Reason.PATH_TOO_DEEP
    assert reason("/a/a/x", TrapLimits(max_repeats=1)) is Reason.REPEATED_SEGMENTS
    assert reason("/" + "x" * 30, rules) is Reason.URL_TOO_LONG


@pytest.mark.parametrize(
    "figure", ["max_url_chars", "max_path_segments", "max_repeats", "max_parameters"]
)
def test_a_figure_below_one_is_refused(figure: str) -> None:
    with pytest.raises(ConfigError):
        TrapLimits(**{figure: 0})


# The rules as their authors wrote them, the expressions of Heritrix and Nutch.
HERITRIX = re.compile(r".*?/(.*?/)\1{2,}.*")
NUTCH = re.compile(r".*(/[^/]+)/[^/]+\1/[^/]+\1/")


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=9), st.sampled_from(["", "x", "a"]))
def test_repetition_is_defined_as_in_heritrix_and_nutch(directories: list[str], last: str) -> None:
    path = "/" + "".join(f"{each}/" for each in directories) + last
    theirs = bool(HERITRIX.match(path) or NUTCH.match(path))
    assert (reason(path, UNBOUNDED) is Reason.REPEATED_SEGMENTS) is theirs


def test_a_refused_trap_names_its_figures() -> None:
    refusal = TRAP_RULES.refusal(HOST + "/a/b/a/b/a/b/x", "/a/b/a/b/a/b/x")
    assert refusal is not None
    assert refusal.explain() == (
        "a path that repeats itself is taken for a trap: 'a/b/' comes 3 times"
    )
