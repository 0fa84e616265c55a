"""`identity`: what it makes, what it finds wrong with what a site publishes, and the page."""

from __future__ import annotations

import json
import re
import socket
import stat
import threading
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import http_message_signatures as judge
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from scrapy.exceptions import UsageError
from scrapy.settings import Settings

from crawler.cli import identity
from crawler.cli.identity import KEY_FILE
from crawler.cli.identity_check import NotPublished, fetch
from crawler.config.settings import Config, read_config
from crawler.engine.web_bot_auth import (
    DIRECTORY_PATH,
    DIRECTORY_TYPE,
    SigningKey,
    check_directory,
    directory_fields,
)
from crawler.report.agent_card import CARD_PATH, agent_card
from crawler.report.webmaster_page import webmaster_page
from tests.servers.browser import open_tab
from tests.servers.certificates import server_context, write_certificate
from tests.servers.loopback import Ask, LoopbackWeb, Reply, not_here, site

HOST = "127.0.0.91"
CONTACT = "crawler@gossamer-tests.net"
DIRECTORY = Path(DIRECTORY_PATH).name
CARD = Path(CARD_PATH).name


def typed(*words: str, purpose: object = "", **given: object) -> int:
    """Run the command with settings; without the prefix of their names."""
    return identity.run(list(words), Namespace(purpose=purpose), Settings(settings_of(given)))


def settings_of(given: Mapping[str, object]) -> dict[str, object]:
    return {f"CRAWLER_{name}": value for name, value in {"CONTACT": CONTACT, **given}.items()}


def config_of(**given: object) -> Config:
    return read_config(settings_of(given))


@pytest.mark.parametrize(
    "words", [(), ("old",), ("new",), ("check",), ("page", "more"), ("check", "a", "b")], ids=str
)
def test_what_can_be_typed_is_said(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"new ORIGIN \[FOLDER\], check URL, headers"):
        typed(*words)


def test_new_makes_a_key_and_what_is_published_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "its folder"
    assert typed("new", "https://bot.gossamer.net", str(folder), purpose="search") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert sorted(path.name for path in folder.iterdir()) == sorted([DIRECTORY, CARD, KEY_FILE])
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    key = SigningKey.read(folder / KEY_FILE).public
    assert json.loads((folder / DIRECTORY).read_bytes())["keys"] == [{**key.jwk(), "use": "sig"}]
    card = json.loads((folder / CARD).read_bytes())
    assert card["jwks_uri"] == f"https://bot.gossamer.net{DIRECTORY_PATH}"
    assert card["contacts"] == [f"mailto:{CONTACT}"]
    assert card["web_bot_auth"]["purpose"] == "search"
    assert card["web_bot_auth"]["rate-expectation"] == "avg=1rps;max=10rps"
    for said in (
        f"the key {key.thumbprint}",
        f"published at https://bot.gossamer.net{DIRECTORY_PATH}",
        f"default_type {DIRECTORY_TYPE};",
        f'CRAWLER_SIGNING_KEY = "{folder / KEY_FILE}"',
        'CRAWLER_SIGNATURE_AGENT = "https://bot.gossamer.net"',
        "identity check https://bot.gossamer.net\n",
        f"identity headers https://bot.gossamer.net '{folder}'",
    ):
        assert said in out
    assert "PRIVATE" not in out


