"""The settings of a shared crawl: which URLs count, what fits together, and no password told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.kinds import file_of
from crawler.config.settings import SharedSettings, read_config
from crawler.model.choices import ByServer
from crawler.model.types import ConfigError


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("", id="nothing is shared"),
        pytest.param("redis://localhost", id="a host alone"),
        pytest.param("redis://10.0.0.7:6379/0", id="address, port and database"),
        pytest.param("redis://[::1]:6379", id="an IPv6 address"),
        pytest.param("redis://:secret@redis.example.com/", id="a password"),
        pytest.param("rediss://crawler:s%23c%2Fret@redis:6380", id="TLS, a user, # and / as %"),
        pytest.param("redis://u:a@b:c@redis", id="the last @ ends the password"),
        pytest.param("rediss://redis?ssl_ca_certs=/etc/ca.pem&db=2", id="options"),
        pytest.param("unix:///run/redis.sock", id="a socket of this machine"),
        pytest.param("unix://:secret@/run/redis.sock?db=1", id="a socket with a password"),
        pytest.param("file:/run/secrets/frontier", id="a file that holds the URL"),
        pytest.param("file:///run/secrets/frontier", id="the same as browsers write it"),
    ],
)
def test_where_a_frontier_can_be(url):
    assert read_config({"CRAWLER_FRONTIER_URL": url}).shared.frontier_url == url


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("s3cr3t@redis:6379", id="no scheme"),
        pytest.param("REDIS://:s3cr3t@redis", id="a scheme that Redis' clients do not know"),
        pytest.param("http://:s3cr3t@redis", id="a scheme of something else"),
        pytest.param("redis://:s3cr3t@", id="no host"),
        pytest.param("redis://:s3c#r3t@redis", id="a # ends the host where it stands"),
        pytest.param("redis://:s3c/r3t@redis:6379", id="so does a /"),
        pytest.param("redis://:s3c?r3t@redis:6379", id="and a ?"),
        pytest.param("redis://redis:s3cr3t", id="a password for a port"),
        pytest.param("redis://:s3cr3t@redis:0", id="port 0"),
        pytest.param("redis://:s3cr3t@redis:65536", id="a port above all"),
        pytest.param("redis://:s3cr3t@redis/zero", id="a database without a number"),
        pytest.param("redis://:s3cr3t@redis\n", id="a line break, as a file has it"),
        pytest.param("redis://:s3cr3t@a,b", id="two servers"),
        pytest.param("unix://:s3cr3t@redis.sock", id="a socket without its folder"),
        pytest.param("file:s3cr3t", id="a file without its folder"),
        pytest.param("file://host/s3cr3t", id="a file of another machine"),
        pytest.param(b"redis://:s3cr3t@redis", id="bytes"),
        pytest.param({"url": "s3cr3t"}, id="a dict"),
    ],
)
def test_where_it_cannot_be_is_said_without_what_was_given(url):
    with pytest.raises(
        ConfigError, match=r"^CRAWLER_FRONTIER_URL is not shown.*; want redis"
    ) as no:
        read_config({"CRAWLER_FRONTIER_URL": url})
    chain: list[BaseException | None] = [no.value, no.value.__cause__, no.value.__context__]
    for told in map(str, chain):
        assert "s3c" not in told and "r3t" not in told


@given(st.text(), st.sampled_from(["redis://:", "unix://:", "file:", ""]))
def test_whatever_was_given_it_is_not_told(text, scheme):
    assert "s3cr3t" not in told_of(f"{scheme}s3cr3t{text}")


def told_of(url: str) -> str:
    try:
        return repr(read_config({"CRAWLER_FRONTIER_URL": url}))
    except ConfigError as error:
        return str(error)


def test_the_value_does_not_show_its_url():
    config = read_config({"CRAWLER_FRONTIER_URL": "redis://:s3cr3t@redis"})
    assert "s3cr3t" not in repr(config)
    assert "frontier_name='gossamer'" in repr(config)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        pytest.param("file:/run/url", "/run/url", id="one slash"),
        pytest.param("file:///run/my url", "/run/my url", id="three slashes, and a space"),
        pytest.param("redis://redis/0", None, id="the URL itself"),
        pytest.param("", None, id="none"),
    ],
)
def test_the_file_that_holds_the_url(url, path):
    assert file_of(url) == path


def test_a_lease_has_room_for_four_heartbeats():
    with pytest.raises(ConfigError, match=r"CRAWLER_HEARTBEAT_S \(31.0\) is above a quarter of"):
        read_config({"CRAWLER_HEARTBEAT_S": 31})
    read_config({"CRAWLER_HEARTBEAT_S": 30})


def test_a_lease_has_room_for_two_fetches_and_two_lost_heartbeats():
    with pytest.raises(ConfigError, match=r"\(122.0\) is above CRAWLER_LEASE_S \(120.0\)$"):
        SharedSettings().refuse_short_lease(51.0)
    SharedSettings().refuse_short_lease(50.0)


@pytest.mark.parametrize(
    ("given_bytes", "maxmemory", "full"),
    [
        pytest.param(ByServer.AUTO, 0, None, id="no maxmemory: never full"),
        pytest.param(ByServer.AUTO, 1_000_000_000, 800_000_000, id="four fifths of maxmemory"),
        pytest.param(5_000_000, 1_000_000_000, 5_000_000, id="what was set"),
        pytest.param(5_000_000, 0, 5_000_000, id="what was set, without maxmemory"),
    ],
)
def test_when_a_server_is_full(given_bytes, maxmemory, full):
    assert SharedSettings(redis_max_bytes=given_bytes).full_bytes(maxmemory) == full
