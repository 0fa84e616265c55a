"""Signed requests: the drafts' examples byte for byte, keys that are refused, and which requests
are signed; the judges are not ours."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from base64 import b64decode, urlsafe_b64decode
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from crawler.config.settings import IdentitySettings, read_config
from crawler.download import network
from crawler.download.port import WireRequest
from crawler.engine.web_bot_auth import (
    DIRECTORY_PATH,
    SIGNATURE_FIELDS,
    ClockCheck,
    PublicKey,
    RequestSigner,
    SigningKey,
    check_directory,
    directory_body,
    directory_fields,
    open_signer,
    request_fields,
)
from crawler.model.types import ConfigError
from tests.harness.signatures import (
    DRAFT_CREATED,
    DRAFT_DIGEST,
    DRAFT_DIRECTORY,
    DRAFT_DIRECTORY_SIGNATURE,
    DRAFT_EXPIRES,
    DRAFT_NONCE,
    DRAFT_REQUEST,
    DRAFT_SECRET,
    DRAFT_THUMBPRINT,
    SignatureJudge,
    is_valid_by_npm,
    signature_fields,
)

AGENT = "https://bot.example.org"
DRAFT_AGENT = "https://signature-agent.test"
DRAFT_SITE = "signature-agent.test"
DRAFT_LIFE_S = DRAFT_EXPIRES - DRAFT_CREATED
PKCS8 = (Encoding.PEM, PrivateFormat.PKCS8)


def draft_key() -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(urlsafe_b64decode(DRAFT_SECRET + "=")))


def draft_directory_fields(key: SigningKey) -> dict[str, str]:
    return texts(directory_fields([key], DRAFT_SITE, DRAFT_DIRECTORY, DRAFT_CREATED, DRAFT_LIFE_S))


def texts(fields: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields}


def written(path: Path, pem: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(pem)
    path.chmod(mode)
    return path


def signer_in(folder: Path) -> RequestSigner:
    path = written(folder / "key.pem", SigningKey.new().pem())
    return RequestSigner(SigningKey.read(path), AGENT, path)


def test_the_examples_of_the_draft_come_out_byte_for_byte() -> None:
    key = draft_key()
    assert key.public.thumbprint == DRAFT_THUMBPRINT
    signed = texts(
        request_fields(
            *(key, DRAFT_AGENT, "example.com", DRAFT_CREATED, DRAFT_LIFE_S),
            label="agent2",
            nonce=DRAFT_NONCE,
        )
    )
    assert signed == {
        "Signature-Agent": f'agent2="{DRAFT_AGENT}"',
        "Signature-Input": (
            'agent2=("@authority" "signature-agent";key="agent2");created=1735689600'
            f';keyid="{DRAFT_THUMBPRINT}";alg="ed25519";expires=4889289600;nonce="{DRAFT_NONCE}"'
            ';tag="web-bot-auth"'
        ),
        "Signature": f"agent2=:{DRAFT_REQUEST}:",
    }
    judge = SignatureJudge(DRAFT_DIRECTORY, "agent2")
    assert judge.is_valid("https://example.com/path/to/resource", signed)
    assert not judge.is_valid("https://www.example.com/", signed)
    assert directory_body(key.public) == DRAFT_DIRECTORY
    answer = draft_directory_fields(key)
    assert answer["Content-Digest"] == f"sha-256=:{DRAFT_DIGEST}:"
    assert answer["Signature"] == f"g=:{DRAFT_DIRECTORY_SIGNATURE}:"
    url = f"{DRAFT_AGENT}{DIRECTORY_PATH}"
    assert judge.is_valid_directory(url, answer, DRAFT_DIRECTORY)
    assert not judge.is_valid_directory(url, answer, DRAFT_DIRECTORY + b" ")


@pytest.mark.skipif(shutil.which("node") is None, reason="the judge needs Node.js")
def test_the_judge_of_npm_accepts_a_request_and_no_other() -> None:
    key = SigningKey.new()
    fields = request_fields(key, AGENT, "a.example:8443", time.time())
    signed = signature_fields(list(texts(fields).items()))
    directory = directory_body(key.public)
    assert is_valid_by_npm("https://a.example:8443/page", signed, directory)
    assert not is_valid_by_npm("https://b.example:8443/page", signed, directory)


def test_a_public_key_verifies_what_its_private_one_signed() -> None:
    key, other = SigningKey.new(), SigningKey.new()
    assert key.public.verify(key.sign(b"base"), b"base")
    assert not key.public.verify(other.sign(b"base"), b"base")
    assert not key.public.verify(b"short", b"base")
    assert PublicKey.of_jwk(key.public.jwk()) == key.public


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"kty": "RSA", "n": "", "e": "AQAB"}, "of another kind", id="RSA"),
        pytest.param({"crv": "X25519"}, "of another kind", id="a curve of another use"),
        pytest.param({"d": DRAFT_SECRET}, "has its private part", id="a private key"),
        pytest.param({"x": "JrQL"}, "no base64url of 32 bytes", id="too short"),
        pytest.param({"x": "ä" * 43}, "no base64url", id="other characters"),
        pytest.param({"x": 7}, "no base64url", id="a number"),
        pytest.param({"kid": "key-1"}, "has to be its thumbprint", id="named otherwise"),
    ],
)
def test_keys_of_a_directory_that_are_not_read(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PublicKey.of_jwk({**draft_key().public.jwk(), **change})


def test_a_key_is_read_as_it_was_written_and_not_shown(tmp_path: Path) -> None:
    key = SigningKey.new()
    read = SigningKey.read(written(tmp_path / "key.pem", key.pem(), 0o400))
    assert read.public == key.public
    assert repr(read) == f"SigningKey({key.public.thumbprint})"


ENCRYPTED = BestAvailableEncryption(b"secret")
ONE = Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
NOT_KEYS = {
    "RSA": (RSA.private_bytes(*PKCS8, NoEncryption()), "another kind (RSA), not Ed25519"),
    "EC": (EC.private_bytes(*PKCS8, NoEncryption()), "another kind (EC"),
    "Ed448": (
        ed448.Ed448PrivateKey.generate().private_bytes(*PKCS8, NoEncryption()),
        "another kind (Ed448",
    ),
    "X25519": (
        x25519.X25519PrivateKey.generate().private_bytes(*PKCS8, NoEncryption()),
        "another kind (X25519",
    ),
    "encrypted": (ONE.private_bytes(*PKCS8, ENCRYPTED), "is encrypted"),
    "encrypted as of old": (
        RSA.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, ENCRYPTED),
        "is encrypted",
    ),
    "a public key": (
        ONE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "is a public key",
    ),
    "of ssh": (
        ONE.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        "no private key in PEM",
    ),
    "DER": (
        ONE.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        "no private key in PEM",
    ),
    "empty": (b"", "no private key in PEM"),
    "cut": (ONE.private_bytes(*PKCS8, NoEncryption())[:60], "no private key in PEM"),
}


@pytest.mark.parametrize("kind", NOT_KEYS)
def test_files_that_hold_no_such_key_are_refused(kind: str, tmp_path: Path) -> None:
    pem, why = NOT_KEYS[kind]
    path = written(tmp_path / "key.pem", pem)
    with pytest.raises(ConfigError, match=re.escape(why)) as refused:
        SigningKey.read(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777])
def test_a_key_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = written(tmp_path / "key.pem", SigningKey.new().pem(), mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        SigningKey.read(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there: make one with"):
        SigningKey.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="is a directory"):
        SigningKey.read(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="is no regular file"):
        SigningKey.read(tmp_path / "fifo")


def test_without_its_package_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    settings = IdentitySettings(signing_key=str(tmp_path / "key"), signature_agent=AGENT)
    with pytest.raises(ConfigError, match=re.escape("pip install 'gossamer-crawler[sign]'")):
        open_signer(settings)


def test_a_crawl_without_a_key_signs_nothing() -> None:
    assert open_signer(IdentitySettings()) is None


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("http://bot.example.org", "its scheme is not https"),
        ("bot.example.org", "its scheme is not https"),
        ("https://bot.example.org/", "it has a path: write https://bot.example.org)"),
        ("https://bot.example.org/keys", "it has a path: write https://bot.example.org)"),
        ("https://bot.example.org?a", "it has a query or a fragment"),
        ("https://bot.example.org#", "it has a query or a fragment"),
        ("https://me:pw@bot.example.org", "it has a user or a password"),
        ("https://Bot.example.org", "not in its plain form: write https://bot.example.org)"),
        ("https://bot.example.org:443", "not in its plain form: write https://bot.example.org)"),
        ("https://bot.example.org:", "not in its plain form"),
        ("https://bot.example.org:99999", "Port out of range"),
        ("https://", "its host is no name"),
        ("https://bücher.example", "its host is no name"),
        ('https://a".example', "its host is no name"),
        (7, "want an origin"),
    ],
)
def test_agents_that_are_refused(agent: object, why: str) -> None:
    given = {"CRAWLER_SIGNING_KEY": "key.pem", "CRAWLER_SIGNATURE_AGENT": agent}
    with pytest.raises(ConfigError, match=re.escape(why)) as refused:
        read_config(given)
    assert "CRAWLER_SIGNATURE_AGENT is" in str(refused.value)


@pytest.mark.parametrize(
    "agent", [AGENT, "https://bot.example.org:8443", "https://127.0.0.1:1", "https://[::1]:8443"]
)
def test_agents_that_are_accepted(agent: str) -> None:
    given = {"CRAWLER_SIGNING_KEY": "key.pem", "CRAWLER_SIGNATURE_AGENT": agent}
    assert read_config(given).identity.signature_agent == agent


def test_a_key_needs_an_agent_and_an_agent_a_key() -> None:
    with pytest.raises(ConfigError, match="CRAWLER_SIGNING_KEY is set without"):
        read_config({"CRAWLER_SIGNING_KEY": "key.pem"})
    with pytest.raises(ConfigError, match="CRAWLER_SIGNATURE_AGENT is set without"):
        read_config({"CRAWLER_SIGNATURE_AGENT": AGENT})


@pytest.mark.parametrize("part", [slice(None), slice(28, 92)], ids=["PEM", "base64"])
def test_a_key_instead_of_its_path_is_refused_and_not_shown(part: slice) -> None:
    pem = SigningKey.new().pem().decode()
    given = {"CRAWLER_SIGNING_KEY": pem[part], "CRAWLER_SIGNATURE_AGENT": AGENT}
    with pytest.raises(ConfigError, match="is a key, not shown") as refused:
        read_config(given)
    assert pem[40:92] not in str(refused.value)


def directory_faults(
    fields: dict[str, str], body: bytes = DRAFT_DIRECTORY, **given: Any
) -> tuple[str, ...]:
    encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
    asked = {"authority": DRAFT_SITE, "now": DRAFT_CREATED + 1.0, **given}
    return check_directory(body, encoded, **asked).faults


def test_a_directory_is_checked() -> None:
    key = draft_key()
    fields = draft_directory_fields(key)
    encoded = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    found = check_directory(DRAFT_DIRECTORY, encoded, DRAFT_SITE, DRAFT_CREATED)
    assert found == ((key.public,), (DRAFT_THUMBPRINT,), (), 0)
    assert check_directory(DRAFT_DIRECTORY, (), DRAFT_SITE, 0.0) == ((key.public,), (), (), 0)


def test_faults_of_a_directory() -> None:
    key = draft_key()
    good = draft_directory_fields(key)
    other = texts(
        directory_fields([SigningKey.new()], DRAFT_SITE, DRAFT_DIRECTORY, DRAFT_CREATED, 60)
    )
    wrong_digest = {**good, "Content-Digest": "sha-256=:AAAA:"}
    uncovered = {**good, "Signature-Input": good["Signature-Input"].replace(";req", "")}
    cases: list[tuple[tuple[str, ...], str]] = [
        (directory_faults(good, DRAFT_DIRECTORY + b" "), "another than that of Content-Digest"),
        (directory_faults(wrong_digest), "another than that of Content-Digest"),
        (directory_faults(good, authority="copy.test"), "not by the key"),
        (directory_faults(good, now=DRAFT_EXPIRES + 5.0), "has expired 5 s ago"),
        (directory_faults(good, now=DRAFT_CREATED - 3600.0), "of the future"),
        (directory_faults(other), "is of no key in the directory"),
        (directory_faults({**good, "Signature": "g=:AAAA:"}), "not by the key"),
        (directory_faults({**good, "Signature": "g=1"}), "not by the key"),
        (directory_faults({**good, "Signature": ""}), "not by the key"),
        (directory_faults({**good, "Signature-Input": "g=("}), "no structured field"),
        (directory_faults(uncovered), 'covers "@authority", which is not there'),
        (directory_faults({}, b"<html>"), "no JSON with a list of keys"),
        (directory_faults({}, b"[" * 100_000), "no JSON with a list of keys"),
        (directory_faults({}, b'{"keys":{}}'), "lists no keys"),
        (directory_faults({}, b'{"keys":[1]}'), "entry 1: a key is no JSON object"),
    ]
    for faults, why in cases:
        assert len(faults) == 1 and why in faults[0], (why, faults)


def heads_of(
    signer: RequestSigner | None, url: str, fields: Any = (), proxy: str = "", now: float = 0.0
) -> list[tuple[str, str]]:
    """Return the fields of the head of a request for *url*, as it is sent."""
    request = WireRequest(url=url, fields=tuple(fields), proxy=proxy)
    origin, target = network._destination(url)
    server = network._through_proxy(origin.server, request)
    sent, _ = network._request_heads(request, origin, server, target, signer, now)
    lines = sent.decode("latin-1").split("\r\n")[1:-2]
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def test_no_signature_over_http_or_to_another_authority_in_10000_redirects(tmp_path: Path) -> None:
    random, signer = Random(4), signer_in(tmp_path)
    judge = SignatureJudge(directory_body(signer.key.public))
    hosts = [f"h{number}.example" for number in range(6000)]
    hosts += ["127.0.0.1", "[::1]", "xn--bcher-kva.example", "dot.example.", "UPPER.example"] * 200
    hosts += [f"{name}.few.example" for name in "abc"] * 1000
    fields: list[tuple[bytes, bytes]] = [(b"User-Agent", b"Gossamer")]
    signed: Counter[str] = Counter()
    for _ in range(10_000):
        scheme = random.choice(["http", "https", "https"])
        port = random.choice(["", "", ":80", ":443", ":8443"])
        url = f"{scheme}://{random.choice(hosts)}{port}/page?q#f"
        proxy = random.choice(["", "", "", "http://127.0.0.1:3128"])
        sent = heads_of(signer, url, fields, proxy, time.time())
        found = signature_fields(sent)
        if url.startswith("http:"):
            assert not found, url
            signed["http"] += 1
        elif dict(sent)["Host"] != network._destination(url)[0].host:
            assert not found, "the Host field names another site"
            signed["another Host"] += 1
        else:
            assert judge.is_valid(url, found), (url, found)
            signed["https"] += 1
        # A careless copy, as for a redirect; mostly without the name of the last host.
        keeps_host = random.random() < 0.1
        fields = [(n.encode(), v.encode()) for n, v in sent if n != "Host" or keeps_host]
    assert min(signed.values()) > 300 and signed["https"] > 5000, signed


def test_without_a_signer_the_signature_of_a_spider_is_sent(tmp_path: Path) -> None:
    own = [(name, b"own") for name in SIGNATURE_FIELDS]
    assert set(signature_fields(heads_of(None, "http://a.example/", own)).values()) == {"own"}
    assert not signature_fields(heads_of(signer_in(tmp_path), "http://a.example/", own))


def test_a_signature_is_used_again_for_half_a_minute(tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    first = signer.lines("a.example", 1000.0)
    assert f'created=1000;keyid="{signer.key.public.thumbprint}"' in first[1].decode()
    assert ";expires=1060;" in first[1].decode()
    assert signer.lines("a.example", 1029.9) is first
    assert signer.lines("b.example", 1029.9) != first
    assert signer.lines("a.example", 1030.0) != first
    last = signer.lines("a.example", 1030.0)
    assert signer.lines("a.example", 900.0) != last, "after the clock was set back"


def test_the_oldest_signatures_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.engine.web_bot_auth._MOST_KEPT", 2)
    signer = signer_in(tmp_path)
    a, b = signer.lines("a", 1.0), signer.lines("b", 1.0)
    assert signer.lines("a", 2.0) is a
    signer.lines("c", 2.0)
    assert signer.lines("b", 3.0) is b
    assert signer.lines("a", 3.0) is not a


def test_a_key_that_is_replaced_is_said_once_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signer = signer_in(tmp_path)
    signer.lines("a", 1000.0)
    written(tmp_path / "new.pem", SigningKey.new().pem()).replace(tmp_path / "key.pem")
    with caplog.at_level(logging.WARNING):
        for second in range(100):
            fields = signer.lines(f"host{second}", 1001.0 + second)
            assert f'keyid="{signer.key.public.thumbprint}"' in fields[1].decode()
    (record,) = caplog.records
    assert "was replaced" in record.message and "restart to use what is there" in record.message


def test_a_key_that_is_left_alone_is_not_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signer = signer_in(tmp_path)
    for second in range(100):
        signer.lines(f"host{second}", 1001.0 + second)
    assert caplog.records == []


def head(at: float, more: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\ndate: {formatdate(at, usegmt=True)}\r\n{more}\r\n".encode()


NOW = 1_800_000_000.0


def warned(caplog: pytest.LogCaptureFixture, answers: list[tuple[str, bytes]]) -> str:
    check = ClockCheck()
    for second, (authority, answer) in enumerate(answers):
        check.note(authority, answer, NOW + 2.0 * second)
    assert len(caplog.records) <= 1
    return caplog.text


@pytest.mark.parametrize(
    ("off_s", "said"), [(3600.0, "s behind those of"), (-3600.0, "s ahead of those of")]
)
def test_a_clock_an_hour_off_is_said_once(
    off_s: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [(f"h{n}.example", head(NOW + 2.0 * n + off_s)) for n in range(20)]
    text = warned(caplog, answers)
    assert f"3600 {said} h0.example, h1.example, h2.example" in text


@pytest.mark.parametrize(
    ("answers", "is_said"),
    [
        pytest.param([("a", head(NOW - 25.0)), ("b", head(NOW)), ("c", head(NOW + 30))], False),
        pytest.param([("a", head(0)), ("b", head(0)), ("c", head(NOW)), ("d", head(0))], False),
        pytest.param([("a", head(0)), ("b", head(0)), ("c", head(2 * NOW))], False, id="sides"),
        pytest.param([("a", head(0))] * 9, False, id="one server"),
        pytest.param([("a", head(0))] * 10, True, id="one server, again and again"),
        pytest.param([(n, head(NOW - 999, "Age: 999\r\n")) for n in "abc"], False, id="cached"),
        pytest.param([(n, b"HTTP/1.1 200 OK\r\n\r\n") for n in "abcd"], False, id="no Date"),
        pytest.param([(n, b"HTTP/1.1 200 OK\r\nDate: now\r\n\r\n") for n in "abcd"], False),
    ],
)
def test_when_a_clock_counts_as_wrong(
    answers: list[tuple[str, bytes]], is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert bool(warned(caplog, answers)) is is_said


def test_a_date_without_a_zone_is_of_utc(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asctime writes it, which is allowed (RFC 9110, 5.6.7)."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "EST5")
        time.tzset()
        date = time.asctime(time.gmtime(NOW)).encode()
        said = warned(caplog, [(n, b"HTTP/1.1 200 OK\r\nDate: %b\r\n\r\n" % date) for n in "abcd"])
    time.tzset()
    assert not said


def test_a_second_has_one_answer_that_is_read(caplog: pytest.LogCaptureFixture) -> None:
    check = ClockCheck()
    for number in range(1000):
        check.note(f"h{number}", head(0), NOW + number / 1000)
    assert caplog.records == []


def test_the_signature_in_a_head_is_that_of_the_fields(tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    found = signature_fields(heads_of(signer, "https://a.example/", now=1000.0))
    value = found["signature"].removeprefix("g=:").removesuffix(":")
    assert len(b64decode(value)) == 64
    assert found["signature-agent"] == f'g="{AGENT}"'


def test_keys_of_other_kinds_are_allowed_in_a_directory():
    key = SigningKey.new().public
    others = [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": "EC", "crv": "P-256"}]
    body = json.dumps({"keys": [*others, key.jwk()]}).encode()
    checked = check_directory(body, (), DRAFT_SITE, DRAFT_CREATED)
    assert (checked.keys, checked.other_keys, checked.faults) == ((key,), 2, ())


def test_a_directory_of_many_keys_is_looked_at_in_part():
    body = json.dumps({"keys": [{"kty": "?"}] * 20_000}).encode()
    checked = check_directory(body, (), DRAFT_SITE, DRAFT_CREATED)
    assert len(checked.faults) == 65
    assert "lists 20000 keys" in checked.faults[0]
