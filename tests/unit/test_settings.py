"""Settings and spider arguments are read strictly: each mistake is an error that names the setting,
and none shows a password."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

from crawler.config.arguments import (
    Arguments,
    encode_kept,
    join_repeated,
    read_arguments,
    read_kept_settings,
)
from crawler.config.readers import file_of
from crawler.config.settings import (
    KEPT_SETTINGS,
    Config,
    FetchSettings,
    IdentitySettings,
    LimitSettings,
    PolitenessSettings,
    SharedSettings,
    read_config,
    settings_table,
    settings_to_keep,
    with_kept_settings,
)
from crawler.model.choices import (
    AutoByServer,
    HostUnit,
    ScopeChoice,
    Tls,
)
from crawler.model.types import VERSION, ConfigError
from crawler.policy.priority import Prioritizer

ROWS = [row for rows in settings_table().values() for row in rows]


def test_no_settings_give_the_defaults():
    assert read_config({}) == Config()


def test_a_config_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Config().politeness.min_delay_s = 0.0  # type: ignore[misc]  # that it is refused is the test


def test_scrapys_own_settings_are_none_of_our_business():
    assert (
        read_config(dict(Settings({"USER_AGENT": "x", "CRAWLSPIDER_FOLLOW_LINKS": False})))
        == Config()
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("CRAWLER_MIN_DELAY_S", "0.5", 0.5, id="a number on a command line"),
        pytest.param("CRAWLER_MIN_DELAY_S", 2, 2.0, id="a whole number is a number"),
        pytest.param("CRAWLER_RETRIES", "7", 7, id="a whole number on a command line"),
        pytest.param("CRAWLER_HTML_MAX_BYTES", "4_000_000", 4_000_000, id="digits in groups"),
        pytest.param("CRAWLER_WARC", "false", False, id="a boolean on a command line"),
        pytest.param("CRAWLER_WARC", "0", False, id="a boolean as Scrapy writes them"),
        pytest.param("CRAWLER_WARC", 1, True, id="a boolean as old settings have them"),
        pytest.param("CRAWLER_TLS", "lenient", Tls.LENIENT, id="a word"),
        pytest.param(
            "CRAWLER_REDIS_MAX_BYTES", "auto", AutoByServer.AUTO, id="as the server has it"
        ),
        pytest.param("CRAWLER_WORKER_NAME", "node-7.a_b", "node-7.a_b", id="a worker's name"),
        pytest.param("CRAWLER_LEVEL_SHARES", "5, 3,2", (5, 3, 2), id="a list with commas"),
        pytest.param("CRAWLER_LEVEL_SHARES", [1], (1,), id="a list in Python"),
        pytest.param("CRAWLER_DENY_EXTENSIONS", "", (), id="an empty list"),
        pytest.param("CRAWLER_MAX_URLS_PER_HOST", "none", None, id="no limit has a name"),
        pytest.param("CRAWLER_MAX_URLS_PER_HOST", None, None, id="no limit in Python"),
        pytest.param("CRAWLER_DOMAIN_BUDGET", "50", 50, id="a limit that could be auto"),
        pytest.param("CRAWLER_CONTACT", "mailto:ops@w3.org", "ops@w3.org", id="mailto: is cut"),
        pytest.param("CRAWLER_CONTACT", "https://w3.org/bot", "https://w3.org/bot", id="a page"),
        pytest.param(
            "CRAWLER_ALLOW_INSIDE",
            "10.0.0.0/8,fd00::/8,192.168.0.7",
            (ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.168.0.7")),
            id="networks and single addresses",
        ),
        pytest.param(
            "CRAWLER_NAME_SERVERS",
            "192.0.2.1,127.0.0.1:5353,[::1],[::1]:53",
            ("192.0.2.1", "127.0.0.1:5353", "[::1]", "[::1]:53"),
            id="addresses of servers",
        ),
    ],
)
def test_values_are_converted(name, value, expected):
    config = read_config({name: value})
    field = name.removeprefix("CRAWLER_").lower()
    groups = [getattr(config, group) for group in Config.__dataclass_fields__]
    assert [getattr(one, field) for one in groups if hasattr(one, field)] == [expected]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("CRAWLER_MIN_DELAY_S", "fast", id="a word for a number"),
        pytest.param("CRAWLER_MIN_DELAY_S", -1, id="a delay below zero"),
        pytest.param("CRAWLER_MIN_DELAY_S", "nan", id="not a number"),
        pytest.param("CRAWLER_MAX_DELAY_S", "inf", id="no end"),
        pytest.param("CRAWLER_MAX_DELAY_S", 10**400, id="a number beyond all floats"),
        pytest.param("CRAWLER_MIN_DELAY_S", True, id="a boolean is no number"),
        pytest.param("CRAWLER_MIN_DELAY_S", None, id="None is no number"),
        pytest.param("CRAWLER_RETRIES", 2.0, id="a float for a count"),
        pytest.param("CRAWLER_RETRIES", "2.5", id="half an attempt"),
        pytest.param("CRAWLER_HEAD_URLS", 0, id="none where at least one is needed"),
        pytest.param("CRAWLER_MAX_URLS_PER_HOST", 0, id="0 is not 'no limit'"),
        pytest.param("CRAWLER_MAX_URLS_PER_HOST", "", id="nothing is not 'no limit'"),
        pytest.param("CRAWLER_WARC", "maybe", id="a boolean that is none"),
        pytest.param("CRAWLER_WARC", 1.0, id="a float is no boolean"),
        pytest.param("CRAWLER_TLS", "strct", id="a word that is none of the choices"),
        pytest.param("CRAWLER_LEVEL_SHARES", "60,,0", id="a level without a turn"),
        pytest.param("CRAWLER_LEVEL_SHARES", [], id="no level at all"),
        pytest.param("CRAWLER_LEVEL_SHARES", 60, id="a number for a list"),
        pytest.param("CRAWLER_DENY_EXTENSIONS", ".jpg", id="an extension with its dot"),
        pytest.param("CRAWLER_PRIORITIZER", "ByDepth", id="a class without its module"),
        pytest.param("CRAWLER_ALLOW_INSIDE", "10.1.2.3/8", id="a network with host bits"),
        pytest.param("CRAWLER_ALLOW_INSIDE", "intranet", id="a name for a network"),
        pytest.param("CRAWLER_NAME_SERVERS", "localhost", id="a name server that has a name"),
        pytest.param("CRAWLER_NAME_SERVERS", "127.0.0.1:0", id="a name server without a port"),
        pytest.param("CRAWLER_NAME_SERVERS", "::1", id="IPv6 without brackets"),
        pytest.param("CRAWLER_ROBOTS_MAX_AGE_S", 86_401, id="robots.txt older than RFC 9309 lets"),
        pytest.param("CRAWLER_ROBOTS_MAX_BYTES", 1000, id="less of robots.txt than RFC 9309 asks"),
        pytest.param("CRAWLER_USER_AGENT_NAME", "My Bot", id="a name robots.txt cannot hold"),
        pytest.param("CRAWLER_USER_AGENT_NAME", "a\r\nX: y", id="a header in a name"),
        pytest.param("CRAWLER_FRONTIER_NAME", "", id="keys that begin with nothing"),
        pytest.param("CRAWLER_FRONTIER_NAME", "a:b", id="a colon, where a key has its own"),
        pytest.param("CRAWLER_FRONTIER_NAME", "{a}", id="braces, by which a cluster places keys"),
        pytest.param("CRAWLER_FRONTIER_NAME", "a" * 41, id="a name of 41 letters"),
        pytest.param("CRAWLER_FRONTIER_SHARDS", 0, id="a crawl in no part"),
        pytest.param("CRAWLER_FRONTIER_SHARDS", 1025, id="more parts than are scanned"),
        pytest.param("CRAWLER_WORKER_NAME", "worker 1", id="a space in a name"),
        pytest.param("CRAWLER_REDIS_FSYNC", "no", id="a server that may forget half a minute"),
        pytest.param("CRAWLER_REDIS_MAX_BYTES", 0, id="0 is not 'as the server has it'"),
        pytest.param("CRAWLER_DATA_DIR", "", id="no data directory"),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"^{name} is .*; want "):
        read_config({name: value})


@pytest.mark.parametrize(
    "contact",
    [
        pytest.param("you@example.org", id="a mail address at a placeholder"),
        pytest.param("https://www.example.com/bot", id="a page at a placeholder"),
        pytest.param("you@your-organisation.org", id="a placeholder of many texts"),
        pytest.param("ADDRESS", id="what our own texts show"),
        pytest.param("https://EXAMPLE.com./bot", id="the same, disguised"),
        pytest.param("https://crawler.test/", id="a reserved ending"),
        pytest.param("https://localhost/bot", id="this machine"),
        pytest.param("http://127.0.0.1/bot", id="an address only we can reach"),
        pytest.param("me@intranet", id="a host without a dot"),
        pytest.param("+49 30 123", id="a telephone number"),
        pytest.param("ftp://w3.org/", id="a page that is none"),
        pytest.param("https:///path", id="a page without a host"),
        pytest.param("https://[w3.org/", id="a URL that does not parse"),
        pytest.param("https://w3.org/ x", id="a space"),
        pytest.param("https://w3.org/\r\nX-Evil: 1", id="a line break"),
        pytest.param("https://w3.org/)", id="the end of a header comment"),
        pytest.param("ops@w3.org, you@w3.org", id="two of them"),
        pytest.param(42, id="a number"),
    ],
)
def test_a_contact_without_a_mailbox_is_refused(contact):
    with pytest.raises(ConfigError, match="CRAWLER_CONTACT"):
        read_config({"CRAWLER_CONTACT": contact})


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("CRAWLER_MIN_DELAY_S", "CRAWLER_MAX_DELAY_S"),
        ("CRAWLER_BACKOFF_BASE_S", "CRAWLER_BACKOFF_MAX_S"),
        ("CRAWLER_PAUSE_S", "CRAWLER_PAUSE_MAX_S"),
        ("CRAWLER_CONNECT_TIMEOUT_S", "CRAWLER_TOTAL_TIMEOUT_S"),
    ],
)
def test_a_range_upside_down_is_refused(low, high):
    with pytest.raises(ConfigError, match=rf"{low} \(9.0\) is above {high} \(8.0\)"):
        read_config({low: 9, high: 8})
    read_config({low: 8, high: 8})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        pytest.param("CRAWLER_MIN_DELAYS", "CRAWLER_MIN_DELAY_S", id="a letter lost"),
        pytest.param("CRAWLER_CONTCAT", "CRAWLER_CONTACT", id="two letters swapped"),
        pytest.param("crawler_contact", "CRAWLER_CONTACT", id="small letters"),
        pytest.param("CRAWELR_CONTACT", "CRAWLER_CONTACT", id="the prefix misspelt"),
        pytest.param("CRAWLERS_WARC", "CRAWLER_WARC", id="the prefix in the plural"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest(name, nearest):
    assert name not in {row.name for row in ROWS}
    with pytest.raises(ConfigError, match=f"^unknown setting {name}; did you mean {nearest}\\?$"):
        read_config({name: "1"})


def test_a_setting_like_no_other_is_refused_too():
    with pytest.raises(ConfigError, match=r"^unknown setting CRAWLER_QQQQQQQQQQQQQQQQQQQQQQ$"):
        read_config({"CRAWLER_QQQQQQQQQQQQQQQQQQQQQQ": 1})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_default_is_a_value_its_kind_accepts(row):
    written = (
        str(row.default) if not isinstance(row.default, tuple) else list(map(str, row.default))
    )
    assert row.read({row.name: written}) == row.default


def test_names_are_unique_and_carry_their_unit():
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert row.name.endswith("_S") == row.kind.unit.startswith("seconds"), row.name
        assert row.name.endswith("_BYTES") == row.kind.unit.startswith("bytes"), row.name


def test_the_budget_of_a_domain_follows_the_scope_unless_it_is_set():
    assert LimitSettings().budget_of(ScopeChoice.ANY) == 10
    assert LimitSettings().budget_of(ScopeChoice.HOST) is None
    assert LimitSettings().budget_of(ScopeChoice.DOMAIN) is None
    assert LimitSettings(domain_budget=None).budget_of(ScopeChoice.ANY) is None
    assert LimitSettings(domain_budget=7).budget_of(ScopeChoice.HOST) == 7


def test_the_user_agent():
    page = IdentitySettings(contact="https://w3.org/bot")
    mail = replace(page, contact="ops@w3.org")
    assert IdentitySettings().user_agent == f"Gossamer/{VERSION}"
    assert page.user_agent == f"Gossamer/{VERSION} (+https://w3.org/bot)"
    assert (IdentitySettings().mailbox, page.mailbox, mail.mailbox) == (None, None, "ops@w3.org")


def test_the_default_prioritizer_exists():
    levels = len(Config().frontier.level_shares)
    prioritizer: Prioritizer = load_object(Config().frontier.prioritizer)(levels)
    assert callable(prioritizer.level)


def test_groups_can_be_made_one_by_one():
    assert PolitenessSettings(min_delay_s=2.0).max_delay_s == 300.0
    assert FetchSettings(tls=Tls.LENIENT).total_timeout_s == 30.0


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
        pytest.param({"zzz": 1}, "unknown argument zzz; there are scope, max_depth", id="no idea"),
        pytest.param({"name": "b"}, "unknown argument name", id="Scrapy's own is not ours"),
        pytest.param({"max_pages": "0"}, "max_pages is '0'; want", id="no pages at all"),
        pytest.param({"max_pages": "many"}, "max_pages is 'many'; want", id="a word for a number"),
        pytest.param({"max_depth": "-1"}, "max_depth is '-1'; want", id="above the seeds"),
        pytest.param(
            {"scope": "site"},
            "want any or domain or host",
            id="a scope that is none",
        ),
        pytest.param(
            {"allow": "(a"}, "allow is .*want .*does not compile", id="a broken expression"
        ),
        pytest.param({"deny": ["a", 5]}, "deny is ", id="a number for an expression"),
        pytest.param({"until": "tomorrow"}, "until is 'tomorrow'; want a date", id="a day's name"),
        pytest.param({"until": "2026-12-24T08:00"}, "write 2026-12-24T08:00Z", id="no offset"),
        pytest.param({"max_bytes": "10 pages"}, "want a size such as", id="no size"),
        pytest.param({"max_bytes": "0"}, "want a size such as", id="no bytes at all"),
        pytest.param({"max_time": "2026-12-24"}, "max_time is '2026-12-24'; want", id="a date"),
        pytest.param({"until": "0s"}, "until is '0s'; want", id="no time at all"),
        pytest.param({"until": "every 7d"}, "until is 'every 7d'", id="no interval"),
    ],
)
def test_mistakes_are_refused_by_name(given, text):
    with pytest.raises(ConfigError, match=text):
        read_arguments({"seeds": "seeds.txt", **given} if given else {})


def test_values_given_twice_are_joined_where_possible():
    assert join_repeated(["seeds=a=b", "deny=x", "deny=y=z", "allow=q"]) == [
        "seeds=a=b",
        "deny=x\ny=z",
        "allow=q",
    ]
    with pytest.raises(ConfigError, match="argument seeds is given twice"):
        join_repeated(["seeds=a", "seeds=b"])
    assert join_repeated(["no value"]) == ["no value"]


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
def test_an_invalid_address_is_refused_without_showing_it(url):
    with pytest.raises(
        ConfigError, match=r"^CRAWLER_FRONTIER_URL is not shown.*; want redis"
    ) as no:
        read_config({"CRAWLER_FRONTIER_URL": url})
    chain: list[BaseException | None] = [no.value, no.value.__cause__, no.value.__context__]
    for message in map(str, chain):
        assert "s3c" not in message and "r3t" not in message


@given(st.text(), st.sampled_from(["redis://:", "unix://:", "file:", ""]))
def test_no_given_address_is_shown(text, scheme):
    assert "s3cr3t" not in message_of(f"{scheme}s3cr3t{text}")


def message_of(url: str) -> str:
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


@pytest.mark.parametrize(
    ("given_bytes", "maxmemory", "full"),
    [
        pytest.param(AutoByServer.AUTO, 0, None, id="no maxmemory: never full"),
        pytest.param(AutoByServer.AUTO, 1_000_000_000, 800_000_000, id="four fifths of maxmemory"),
        pytest.param(5_000_000, 1_000_000_000, 5_000_000, id="what was set"),
        pytest.param(5_000_000, 0, 5_000_000, id="what was set, without maxmemory"),
    ],
)
def test_when_a_server_is_full(given_bytes, maxmemory, full):
    assert SharedSettings(redis_max_bytes=given_bytes).full_bytes(maxmemory) == full


def test_the_settings_that_are_kept_hold_no_secret() -> None:
    rows = [row for rows in settings_table().values() for row in rows]
    kept = [row for row in rows if row.name in KEPT_SETTINGS]
    assert len(kept) == len(KEPT_SETTINGS)
    assert [row.name for row in kept if row.kind.secret] == []


def test_kept_settings_are_read_as_they_were_given() -> None:
    given: dict[str, object] = {
        "CRAWLER_CONTACT": "https://crawl-bot.org/",
        "CRAWLER_DENY_EXTENSIONS": ("abc", "xyz"),
        "CRAWLER_MAX_URLS_PER_DOMAIN": None,
        "CRAWLER_MAX_PATH_SEGMENTS": "3",
        "CRAWLER_HOST_UNIT": HostUnit.DOMAIN,
        "CRAWLER_RULES": "rules.toml",
        "CRAWLER_STRIP_TRACKING": False,
        "CRAWLER_HTTP_TOKENS": "tokens.txt",
    }
    kept = read_kept_settings(encode_kept(settings_to_keep(given)), "here")
    assert kept is not None and "CRAWLER_HTTP_TOKENS" not in kept
    own: dict[str, object] = {"CRAWLER_CONTACT": "", "CRAWLER_DATA_DIR": "elsewhere"}
    found = read_config(with_kept_settings({**own, "CRAWLER_RETRIES": 7}, kept, ()))
    assert found.archive.data_dir == "elsewhere"
    assert found.politeness == read_config({"CRAWLER_HOST_UNIT": "domain"}).politeness
    as_given = read_config(given)
    for group in ("identity", "limits", "urls"):
        assert getattr(found, group) == getattr(as_given, group)
    assert read_config(with_kept_settings(own, kept, own)).identity.contact == ""
    assert read_kept_settings(None, "here") is None


NOON_CHRISTMAS_EVE = 1_798_113_600.0


@pytest.mark.parametrize(
    ("until", "ends_at"),
    [
        ("2026-12-24", NOON_CHRISTMAS_EVE - 12 * 3600),
        ("2026-12-24T12:00Z", NOON_CHRISTMAS_EVE),
        ("2026-12-24T13:00:00+01:00", NOON_CHRISTMAS_EVE),
        ("12h", 1_000_000_000.0 + 12 * 3600),
        ("30d", 1_000_000_000.0 + 30 * 86_400),
        ("none", None),
    ],
)
def test_the_end_of_a_run(until, ends_at):
    read = read_arguments({"seeds": "seeds.txt", "until": until})
    assert read.ends_at(1_000_000_000.0) == ends_at


def test_an_end_that_is_past_is_refused():
    read = read_arguments({"seeds": "seeds.txt", "until": "2026-12-24T12:00Z"})
    assert read.ends_at(NOON_CHRISTMAS_EVE - 1) == NOON_CHRISTMAS_EVE
    with pytest.raises(ConfigError, match=r"2026-12-24T12:00:00.*past: give a later date"):
        read.ends_at(NOON_CHRISTMAS_EVE)
