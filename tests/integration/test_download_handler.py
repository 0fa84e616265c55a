"""The download handler against everything a server can do wrong.

Rule: one process fetches all there is in this file; the tests read what it reports, and what the
servers have counted.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.fetcher import CAP_BYTES
from tests.servers.certificates import server_context, write_certificate
from tests.servers.hostile import TABLE, HostileServer
from tests.servers.hostile_kit import Hostile, answer
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.tunnel import SECRET, tunnel

LIMIT_S: Final = 300.0  # for what takes about 5 s on a quiet machine
WARNINGS: Final = ("-Werror", "-Wignore:unclosed event loop", "-Wignore:unclosed <socket")
"""Scrapy forgets to close the loop that uvloop's takes the place of, and the loop its sockets."""

HERE: Final = "127.0.0.1"
INSIDE: Final = "127.0.0.2"
DROPS_IF_USED: Final = "/drops-if-used"  # closes without an answer, but not a new connection
SENDS_TWO: Final = "/sends-two"  # a second answer follows that nobody asked for
UNASKED: Final = answer(body=b"never asked for")

Fetch = dict[str, Any]
Crawl = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """Return the results of all fetches."""

    reports: dict[str, Fetch]
    visits: Counter[str]
    complaints: str


def steady(ask: Ask) -> Reply:
    """Keep the connection open, and report how often it was used; a proxy is asked the same way."""
    return Reply(
        f"{ask.path}, use {ask.use}",
        close=ask.path == DROPS_IF_USED and ask.use > 1,
        unasked=UNASKED if ask.path == SENDS_TWO else b"",
    )