@pytest.mark.parametrize("there", [KEY_FILE, DIRECTORY, CARD])
def test_new_overwrites_nothing(
    there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / there).write_text("mine")
    assert typed("new", "https://bot.gossamer.net", str(tmp_path)) == 1
    assert f"{tmp_path / there} is there already" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("origin", "given", "said"),
    [
        ("http://bot.gossamer.net", {}, "its scheme is not https"),
        ("https://bot.gossamer.net/about", {}, "write https://bot.gossamer.net"),
        ("bot.gossamer.net", {}, "is no origin over https"),
        ("", {}, "name an origin"),
        ("https://bot.gossamer.net", {"CONTACT": ""}, "CRAWLER_CONTACT is not set"),
    ],
)
def test_new_refuses(
    origin: str,
    given: Mapping[str, object],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert typed("new", origin, str(tmp_path / "made"), **given) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert typed("new", "https://bot.gossamer.net", str(tmp_path / "file" / "in")) == 1
    assert "Not a directory" in capsys.readouterr().err


def test_new_makes_the_key_that_the_settings_name_already(tmp_path: Path) -> None:
    origin, folder = "https://bot.gossamer.net", tmp_path / "id"
    given = {"SIGNING_KEY": str(folder / KEY_FILE), "SIGNATURE_AGENT": origin}
    assert typed("new", origin, str(folder), **given) == 0
    key = SigningKey.read(folder / KEY_FILE).public
    assert json.loads((folder / DIRECTORY).read_bytes())["keys"] == [{**key.jwk(), "use": "sig"}]


def test_a_new_key_is_published_beside_the_one_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = "https://bot.gossamer.net"
    typed("new", origin, str(tmp_path / "1"))
    used = {"SIGNING_KEY": str(tmp_path / "1" / KEY_FILE), "SIGNATURE_AGENT": origin}
    assert typed("new", origin, str(tmp_path / "2"), **used) == 0
    ids = [SigningKey.read(tmp_path / n / KEY_FILE).public.thumbprint for n in "12"]
    listed = json.loads((tmp_path / "2" / DIRECTORY).read_bytes())["keys"]
    assert [entry["kid"] for entry in listed] == ids
    assert f"lists the key in use, too: {ids[0]}" in capsys.readouterr().out


# --- check -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Served:
    """A site over https that publishes what `identity new` made."""

    origin: str
    folder: Path
    replies: dict[str, Reply]

    @property
    def settings(self) -> dict[str, object]:
        return {"SIGNING_KEY": str(self.folder / KEY_FILE), "SIGNATURE_AGENT": self.origin}

    def change(self, path: str, **changes: Any) -> None:
        self.replies[path] = replace(self.replies[path], **changes)

    def edit(self, path: str, old: str, new: str) -> None:
        body = self.replies[path].body
        assert isinstance(body, bytes) and old.encode() in body
        self.change(path, body=body.replace(old.encode(), new.encode()))


@contextmanager
def https_site(folder: Path, replies: Mapping[str, Reply]) -> Iterator[LoopbackWeb]:
    def answer(ask: Ask) -> Reply:
        return replies.get(ask.path) or not_here(ask)

    certificate = write_certificate(folder / "certificate.pem", HOST)
    with LoopbackWeb(answer, [HOST], server_context(certificate)) as web:
        yield web


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    replies: dict[str, Reply] = {}
    with https_site(tmp_path, replies) as web:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        folder, origin = tmp_path / "identity", web.url(HOST, "")
        assert typed("new", origin, str(folder)) == 0
        replies[DIRECTORY_PATH] = Reply((folder / DIRECTORY).read_bytes(), 200, DIRECTORY_TYPE)
        replies[CARD_PATH] = Reply((folder / CARD).read_bytes(), 200, "application/json")
        yield Served(origin, folder, replies)


def signed(served: Served, capsys: pytest.CaptureFixture[str]) -> tuple[tuple[str, str], ...]:
    """Return the fields that `identity headers` prints."""
    capsys.readouterr()
    assert typed("headers", served.origin, str(served.folder)) == 0
    out, err = capsys.readouterr()
    assert re.match(r"Valid until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, for ", err)
    lines = [line.partition(": ") for line in out.splitlines()]
    return tuple((name, value) for name, _, value in lines)


def test_what_is_right_is_said_line_by_line(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.change(DIRECTORY_PATH, headers=signed(served, capsys))
    for typed_url in (served.origin, served.origin + DIRECTORY_PATH):
        assert typed("check", typed_url, **served.settings) == 0
        out = capsys.readouterr().out
        key_id = SigningKey.read(served.folder / KEY_FILE).public.thumbprint
        assert [line[:4] for line in out.splitlines()] == ["ok  "] * len(out.splitlines())
        for said in (
            f"{DIRECTORY_PATH} answers 200",
            f"its media type is {DIRECTORY_TYPE}",
            f"it lists the key {key_id}",
            f"requests are signed by one of them, {key_id}",
            f"it is signed by {key_id}",
            "the card agrees with the settings",
        ):
            assert said in out


def test_what_may_be_missing_is_a_note(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    del served.replies[CARD_PATH]
    capsys.readouterr()
    assert typed("check", served.origin) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note")]
    for word, note in zip(("SIGNING_KEY", "is not signed", "404"), notes, strict=True):
        assert word in note


def break_directory(served: Served, **changes: Any) -> None:
    served.change(DIRECTORY_PATH, **changes)


def other_key(served: Served) -> None:
    ours = SigningKey.read(served.folder / KEY_FILE).public
    other = SigningKey.new().public
    served.edit(DIRECTORY_PATH, ours.thumbprint, other.thumbprint)
    served.edit(DIRECTORY_PATH, ours.jwk()["x"], other.jwk()["x"])


def time_of_key(name: str, at: datetime, times: int = 1) -> Any:
    stamp = int(at.timestamp()) * times
    return lambda served: served.edit(DIRECTORY_PATH, '"use"', f'"{name}":{stamp},"use"')


NOW = datetime.now(UTC)
FAULTS = {
    "404": (lambda it: it.replies.pop(DIRECTORY_PATH), "answers 404: publish the directory"),
    "redirect": (
        lambda it: break_directory(it, status=301, headers=(("Location", "/elsewhere"),)),
        "answers 301, to /elsewhere: who verifies follows no redirect",
    ),
    "media type": (
        lambda it: break_directory(it, content_type="application/json"),
        f"is application/json: let the web server send Content-Type: {DIRECTORY_TYPE}",
    ),
    "no media type": (lambda it: break_directory(it, content_type=""), "media type is missing"),
    "no JSON": (
        lambda it: break_directory(it, body=b"<html>"),
        "it is no JSON",
    ),
    "other key": (other_key, "it does not list the key of CRAWLER_SIGNING_KEY"),
    "wrong kid": (
        lambda it: it.edit(DIRECTORY_PATH, '"kid":"', '"kid":"x'),
        "be its thumbprint",
    ),
    "private": (lambda it: it.edit(DIRECTORY_PATH, '"use"', '"d":"","use"'), "its private part"),
    "exp": (time_of_key("exp", NOW - timedelta(days=2)), "its exp is 2 d"),
    "nbf": (time_of_key("nbf", NOW + timedelta(days=9)), "its nbf is 8 d"),
    "milliseconds": (time_of_key("exp", NOW, 1000), "exp is no time in seconds since 1970"),
    "clock": (
        lambda it: break_directory(
            it, headers=(("Date", format_datetime(NOW + timedelta(days=1), usegmt=True)),)
        ),
        "behind the server's: set it right, as a signature is valid for 60 s",
    ),
    "no card": (
        lambda it: it.change(CARD_PATH, body=b"[]"),
        "the card is no JSON object with web_bot_auth",
    ),
    "old card": (
        lambda it: it.edit(CARD_PATH, "Gossamer/", "Gossamer/0"),
        "the card's expected-user-agent is",
    ),
    "card fails": (lambda it: it.change(CARD_PATH, status=500), "answers 500: publish the card"),
    "cut off": (lambda it: break_directory(it, close=True), "no answer over https"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_line(
    fault: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    make, said = FAULTS[fault]
    make(served)
    capsys.readouterr()
    assert typed("check", served.origin, **served.settings) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("wrong")]
    assert len([line for line in wrong if said in line]) == 1, wrong


def test_a_signature_that_has_expired_is_wrong(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    key, body = SigningKey.read(served.folder / KEY_FILE), (served.folder / DIRECTORY).read_bytes()
    authority = served.origin.removeprefix("https://")
    fields = directory_fields([key], authority, body, NOW.timestamp() - 100, 50)
    decoded = tuple((name.decode(), value.decode()) for name, value in fields)
    served.change(DIRECTORY_PATH, headers=decoded)
    assert typed("check", served.origin, **served.settings) == 1
    said = r"wrong  the signature g is not valid: it has expired \d+ s ago: publish its fields as"
    assert re.search(said, capsys.readouterr().out)


def test_a_signature_of_another_body_is_wrong(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.change(DIRECTORY_PATH, headers=signed(served, capsys))
    served.edit(DIRECTORY_PATH, "{", "{ ")
    assert typed("check", served.origin, **served.settings) == 1
    assert "the body is another than that of Content-Digest" in capsys.readouterr().out


def test_a_server_that_does_not_end_its_answer_is_not_waited_for(served: Served) -> None:
    served.change(DIRECTORY_PATH, hang=True)
    with pytest.raises(NotPublished, match=r"no whole answer within 0\.4 s"):
        fetch(served.origin, DIRECTORY_PATH, "Gossamer", patience_s=0.4)


def test_an_answer_without_an_end_is_read_up_to_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = write_certificate(tmp_path / "certificate.pem", HOST)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sent = 0

    def serve() -> None:
        nonlocal sent
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while sent < 100_000_000:
                sent += connection.send(b" " * 10_000)

    # Not of LoopbackWeb: over TLS it does not learn that a long answer went out.
    with (
        socket.create_server((HOST, 0)) as plain,
        server_context(certificate).wrap_socket(plain, server_side=True) as listening,
    ):
        thread = threading.Thread(target=serve)
        thread.start()
        origin = f"https://{HOST}:{listening.getsockname()[1]}"
        with pytest.raises(NotPublished, match="longer than 1,000,000 bytes"):
            fetch(origin, DIRECTORY_PATH, "Gossamer")
        thread.join()
    assert sent < 20_000_000


def test_another_authority_and_another_origin(
    served: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    elsewhere = {**served.settings, "SIGNATURE_AGENT": "https://bot.gossamer.net"}
    assert typed("check", served.origin, **elsewhere) == 1
    assert "CRAWLER_SIGNATURE_AGENT is https://bot.gossamer.net" in capsys.readouterr().out
    monkeypatch.delenv("SSL_CERT_FILE")
    assert typed("check", served.origin, **served.settings) == 1
    assert "its certificate is not valid here" in capsys.readouterr().out
    assert typed("check", served.origin.replace("https:", "http:")) == 1
    assert "its scheme is not https" in capsys.readouterr().err


# --- headers ---------------------------------------------------------------------------------


class _Keys(judge.HTTPSignatureKeyResolver):
    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        return self._key


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Response:
    request: _Request
    headers: dict[str, str]
    status_code: int = 200


def test_the_fields_of_a_directory_are_verified_by_a_foreign_library(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    key = SigningKey.read(served.folder / KEY_FILE).public
    verifier = judge.HTTPMessageVerifier(
        signature_algorithm=judge.algorithms.ED25519,
        key_resolver=_Keys(Ed25519PublicKey.from_public_bytes(key.raw)),
    )
    request = _Request("GET", served.origin + DIRECTORY_PATH, {})
    message = _Response(request, dict(signed(served, capsys)))
    (result,) = verifier.verify(message, max_age=timedelta(hours=1))
    assert result.parameters["tag"] == "http-message-signatures-directory"
    assert result.parameters["keyid"] == key.thumbprint
    assert '"content-digest"' in result.covered_components


def test_a_directory_of_two_keys_is_signed_by_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin, old = "https://bot.gossamer.net", tmp_path / "old" / KEY_FILE
    given = {"SIGNING_KEY": str(old), "SIGNATURE_AGENT": origin}
    assert typed("new", origin, str(tmp_path / "old"), **given) == 0
    assert typed("new", origin, str(tmp_path / "new"), **given) == 0
    capsys.readouterr()
    assert typed("headers", str(tmp_path / "new"), **given) == 0
    lines = [line.partition(": ") for line in capsys.readouterr().out.splitlines()]
    fields = [(name.encode(), value.encode()) for name, _, value in lines]
    body = (tmp_path / "new" / DIRECTORY).read_bytes()
    checked = check_directory(body, fields, "bot.gossamer.net", datetime.now(UTC).timestamp())
    keys = [SigningKey.read(path).public.thumbprint for path in (old, tmp_path / "new" / KEY_FILE)]
    assert (sorted(checked.signed_by), checked.faults) == (sorted(keys), ())


def test_headers_refuses_a_directory_of_another_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("one", "other"):
        assert typed("new", "https://bot.gossamer.net", str(tmp_path / folder)) == 0
    (tmp_path / "one" / DIRECTORY).write_bytes((tmp_path / "other" / DIRECTORY).read_bytes())
    capsys.readouterr()
    assert typed("headers", "https://bot.gossamer.net", str(tmp_path / "one")) == 1
    out, err = capsys.readouterr()
    assert (out, "does not list the key beside it" in err) == ("", True)


def test_headers_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("headers", str(tmp_path)) == 1
    assert "CRAWLER_SIGNATURE_AGENT is not set" in capsys.readouterr().err
    assert typed("headers", "https://bot.gossamer.net", str(tmp_path)) == 1
    assert "looked for beside the key" in capsys.readouterr().err


# --- page ------------------------------------------------------------------------------------


def test_the_page_says_what_the_settings_say(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"USER_AGENT_NAME": "Poem-Bot", "MIN_DELAY_S": 7, "MAX_CRAWL_DELAY_S": 120}
    assert typed("page", purpose="Poems of <1900> & later.", **given) == 0
    page = capsys.readouterr().out
    assert "User-agent: Poem-Bot\nDisallow: /" in page
    for said in (
        f"<code>Poem-Bot/0.1.0 (+{CONTACT})</code>",
        f'<a href="mailto:{CONTACT}">',
        "Poems of &lt;1900&gt; &amp; later.",
        "at least 7 seconds",
        "kept up to 2 minutes",
        "noindex",
        "Requests of this crawler are not signed.",
    ):
        assert said in " ".join(page.split())
    assert 'content="noindex"' not in page, "it is to be found"
    assert "<script" not in page


@pytest.mark.parametrize(
    ("given", "said", "not_said"),
    [
        ({"RESPECT_NOINDEX": False}, "<code>nofollow</code>", "noindex"),
        ({"RESPECT_NOFOLLOW": False}, "<code>noindex</code>", "nofollow"),
        ({"RENDER": "auto"}, "opened in a browser", ""),
        ({"REVISIT": "adaptive"}, "Pages are visited again", "fetched once"),
        ({"HOST_UNIT": "domain"}, "all hosts of a domain together", "to a host."),
        ({"PACED_CONNECTIONS": 3}, "up to 3 where", ""),
        ({"CONTACT": "https://gossamer-tests.net/?a&b"}, "/?a&amp;b", "mailto:"),
    ],
    ids=lambda given: str(given)[:30],
)
def test_the_page_of_other_settings(given: dict[str, object], said: str, not_said: str) -> None:
    page = " ".join(webmaster_page(config_of(**given), None).split())
    assert said in page
    assert not not_said or not_said not in page


def test_the_page_names_the_uses_for_which_pages_are_stored() -> None:
    page = " ".join(webmaster_page(config_of(REQUIRE_PREFERENCE="train-ai"), None).split())
    assert "Pages whose publisher disallows their use for the training of AI models" in page
    assert "Content-Usage: train-ai=n" in page


def test_the_page_says_how_requests_are_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = "https://bot.gossamer.net"
    typed("new", origin, str(tmp_path))
    capsys.readouterr()
    assert typed("page", SIGNING_KEY=str(tmp_path / KEY_FILE), SIGNATURE_AGENT=origin) == 0
    page = capsys.readouterr().out
    key_id = SigningKey.read(tmp_path / KEY_FILE).public.thumbprint
    assert f'<a href="{origin}{DIRECTORY_PATH}">' in page
    assert f"<code>{key_id}</code>" in page
    assert f"Signature-Agent: g=&quot;{origin}&quot;" in page
    assert "not signed" not in page


def test_there_is_no_page_without_a_contact(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("page", CONTACT="") == 1
    assert "CRAWLER_CONTACT is not set" in capsys.readouterr().err


def test_the_page_in_a_browser(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed("new", "https://bot.gossamer.net", str(tmp_path / "id"))
    capsys.readouterr()
    key = str(tmp_path / "id" / KEY_FILE)
    typed("page", SIGNING_KEY=key, SIGNATURE_AGENT="https://bot.gossamer.net")
    page = capsys.readouterr().out
    with site("127.0.0.92", {"/": Reply(page)}) as web, open_tab(tmp_path / "browser") as tab:
        for width, scheme in ((1280, "light"), (390, "dark")):
            tab.resize((width, 900), scheme)
            tab.open(web.url("/"))
            tab.wait("!!document.querySelector('footer')")
            assert tab.cut_off() == tab.violations() == []


def test_a_card_is_of_the_settings() -> None:
    card = agent_card(config_of(CONTACT="https://gossamer-tests.net/bot"), "https://a.net")
    assert card["client_uri"] == "https://gossamer-tests.net/bot"
    assert "purpose" not in card["web_bot_auth"]
