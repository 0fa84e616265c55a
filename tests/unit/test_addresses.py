"""Which addresses are public, and what a crawl may contact."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.url import fetch_form, split
from crawler.policy.scope import (
    AddressKind,
    AddressRules,
    Reason,
    address_kind,
    host_kind,
)

PUBLIC, LOOPBACK, INSIDE = AddressKind.PUBLIC, AddressKind.LOOPBACK, AddressKind.INSIDE
NOBODY = AddressRules(allow_public=False)
OPENED = frozenset({("127.0.0.1", 80), ("::1", 80), ("a.localhost", 80), ("localhost", 80)})
LOCAL = AddressRules(allow_public=False, opened=OPENED)
KNOWN = AddressRules(allow_public=True)
KNOWN_AND_LOCAL = AddressRules(allow_public=True, opened=OPENED)
OFFICE = AddressRules(allow_public=True, inside=(ip_network("10.1.0.0/16"), ip_network("fd00::/8")))
EVERYWHERE = AddressRules(allow_public=True, inside=(ip_network("0.0.0.0/0"),))


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
        pytest.param("64:ff9b:1::1", INSIDE, id="somebody's own NAT64"),
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
def test_what_is_public_here_is_global_to_the_standard_library(
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
def test_refusal(rules: AddressRules, hostname: str, want: Reason | None) -> None:
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
def test_admits(rules: AddressRules, ip: str, hostname: str, want: bool) -> None:
    assert rules.admits(ip, hostname, 80) is want
