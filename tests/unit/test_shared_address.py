"""Which Redis is shared: our setting first and alone, else scrapy-redis' own, read as there."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from redis.connection import ConnectionPool
from scrapy.settings import Settings

from crawler.addon import Addon
from crawler.config.settings import read_config
from crawler.model.types import ConfigError
from crawler.shared.address import (
    IGNORED,
    PARAM_KINDS,
    RedisAddress,
    redis_address,
)

OURS = "redis://:s3cr3t@ours"
THEIRS = "redis://:s3cr3t@theirs"


def address(**given: Any) -> RedisAddress | None:
    settings = Settings(given)
    return redis_address(settings, read_config(settings))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="nothing is shared unless somebody says so"),
        pytest.param({"CRAWLER_FRONTIER_URL": OURS}, (OURS, {}), id="ours"),
        pytest.param({"REDIS_URL": THEIRS}, (THEIRS, {}), id="scrapy-redis' where ours is not set"),
        pytest.param(
            {"CRAWLER_FRONTIER_URL": OURS, "REDIS_URL": THEIRS, "REDIS_PARAMS": {"password": "x"}},
            (OURS, {}),
            id="ours alone: the password of one server is not for another",
        ),
        pytest.param(
            {"CRAWLER_FRONTIER_URL": "", "REDIS_URL": THEIRS},
            None,
            id="ours set to nothing: theirs is for something else",
        ),
        pytest.param(
            {"REDIS_URL": THEIRS, "REDIS_PARAMS": {"db": 3, "socket_timeout": "5"}},
            (THEIRS, {"db": 3, "socket_timeout": 5.0}),
            id="params beside a URL",
        ),
        pytest.param(
            {"REDIS_URL": THEIRS, "REDIS_PARAMS": '{"password": "s3cr3t"}'},
            (THEIRS, {"password": "s3cr3t"}),
            id="params on a command line",
        ),
        pytest.param(
            {"REDIS_PARAMS": {"url": THEIRS, "db": 3}, "REDIS_URL": OURS, "REDIS_DB": "4"},
            (OURS, {"db": 4}),
            id="a setting of its own counts before the same in the params",
        ),
        pytest.param(
            {"REDIS_HOST": "redis.example.com", "REDIS_PORT": "6380"},
            ("redis://redis.example.com:6380", {}),
            id="host and port",
        ),
        pytest.param({"REDIS_HOST": "::1"}, ("redis://[::1]:6379", {}), id="an IPv6 address"),
        pytest.param({"REDIS_PORT": 6380}, ("redis://localhost:6380", {}), id="a port alone"),
        pytest.param(
            {"REDIS_PARAMS": {"password": "s3cr3t"}},
            ("redis://localhost:6379", {"password": "s3cr3t"}),
            id="params alone: this machine, as there",
        ),
        pytest.param(
            {"REDIS_PARAMS": {"unix_socket_path": "/run/my redis.sock", "db": 1}},
            ("unix:///run/my%20redis.sock", {"db": 1}),
            id="a socket",
        ),
        pytest.param(
            {"REDIS_HOST": "a", "REDIS_PARAMS": {"ssl": True, "ssl_cert_reqs": None}},
            ("rediss://a:6379", {"ssl_cert_reqs": "none"}),
            id="TLS, its certificate not looked at",
        ),
        pytest.param(
            {"REDIS_URL": "rediss://a", "REDIS_PARAMS": {"ssl_cert_reqs": ssl.CERT_OPTIONAL}},
            ("rediss://a", {"ssl_cert_reqs": "optional"}),
            id="a word of Python's for certificates",
        ),
        pytest.param(
            {"REDIS_HOST": "a", "REDIS_PARAMS": {"ssl": False, "ssl_ca_certs": "/ca.pem"}},
            ("redis://a:6379", {}),
            id="certificates without TLS are for nothing",
        ),
        pytest.param(
            {"REDIS_URL": THEIRS, "REDIS_PARAMS": {"redis_cls": "a.B", "encoding": "latin-1"}},
            (THEIRS, {}),
            id="what is about another client is none of ours: no class is loaded",
        ),
        pytest.param(
            {"REDIS_URL": THEIRS, "REDIS_PARAMS": {"password": None}},
            (THEIRS, {}),
            id="a password from an environment that has none",
        ),
        pytest.param({"REDIS_URL": None, "REDIS_PARAMS": {}}, None, id="set to nothing"),
    ],
)
def test_which_redis_is_shared(given, expected):
    assert address(**given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"REDIS_URL": "redis://:s3c#r3t@a"}, "REDIS_URL is not shown", id="a # in a password"
        ),
        pytest.param({"REDIS_URL": "file:/s3cr3t"}, "REDIS_URL is not shown", id="ours alone"),
        pytest.param({"REDIS_HOST": THEIRS}, "REDIS_HOST is not shown", id="a URL for a host"),
        pytest.param(
            {"REDIS_PORT": "s3cr3t"}, "^REDIS_PORT .*want a whole number of ports", id="no port"
        ),
        pytest.param(
            {"REDIS_PARAMS": "s3cr3t"}, "want a dict, or on a command line", id="params no dict"
        ),
        pytest.param(
            {"REDIS_PARAMS": ["s3cr3t"]}, "REDIS_PARAMS is not shown", id="params in a list"
        ),
        pytest.param(
            {"REDIS_PARAMS": {"pasword": "s3cr3t"}}, "did you mean password", id="a letter lost"
        ),
        pytest.param(
            {"REDIS_PARAMS": {"password": ["s3cr3t"]}}, "want a text", id="a password in a list"
        ),
        pytest.param(
            {"REDIS_PARAMS": {"ssl_cert_reqs": "s3cr3t"}}, "none, optional or", id="no such check"
        ),
    ],
)
def test_invalid_settings_are_refused_by_name_without_their_value(given, message):
    with pytest.raises(ConfigError, match=message) as refused:
        address(**given)
    assert "s3c" not in str(refused.value)


def test_an_address_does_not_show_itself():
    found = address(REDIS_URL=THEIRS, REDIS_PARAMS={"password": "s3cr3t"})
    assert "s3cr3t" not in f"{found!r} {found}"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"REDIS_URL": "redis://a/2"}, id="a URL"),
        pytest.param({"REDIS_HOST": "a"}, id="a host"),
        pytest.param({"REDIS_HOST": "a", "REDIS_PARAMS": {"ssl": True}}, id="TLS"),
        pytest.param({"REDIS_PARAMS": {"unix_socket_path": "/a"}}, id="a socket"),
    ],
)
def test_redis_py_takes_what_we_hand_on(given):
    example = {"username": "u", "password": "p", "socket_timeout": 1, "socket_keepalive": "yes"}
    example |= {"client_name": "c", "db": 7, "socket_connect_timeout": 2, "ssl_ca_certs": "/ca"}
    example |= {"ssl_cert_reqs": "none", "ssl_certfile": "/c", "ssl_keyfile": "/k"}
    example |= {"ssl_ca_path": "/d", "ssl_check_hostname": False, "ssl_password": "q"}
    example |= {"health_check_interval": 5}
    assert example.keys() | {"url", "host", "port", "unix_socket_path", "ssl"} == PARAM_KINDS.keys()
    params = {**example, **given.get("REDIS_PARAMS", {})}
    found = address(**{**given, "REDIS_PARAMS": params})
    assert found is not None
    connection = ConnectionPool.from_url(found.url, **found.params).make_connection()
    assert (connection.db, connection.password) == (2 if "REDIS_URL" in given else 7, "p")


def test_a_crawl_is_refused_before_it_begins():
    with pytest.raises(ConfigError, match=r"^REDIS_URL is not shown"):
        Addon().update_settings(Settings({"REDIS_URL": "redis://"}))


def test_nothing_is_both_ours_and_ignored():
    assert not PARAM_KINDS.keys() & set(IGNORED)