class Servers:
    """One of each kind, and the crawls over them."""

    def __init__(self, stack: ExitStack, pems: Path) -> None:
        trusted, unknown, other = (
            write_certificate(pems / f"{name}.pem", host)
            for name, host in (
                ("trusted", HERE),
                ("unknown", HERE),
                ("other", "a.example"),
            )
        )
        self.trusted = trusted
        self.hostile = stack.enter_context(HostileServer())
        self.tunnel = stack.enter_context(tunnel())

        def serve(host: str = HERE, tls: ssl.SSLContext | None = None) -> LoopbackWeb:
            return stack.enter_context(LoopbackWeb(steady, [host], tls))

        self.steady = serve()
        self.inside = serve(INSIDE)
        self.safe = serve(tls=server_context(trusted))
        self.unknown = serve(tls=server_context(unknown))
        self.other = serve(tls=server_context(other))
        old = {
            "TLSv1": server_context(other, ssl.TLSVersion.TLSv1),
            "TLSv1.1": server_context(unknown, ssl.TLSVersion.TLSv1_1),
            "TLSv1.2": server_context(other, ssl.TLSVersion.TLSv1_2),
        }
        self.old = {version: serve(tls=tls) for version, tls in old.items()}

    def crawls(self) -> list[Crawl]:
        # An answer to no request is there before the next request goes out.
        one_by_one = {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 1, "DOWNLOAD_DELAY_JITTER": 0}
        cancelled = [fetch("cancelled", self.hostile.url + "/silence?again")]
        table = [fetch(row.name, self.hostile.url + row.path) for row in TABLE]
        return [
            # Many at a time on one host, as never in a crawl: without idle connections, of which
            # the server has closed some when the next request is sent.
            {"fetches": table, "settings": {"keepalive_s": 0.0}},
            {"fetches": [*self._addresses(), *self._requests(), *self._certificates()]},
            {"fetches": self._lenient(), "settings": {"tls": "lenient"}},
            {"fetches": self._in_a_row(), "settings": one_by_one},
            {"fetches": cancelled, "is_cancelled": True},
        ]

    def _addresses(self) -> list[Fetch]:
        here, there, proxy = self.steady.port, self.inside.port, self.inside.url(INSIDE, "")
        return [
            fetch("localhost", f"http://localhost:{here}/localhost"),
            fetch("one-of-two", f"http://two.example:{here}/one-of-two"),
            fetch("inside-literal", f"http://127.0.0.2:{there}/inside"),
            fetch("inside-literal-ipv6", f"http://[::ffff:127.0.0.2]:{there}/inside"),
            fetch("inside-name", f"http://inside.example:{there}/inside"),
            fetch("lease-ends", f"http://late.example:{here}/late", meta={"lease": "late.example"}),
            fetch("no-such-name", "http://gone.example/"),
            fetch("no-name-server", "http://unknown.example/"),
            fetch("port-closed", "http://127.0.0.1:1/"),
            fetch("inside-by-proxy", f"http://127.0.0.2:{there}/inside", proxied=proxy),
            fetch(
                "by-proxy",
                "http://public.example/page?q",
                proxied=proxy,
                headers={"Proxy-Authorization": "Basic dTpw"},
            ),
        ]

    def _requests(self) -> list[Fetch]:
        page, long = self.steady.url(HERE, "/page"), f"{self.hostile.url}/endless?"
        odd = self.steady.url(HERE, "/a%2fb%zz/{x}|y?q=%20+a&&b[]=1")
        return [
            fetch("url-as-it-is", odd, meta={"verbatim_url": True}),
            fetch("headers-as-they-are", page, headers={"User-Agent": "Us/1", "X-Thing": "a b"}),
            fetch("own-cap", long + "cap", meta={"download_maxsize": 5000}),
            fetch("own-time", f"{self.hostile.url}/silence?time", meta={"download_timeout": 0.2}),
            fetch("post", page + "?post", method="POST", body="a=1"),
            fetch("head", page + "?head", method="HEAD"),
        ]

    def _certificates(self) -> list[Fetch]:
        plain = self.hostile.url.replace("http:", "https:")
        return [
            fetch("strict-trusted", self.safe.url(HERE)),
            fetch("strict-unknown", self.unknown.url(HERE)),
            fetch("strict-other-name", self.other.url(HERE)),
            fetch("tls-to-plain", plain + "/tls"),
            *self._tunnelled(),
        ]

    def _tunnelled(self) -> list[Fetch]:
        secret = {"Proxy-Authorization": SECRET}
        through = {"proxied": self.tunnel.url, "headers": secret}
        return [
            fetch("by-tunnel", self.safe.url(HERE, "/tunnelled"), **through),
            fetch("by-tunnel-unknown", self.unknown.url(HERE), **through),
            fetch("tunnel-without-secret", self.safe.url(HERE), proxied=self.tunnel.url),
        ]

    def _lenient(self) -> list[Fetch]:
        servers = (("unknown", self.unknown), ("other-name", self.other), *self.old.items())
        return [fetch(f"lenient-{name}", server.url(HERE)) for name, server in servers]

    def _in_a_row(self) -> list[Fetch]:
        paths = ("/first", SENDS_TWO, "/last", DROPS_IF_USED, "/after")
        return [
            fetch(path, self.steady.url(HERE, path), priority=-n) for n, path in enumerate(paths)
        ]


