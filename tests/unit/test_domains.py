"""Registered domains and the unit of politeness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.url import (
    HostUnit,
    digest_of_list,
    host_key,
    is_ip,
    registered_domain,
)


@pytest.mark.parametrize(
    ("hostname", "want"),
    [
        pytest.param("www.example.com", "example.com", id="below a plain suffix"),
        pytest.param("a.b.example.co.uk", "example.co.uk", id="a suffix of two labels"),
        pytest.param("a.b.kobe.jp", "a.b.kobe.jp", id="a wildcard suffix"),
        pytest.param("www.city.kobe.jp", "city.kobe.jp", id="an exception to it"),
        pytest.param("a.b.github.io", "b.github.io", id="a private suffix: two owners"),
        pytest.param("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn", id="punycode"),
        pytest.param("www.example.com.", "example.com", id="the root's dot"),
        pytest.param("a.b.unheard-of", "b.unheard-of", id="an unknown suffix is one label"),
        pytest.param("co.uk", "co.uk", id="a suffix is its own"),
        pytest.param("localhost", "localhost", id="one label is its own"),
        pytest.param("127.0.0.1", "127.0.0.1", id="so is an IPv4 address"),
        pytest.param("[2001:db8::1]", "[2001:db8::1]", id="so is an IPv6 address"),
        pytest.param("a..b", "a..b", id="so is what is no name"),
        pytest.param("", "", id="so is nothing"),
    ],
)
def test_registered_domain(hostname: str, want: str) -> None:
    assert registered_domain(hostname) == want


@given(st.text(st.sampled_from("ab.-1[]:"), max_size=12))
def test_a_domain_is_its_own_and_ends_its_names(hostname: str) -> None:
    domain = registered_domain(hostname)
    assert registered_domain(domain) == domain
    assert hostname.rstrip(".").endswith(domain)


@pytest.mark.parametrize(
    ("hostname", "unit", "want"),
    [
        pytest.param("www.example.com", HostUnit.HOST, "www.example.com", id="a name"),
        pytest.param("www.example.com.", HostUnit.HOST, "www.example.com", id="dot: same server"),
        pytest.param("www.example.com", HostUnit.DOMAIN, "example.com", id="a domain"),
        pytest.param("127.0.0.1", HostUnit.DOMAIN, "127.0.0.1", id="an address has no domain"),
    ],
)
def test_host_key(hostname: str, unit: HostUnit, want: str) -> None:
    assert host_key(hostname, unit) == want


@pytest.mark.parametrize(
    ("hostname", "want"),
    [
        pytest.param("127.0.0.1", True, id="IPv4"),
        pytest.param("[::1]", True, id="IPv6"),
        pytest.param("::1", True, id="IPv6 without brackets"),
        pytest.param("1.2.3.com", False, id="numbers below a name"),
        pytest.param("example.com1", False, id="a name that ends in a digit"),
    ],
)
def test_is_ip(hostname: str, want: bool) -> None:
    assert is_ip(hostname) is want


LIST = b"// VERSION: 1\n\ncom\nco.uk\n*.kobe.jp\n"


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(b"// VERSION: 2\n// later\ncom\nco.uk\n\n*.kobe.jp", True, id="words"),
        pytest.param(b"com\r\nco.uk  \r\n*.kobe.jp\r\n", True, id="another kind of lines"),
        pytest.param(LIST + b"github.io\n", False, id="one rule more"),
        pytest.param(b"com\n*.kobe.jp\n", False, id="one less"),
    ],
)
def test_a_list_is_known_by_its_rules(other: bytes, is_same: bool) -> None:
    assert (digest_of_list(other) == digest_of_list(LIST)) is is_same
