"""A crawl that signs its requests, as servers see it: those over https are signed, with or without
a proxy, no others are, and nothing that it writes has the key."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from crawler.download.network import NetworkFetch
from crawler.download.port import WireRequest
from crawler.download.resolver import AresLookup, Resolver
from crawler.engine.web_bot_auth import RequestSigner, SigningKey, directory_body
from crawler.model.choices import Tls
from crawler.model.page import DownloadOptions
from tests.harness.commands import crawl_command
from tests.harness.fetch_watch import EachRequest
from tests.harness.fork_server import run
from tests.harness.signatures import SignatureJudge, signature_fields
from tests.servers.certificates import server_context, write_certificate
from tests.servers.loopback import Ask, LoopbackWeb, Reply, page
from tests.servers.tunnel import tunnel

ONE, TWO, PLAIN = "127.0.63.1", "127.0.63.2", "127.0.63.3"
AGENT = "https://bot.example.org"


@dataclass
class Sites:
    """Two hosts over https and one over http, which link and redirect to each other."""

    folder: Path
    asks: list[tuple[str, Ask]] = field(default_factory=list)  # with the URL asked for
    safe: LoopbackWeb = field(init=False)
    plain: LoopbackWeb = field(init=False)

    def answer(self, ask: Ask) -> Reply:
        web = self.safe if ask.host in (ONE, TWO) else self.plain
        self.asks.append((web.url(ask.host, ask.path), ask))
        routes = {
            "/robots.txt": Reply("User-agent: *\nAllow: /\n", content_type="text/plain"),
            "/": page("/next", "/to-two", "/to-plain"),
            "/to-two": self._redirect(self.safe.url(TWO, "/came")),
            "/to-plain": self._redirect(self.plain.url(PLAIN, "/came")),
            "/came": page(self.safe.url(ONE, "/back")),
        }
        return routes.get(ask.path, page())

    def _redirect(self, url: str) -> Reply:
        return Reply(status=302, headers=(("Location", url),))

    @contextmanager
    def served(self) -> Iterator[None]:
        certificate = write_certificate(self.folder / "certificate.pem", ONE)
        self.safe = LoopbackWeb(self.answer, [ONE, TWO], server_context(certificate))
        self.plain = LoopbackWeb(self.answer, [PLAIN])
        with self.safe, self.plain:
            yield


def write_key(path: Path) -> SigningKey:
    key = SigningKey.new()
    path.write_bytes(key.pem())
    path.chmod(0o600)
    return key


def secrets_of(path: Path) -> list[bytes]:
    """Return the ways in which the key in the file *path* could be written."""
    pem = path.read_bytes()
    raw = load_pem_private_key(pem, None).private_bytes_raw()  # type: ignore[union-attr]  # Ed25519
    body = pem.split(b"\n")[1]
    return [raw, raw.hex().encode(), body, b64encode(raw)[:40], repr(raw).encode()[2:-1]]


@pytest.mark.parametrize("is_by_proxy", [False, True])
def test_what_servers_see_of_a_crawl_that_signs(is_by_proxy: bool, tmp_path: Path) -> None:
    key = write_key(tmp_path / "key.pem")
    sites, judge = Sites(tmp_path), SignatureJudge(directory_body(key.public))
    with sites.served(), tunnel() as proxy:
        settings = {
            "CRAWLER_SIGNING_KEY": tmp_path / "key.pem",
            "CRAWLER_SIGNATURE_AGENT": AGENT,
            "CRAWLER_TLS": "lenient",
            "LOG_LEVEL": "DEBUG",
            "LOG_FILE": tmp_path / "data.log",
        }
        command = crawl_command(tmp_path / "data", settings, seeds=sites.safe.url(ONE), scope="any")
        by_proxy = {"https_proxy": proxy.url.replace("//", "//u:p@")}
        done = run(command, env={**os.environ, **(by_proxy if is_by_proxy else {})})
    assert done.returncode == 0, done.stderr[-2000:]
    assert bool(proxy.asked) is is_by_proxy
    signed, unsigned = set(), set()
    for url, ask in sites.asks:
        found = signature_fields(ask.headers)
        if judge.is_valid(url, found):
            signed.add((ask.host, ask.path))
        else:
            assert not found
            unsigned.add((ask.host, ask.path))
    of_one = {"/robots.txt", "/", "/next", "/to-two", "/to-plain", "/back"}
    assert signed >= {(ONE, path) for path in of_one} | {(TWO, "/robots.txt"), (TWO, "/came")}
    assert unsigned == {(PLAIN, "/robots.txt"), (PLAIN, "/came")}
    (warc,) = (tmp_path / "data").rglob("*.warc.gz")
    with gzip.open(warc) as file:
        archived = file.read()
    # A robots.txt has no records.
    over_https = [url for url, ask in sites.asks if ask.host != PLAIN and "robots" not in url]
    assert archived.count(b"\r\nSignature-Input: g=(") == len(over_https)
    written = [each for each in tmp_path.rglob("*") if each.is_file() and each.name != "key.pem"]
    put_out = [archived, done.stdout.encode(), done.stderr.encode()]
    for secret in secrets_of(tmp_path / "key.pem"):
        assert not any(secret in text for text in (*put_out, *map(Path.read_bytes, written)))
    assert f"by the key {key.public.thumbprint}" in (tmp_path / "data.log").read_text()


def test_a_key_that_others_may_read_stops_the_start(tmp_path: Path) -> None:
    write_key(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o644)
    settings = {
        "CRAWLER_SIGNING_KEY": tmp_path / "key.pem",
        "CRAWLER_SIGNATURE_AGENT": AGENT,
    }
    done = run(crawl_command(tmp_path / "data", settings, seeds="http://127.0.0.1:1/"))
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "CRAWLER_SIGNING_KEY: the signing key" in last and "chmod 600" in last


class Numbered(RequestSigner):
    """Its signatures are never used again."""

    made = 0

    def lines(self, authority: str, now: float) -> tuple[bytes, ...]:
        self.made += 1
        return (b"Signature: %d" % self.made,)


def test_a_request_that_is_sent_again_after_a_rest_is_signed_anew(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(ask: Ask) -> Reply:
        seen.append(dict(ask.headers)["Signature"])
        return Reply(close=ask.use > 1)  # as if the connection had closed while idle

    key, path = write_key(tmp_path / "key.pem"), tmp_path / "key.pem"
    options = DownloadOptions(
        cap=lambda content_type, url: 1 << 20,
        admits=lambda ip, host, port: True,
        tls=Tls.LENIENT,
        min_delay_s=0.01,
    )

    async def ask_twice(url: str) -> list[bytes]:
        resolver = Resolver(options.admits, AresLookup())
        fetch = NetworkFetch(options, resolver, signer=Numbered(key, AGENT, path))
        request = WireRequest(url=url, is_leased=False)
        try:
            answers = [await fetch.fetch(request, EachRequest()) for _ in range(2)]
        finally:
            await fetch.close()
        return [each.exchanges[-1].request_head for each in answers]

    certificate = write_certificate(tmp_path / "certificate.pem", ONE)
    with LoopbackWeb(answer, [ONE], server_context(certificate)) as web:
        heads = asyncio.run(ask_twice(web.url(ONE)))
    assert seen == ["1", "2", "3"]
    assert b"Signature: 1\r\n" in heads[0] and b"Signature: 3\r\n" in heads[1]


def test_a_clock_that_is_off_is_said(tmp_path: Path) -> None:
    write_key(tmp_path / "key.pem")
    hosts = [ONE, TWO, "127.0.63.4"]

    def answer(ask: Ask) -> Reply:
        """Lead from host to host, slowly, as one answer a second is looked at."""
        date = ("Date", formatdate(time.time() + 3600.0, usegmt=True))
        following = hosts[(hosts.index(ask.host) + 1) % len(hosts)]
        links = page(f"https://{following}:{ask.port}/next")
        robots = ask.path == "/robots.txt"
        return replace(Reply("") if robots else links, headers=(date,), wait_s=1.05)

    certificate = write_certificate(tmp_path / "certificate.pem", ONE)
    with LoopbackWeb(answer, hosts, server_context(certificate)) as web:
        settings = {
            "CRAWLER_SIGNING_KEY": tmp_path / "key.pem",
            "CRAWLER_SIGNATURE_AGENT": AGENT,
            "CRAWLER_TLS": "lenient",
        }
        done = run(
            crawl_command(tmp_path / "data", settings, seeds=web.url(ONE), scope="any", max_pages=4)
        )
    (said,) = [line for line in done.stderr.splitlines() if "The clock of this machine" in line]
    assert re.search(r"is 359[5-9] s behind those of 127", said), said
    assert all(host in said for host in hosts)