def fetch(name: str, url: str, proxied: str = "", **more: Any) -> Fetch:
    if proxied:
        more["meta"] = {"proxy": proxied}
    return {"url": url, "cb_kwargs": {"name": name}, **more}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    pems = tmp_path_factory.mktemp("certificates")
    with ExitStack() as stack:
        servers = Servers(stack, pems)
        crawls = servers.crawls()
        done = subprocess.run(
            [sys.executable, *WARNINGS, "-m", "tests.harness.fetcher"],
            check=False,  # its complaints have a test of their own
            input=json.dumps(crawls),
            env={**os.environ, "SSL_CERT_FILE": os.fspath(servers.trusted)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        asked = servers.steady.requests + servers.inside.requests
        visits = servers.hostile.visits + Counter(path for _, path in asked.elements())
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    names = [each["cb_kwargs"]["name"] for crawl in crawls for each in crawl["fetches"]]
    assert sorted(report["name"] for report in reports) == sorted(names), done.stderr
    return Seen({report["name"]: report for report in reports}, visits, done.stderr)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_hostile_answer_costs_at_most_its_page(seen: Seen, row: Hostile) -> None:
    report, expect = seen.reports[row.name], row.expect
    assert report["outcome"] == expect.outcome, report
    assert seen.visits[row.path] == 1, "one fetch is one visit"
    if expect.outcome != "page":
        return
    flags = set(expect.flags) | ({f"truncated_{expect.truncated}"} if expect.truncated else set())
    assert (report["status"], report["truncated"]) == (expect.status, expect.truncated)
    assert set(report["flags"]) == flags
    assert expect.min_bytes <= report["size"] <= (expect.max_bytes or CAP_BYTES)
    assert expect.body is None or report["digest"] == sha1(expect.body).hexdigest()
    # Of a body in chunks the framing counts too, and is not in the archive.
    in_chunks = any(line.startswith("Transfer-Encoding") for line in report["headers"])
    assert expect.truncated != "length" or in_chunks or report["wire_bytes"] == CAP_BYTES
    assert "decoded_length" not in flags or report["size"] == CAP_BYTES


def test_the_table_has_forty_rows_and_more() -> None:
    assert len({row.name for row in TABLE}) == len(TABLE) >= 40


def test_nothing_is_complained_about(seen: Seen) -> None:
    # Scrapy's own word about each certificate that lenient takes.
    others = [line for line in seen.complaints.splitlines() if "downloader.tls" not in line]
    assert others == []


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        pytest.param("localhost", "page", id="a name of the hosts file"),
        pytest.param("one-of-two", "page", id="a name with an inside address and another"),
        pytest.param("inside-literal", "AddressRefused", id="an inside address in the URL"),
        pytest.param("inside-literal-ipv6", "AddressRefused", id="the same, in IPv6 clothes"),
        pytest.param("inside-name", "AddressRefused", id="a name that leads inside"),
        pytest.param("inside-by-proxy", "AddressRefused", id="an inside address asked of a proxy"),
        pytest.param("by-proxy", "page", id="a page by a proxy, which may be inside"),
        pytest.param("no-such-name", "dns", id="a name that does not exist"),
        pytest.param("no-name-server", "dns", id="a name without an answer"),
        pytest.param("port-closed", "connect", id="a closed port"),
    ],
)
def test_a_connection_is_made_to_admitted_addresses_only(
    seen: Seen, name: str, outcome: str
) -> None:
    report = seen.reports[name]
    assert report["outcome"] == outcome, report
    assert seen.visits["/inside"] == 0


def test_nothing_is_asked_under_a_lease_that_ended_while_a_connection_was_made(seen: Seen) -> None:
    assert seen.reports["lease-ends"]["outcome"] == "LeaseEnded"
    assert seen.visits["/late"] == 0


@pytest.mark.parametrize(
    ("name", "outcome", "tls"),
    [
        pytest.param("strict-trusted", "page", "TLSv1.3", id="strict takes a trusted certificate"),
        pytest.param("strict-unknown", "tls", "", id="strict refuses one that signed itself"),
        pytest.param("strict-other-name", "tls", "", id="strict refuses one of another name"),
        pytest.param(
            "lenient-unknown", "page", "TLSv1.3", id="lenient takes one that signed itself"
        ),
        pytest.param("lenient-other-name", "page", "TLSv1.3", id="lenient takes another's"),
        pytest.param("lenient-TLSv1.2", "page", "TLSv1.2", id="lenient: TLS 1.2"),
        pytest.param("lenient-TLSv1.1", "page", "TLSv1.1", id="lenient: TLS 1.1"),
        pytest.param("lenient-TLSv1", "page", "TLSv1", id="lenient: TLS 1.0, a bad certificate"),
        pytest.param("tls-to-plain", "tls", "", id="TLS spoken to a server without it"),
        pytest.param("by-tunnel", "page", "TLSv1.3", id="a page by a proxy that tunnels"),
        pytest.param("by-tunnel-unknown", "tls", "", id="strict refuses through a tunnel, too"),
        pytest.param("tunnel-without-secret", "protocol", "", id="a proxy that refuses"),
    ],
)
def test_certificates_count_when_strict(seen: Seen, name: str, outcome: str, tls: str) -> None:
    report = seen.reports[name]
    assert (report["outcome"], report.get("tls", "")) == (outcome, tls), report


