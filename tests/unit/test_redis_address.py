"""Address and user of Redis from a URL, a file and parameters, and never a password shown."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from crawler.model.types import ConfigError
from crawler.shared.address import Address
from tests.servers.certificates import write_certificate

SECRET = "s3cr3t"  # noqa: S105 - of nothing


@pytest.mark.parametrize(
    ("url", "params", "expected"),
    [
        pytest.param("redis://a", {}, {"host": "a", "port": 6379, "db": 0}, id="a host alone"),
        pytest.param("redis://a:6380/3", {}, {"port": 6380, "db": 3}, id="port and database"),
        pytest.param("redis://a/", {}, {"db": 0}, id="a slash and no database"),
        pytest.param("redis://a/3?db=4", {}, {"db": 4}, id="as in redis-py the query says the db"),
        pytest.param("redis://[::1]:6380", {}, {"host": "::1", "port": 6380}, id="an IPv6 address"),
        pytest.param(
            "redis://:k%C3%A4se%20%2F%3F%23%40%25@a",
            {},
            {"password": "käse /?#@%", "credentials": ("käse /?#@%",)},
            id="a password that would break a URL",
        ),
        pytest.param(
            "redis://web:pw@a", {}, {"credentials": ("web", "pw")}, id="a user with a password"
        ),
        pytest.param("redis://web@a", {}, {"credentials": ("web", "")}, id="a user without one"),
        pytest.param("redis://a", {}, {"credentials": ()}, id="no user is named"),
        pytest.param(
            "redis://a?password=pw&username=web",
            {},
            {"credentials": ("web", "pw")},
            id="credentials in the query",
        ),
        pytest.param(
            "unix://:pw@/run/my%20redis.sock?db=2",
            {},
            {"path": "/run/my redis.sock", "db": 2, "password": "pw"},
            id="a socket",
        ),
        pytest.param(
            "redis://a?socket_timeout=0.5&socket_connect_timeout=2",
            {},
            {"reply_s": 0.5, "connect_s": 2.0},
            id="time-outs",
        ),
        pytest.param("redis://a", {}, {"reply_s": 5.0, "connect_s": 5.0}, id="none for ever"),
        pytest.param(
            "redis://a",
            {"password": "pw", "db": 3, "socket_timeout": 30, "client_name": "us"},
            {"password": "pw", "db": 3, "reply_s": 30.0, "client_name": "us"},
            id="parameters of redis-py",
        ),
        pytest.param(
            "redis://:url@a/1",
            {"password": "params", "db": 3},
            {"password": "url", "db": 1},
            id="what the URL says counts before them",
        ),
        pytest.param(
            "redis://a?health_check_interval=3",
            {"socket_keepalive": True},
            {"host": "a"},
            id="how redis-py keeps its connections is not how we keep ours",
        ),
    ],
)
def test_accepted_addresses(url: str, params: dict[str, Any], expected: dict[str, Any]) -> None:
    address = Address.parse(url, params)
    assert {name: getattr(address, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("url", "params", "why"),
    [
        pytest.param("a:6379", {}, "want redis://", id="no scheme"),
        pytest.param(f"redis://:{SECRET}#@a", {}, "written %2F", id="a # in the password"),
        pytest.param("redis://a:70000", {}, "a port is", id="no such port"),
        pytest.param("redis://a?db=x", {}, "db of Redis is", id="a database that is no number"),
        pytest.param("redis://a?db=-1", {}, "db of Redis is", id="a database below the first"),
        pytest.param("redis://a?socket_timeout=0", {}, "socket_timeout", id="no time at all"),
        pytest.param("redis://a", {"socket_timeout": None}, "socket_timeout", id="for ever"),
        pytest.param(
            "rediss://a?ssl_ca_cert=x", {}, "did you mean ssl_ca_certs?", id="a slip of the pen"
        ),
        pytest.param(
            f"redis://user?{SECRET}@a", {}, "unknown option; there are", id="half a password"
        ),
        pytest.param("redis://a?ssl_ca_certs=/x", {}, "rediss://", id="TLS options without TLS"),
        pytest.param("redis://a", {"decode_responses": True}, "no option", id="not our affair"),
        pytest.param("redis://a", {"password": 5}, "password of Redis is not shown", id="a number"),
        pytest.param("rediss://a?ssl_ca_certs=/no", {}, "ssl_ca_certs (/no)", id="no such file"),
        pytest.param(
            "rediss://a?ssl_keyfile=/no", {}, "without its ssl_certfile", id="half of two"
        ),
        pytest.param("rediss://a?ssl_cert_reqs=no", {}, "none, optional or", id="no such check"),
    ],
)
def test_refused_addresses(url: str, params: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Address.parse(url, params)
    assert why in str(refusal.value)
    assert SECRET not in str(refusal.value)


def test_nothing_shows_the_password() -> None:
    address = Address.parse(f"rediss://{SECRET}1:{SECRET}2@redis.example.com/3")
    for text in (str(address), repr(address), f"{address}", repr(address.at("b:1"))):
        assert SECRET not in text
    assert str(address) == "redis.example.com:6379"
    assert str(Address.parse("redis://[::1]")) == "[::1]:6379"
    assert str(Address.parse("unix:///run/redis.sock")) == "/run/redis.sock"


@pytest.mark.parametrize("node", ["10.0.0.7:7001", "[fd00::7]:7001", "b.example.com:7001"])
def test_others_of_a_cluster_take_the_same_credentials(node: str) -> None:
    first = Address.parse("rediss://web:pw@a?socket_timeout=2")
    other = first.at(node)
    assert str(other) == node
    assert (other.credentials, other.tls, other.reply_s) == (first.credentials, first.tls, 2.0)


def test_the_url_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "redis url"
    file.write_text(f"redis://:{SECRET}@a/3\n")
    file.chmod(0o640)
    address = Address.parse(f"file:{file}")
    assert (address.host, address.db, address.password) == ("a", 3, SECRET)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        pytest.param(f"redis://:{SECRET}@a", 0o604, "chmod 600", id="everybody may read it"),
        pytest.param(f"redis://:{SECRET}@a", 0o602, "chmod 600", id="everybody may write it"),
        pytest.param("", 0o600, "want redis://", id="nothing in it"),
        pytest.param(f"{SECRET}\n{SECRET}", 0o600, "want redis://", id="something else in it"),
        pytest.param("file:/etc/passwd", 0o600, "want redis://", id="a file in a file"),
        pytest.param(f"redis://{SECRET * 1000}", 0o600, "unknown", id="an endless one"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, content: str, mode: int, why: str) -> None:
    file = tmp_path / "url"
    file.write_text(content)
    file.chmod(mode)
    if why == "unknown":
        assert len(Address.parse(f"file:{file}").host) < 4096
        return
    with pytest.raises(ConfigError, match=why) as refusal:
        Address.parse(f"file:{file}")
    assert SECRET not in str(refusal.value)


def test_a_url_file_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in ((pipe, "is no file"), (tmp_path, "Is a dir"), (tmp_path / "no", "No such")):
        with pytest.raises(ConfigError, match=why):
            Address.parse(f"file:{path}")


def test_certificates_are_checked_unless_they_are_not(tmp_path: Path) -> None:
    file = write_certificate(tmp_path / "ca.pem", "127.0.0.1")
    assert Address.parse("redis://a").tls is None
    strict = Address.parse(f"rediss://a?ssl_ca_certs={file}&ssl_certfile={file}").tls
    assert strict is not None
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    any_host = Address.parse("rediss://a?ssl_check_hostname=false").tls
    assert any_host is not None
    assert (any_host.verify_mode, any_host.check_hostname) == (ssl.CERT_REQUIRED, False)
    nothing = Address.parse("rediss://a", {"ssl_cert_reqs": "none"}).tls
    assert nothing is not None
    assert (nothing.verify_mode, nothing.check_hostname) == (ssl.CERT_NONE, False)