def test_a_connection_that_died_idle_is_replaced_once(seen: Seen) -> None:
    assert seen.reports["/first"]["body"] == "/first, use 1"
    assert seen.reports[DROPS_IF_USED]["body"] == f"{DROPS_IF_USED}, use 1"
    assert seen.visits[DROPS_IF_USED] == 2
    assert seen.reports["/after"]["body"] == "/after, use 1", "and none of its server is kept"


def test_an_unsolicited_answer_is_not_taken_for_the_next(seen: Seen) -> None:
    assert seen.reports[SENDS_TWO]["body"] == f"{SENDS_TWO}, use 2"
    assert seen.reports["/last"]["body"] == "/last, use 1"


def test_a_stop_ends_what_is_under_way(seen: Seen) -> None:
    assert seen.reports["cancelled"]["outcome"] == "cancelled"


def test_the_url_is_sent_as_it_is(seen: Seen) -> None:
    line = seen.reports["url-as-it-is"]["request_line"]
    assert line == "GET /a%2fb%zz/{x}|y?q=%20+a&&b[]=1 HTTP/1.1"
    assert seen.visits["/a%2fb%zz/{x}|y?q=%20+a&&b[]=1"] == 1


def test_the_request_is_kept_as_sent(seen: Seen) -> None:
    report = seen.reports["headers-as-they-are"]
    assert report["request_line"] == "GET /page HTTP/1.1"
    headers = report["request_headers"]
    assert headers["host"].startswith("127.0.0.1:")
    assert (headers["user-agent"], headers["x-thing"]) == ("Us/1", "a b")
    assert headers["accept-encoding"] == "gzip, deflate, br, zstd"
    by_proxy = seen.reports["by-proxy"]
    assert by_proxy["request_line"] == "GET http://public.example/page?q HTTP/1.1"
    by_tunnel = seen.reports["by-tunnel"]
    assert by_tunnel["request_line"] == "GET /tunnelled HTTP/1.1"
    for report in (by_proxy, by_tunnel):
        headers = report["request_headers"]
        assert "proxy-authorization" not in headers, "a secret, kept in an archive"


def test_the_answer_is_kept_as_sent(seen: Seen) -> None:
    assert seen.reports["plain"]["status_line"] == "HTTP/1.1 200 OK"
    assert seen.reports["status-not-utf8"]["status_line"] == "HTTP/1.1 200 \xff\xfe"
    assert "X-Latin=caf\xe9" in seen.reports["head-not-utf8"]["headers"]
    assert "X-Nul=a\0b\0" in seen.reports["head-nul"]["headers"]
    assert "a line without one=" in seen.reports["head-no-colon"]["headers"]
    assert seen.reports["plain"]["ip"] == "127.0.0.1"


def test_a_request_may_set_its_own_limits(seen: Seen) -> None:
    cut = seen.reports["own-cap"]
    assert (cut["wire_bytes"], cut["truncated"]) == (5000, "length")
    assert seen.reports["own-time"]["outcome"] == "timeout"


def test_methods_and_bodies_are_sent(seen: Seen) -> None:
    post, head = seen.reports["post"], seen.reports["head"]
    assert (post["request_line"], post["request_headers"]["content-length"]) == (
        "POST /page?post HTTP/1.1",
        "3",
    )
    assert (head["status"], head["size"], head["truncated"]) == (200, 0, "")
