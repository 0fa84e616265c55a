"""What `identity check` does: fetch what is published of the crawler, and verify it as servers do.

Rule: an answer is bounded in time and bytes, and no redirect is followed, as verifiers follow none.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from crawler.config.readers import origin_of_https
from crawler.config.settings import Config
from crawler.engine.web_bot_auth import (
    DIRECTORY_PATH,
    DIRECTORY_TYPE,
    LIFE_S,
    SigningKey,
    check_directory,
    epoch_of,
)
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError
from crawler.report.agent_card import CARD_PATH, agent_card
from crawler.view.formats import plain, span

LARGEST_BYTES: Final = 1_000_000
PATIENCE_S: Final = 10.0
_NOT_FOUND: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_MADE: Final = "the directory that `identity new` made"
_IN_MILLISECONDS: Final = 1e11  # as seconds, in the year 5138


class Result(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"  # allowed, and worth to be known
    WRONG = "wrong"


Line = tuple[Result, str]


def _ok(said: str) -> Line:
    return Result.OK, said


def _note(said: str) -> Line:
    return Result.NOTE, said


def _wrong(said: str) -> Line:
    return Result.WRONG, said


@dataclass(frozen=True, slots=True)
class Published:
    """The answer of a site to a request for one of the files."""

    url: str
    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def field(self, name: str) -> str:
        return next((value for each, value in self.fields if each.lower() == name), "")


class NotPublished(Exception):
    """There was none; the text says why."""


def check_identity(config: Config, url: str) -> int:
    """Check what is published at *url*, an origin or the URL of its directory; print a line for
    each result, and return the exit status. Raises ConfigError."""
    origin = read_origin(url.removesuffix(DIRECTORY_PATH))
    is_right = True
    for result, said in _checks(config, origin):
        print(f"{result:<5}  {said}")
        is_right &= result is not Result.WRONG
    return 0 if is_right else 1


def read_origin(text: str) -> str:
    """Return *text* if it is an origin over https. Raises ConfigError."""
    try:
        origin = origin_of_https().read(text)
    except ValueError as error:
        raise ConfigError(
            f"{plain(text)!r} is no origin over https: {error or 'write https://HOST, no path'}"
        ) from None
    if not origin:
        raise ConfigError("name an origin, as in https://HOST")
    return origin


def _checks(config: Config, origin: str) -> Iterator[Line]:
    identity = config.identity
    if identity.signature_agent and identity.signature_agent != origin:
        yield _wrong(
            f"CRAWLER_SIGNATURE_AGENT is {identity.signature_agent}: requests name that origin,"
            f" and not {origin}"
        )
    try:
        found = fetch(origin, DIRECTORY_PATH, identity.user_agent)
    except NotPublished as error:
        yield _wrong(f"{origin}{DIRECTORY_PATH}: {error}")
        return
    yield from _directory(config, origin, found)
    yield from _clock(found)
    try:
        card = fetch(origin, CARD_PATH, identity.user_agent)
    except NotPublished as error:
        yield _wrong(f"{origin}{CARD_PATH}: {error}")
        return
    yield from _card(config, origin, card)


def _directory(config: Config, origin: str, found: Published) -> Iterator[Line]:
    status = list(_status(found, _MADE))
    yield from status
    if status[0][0] is Result.WRONG:
        return
    media_type = found.field("content-type").partition(";")[0].strip().lower()
    if media_type == DIRECTORY_TYPE:
        yield _ok(f"its media type is {DIRECTORY_TYPE}")
    else:
        yield _wrong(
            f"its media type is {plain(media_type) or 'missing'}: let the web server send"
            f" Content-Type: {DIRECTORY_TYPE}"
        )
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found.fields]
    checked = check_directory(found.body, fields, origin.removeprefix("https://"), time.time())
    for fault in checked.faults:
        is_of_signature = "signature" in fault
        what = "its fields as `identity headers` makes them" if is_of_signature else _MADE
        yield _wrong(f"{plain(fault)}: publish {what}")
    listed = [key.thumbprint for key in checked.keys]
    for key_id in listed:
        yield _ok(f"it lists the key {key_id}, by its thumbprint")
    yield from _times(found.body)
    if config.identity.signing_key:
        ours = SigningKey.read(Path(config.identity.signing_key)).public.thumbprint
        if ours in listed:
            yield _ok(f"requests are signed by one of them, {ours}")
        else:
            yield _wrong(
                f"it does not list the key of CRAWLER_SIGNING_KEY, {ours}: publish the directory"
                " that was made with that key"
            )
    else:
        yield _note("CRAWLER_SIGNING_KEY is not set: no request is signed")
    if checked.other_keys:
        yield _note(f"it lists {checked.other_keys} of other kinds, which are not looked at")
    if checked.signed_by:
        yield _ok(f"it is signed by {', '.join(checked.signed_by)}")
    elif not found.field("signature-input"):
        yield _note(
            f"it is not signed, which is allowed; `{PROGRAM} identity headers` makes the fields"
        )


def _status(found: Published, what: str) -> Iterator[Line]:
    if found.status == HTTPStatus.OK:
        yield _ok(f"{found.url} answers 200")
    elif 300 <= found.status < 400:
        yield _wrong(
            f"{found.url} answers {found.status}, to {plain(found.field('location')) or 'nowhere'}:"
            " who verifies follows no redirect, so answer with the file at this URL"
        )
    else:
        yield _wrong(f"{found.url} answers {found.status}: publish {what} there")


def _times(body: bytes) -> Iterator[Line]:
    """Yield what is wrong with when keys are valid. *body* may be no directory at all."""
    try:
        entries = [each for each in json.loads(body)["keys"] if isinstance(each, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    now = time.time()
    for number, entry in enumerate(entries, 1):
        for name, is_over in (("nbf", False), ("exp", True)):
            at = entry.get(name)
            if at is None:
                continue
            if not isinstance(at, int | float) or abs(at) >= _IN_MILLISECONDS:
                yield _wrong(f"entry {number}: {name} is no time in seconds since 1970")
            elif is_over and at <= now:
                yield _wrong(
                    f"entry {number}: its exp is {span(now - at)} ago: make a new key, or a later"
                    " exp"
                )
            elif not is_over and at > now:
                yield _wrong(f"entry {number}: its nbf is {span(at - now)} ahead: wait")


def _clock(found: Published) -> Iterator[Line]:
    sent_at = epoch_of(found.field("date"))
    if sent_at is None or found.field("age"):
        return  # it says no time, or a cache says when it was asked first
    ahead_s = time.time() - sent_at
    if abs(ahead_s) <= LIFE_S / 2:
        yield _ok("the clock of this machine is right")
        return
    side = "ahead of" if ahead_s > 0 else "behind"
    yield _wrong(
        f"the clock of this machine is {span(abs(ahead_s))} {side} the server's: set it right, as"
        f" a signature is valid for {LIFE_S} s"
    )


def _card(config: Config, origin: str, found: Published) -> Iterator[Line]:
    if found.status in _NOT_FOUND:
        yield _note(f"{found.url} answers {found.status}: without a card, which is optional")
        return
    status = list(_status(found, "the card that `identity new` made"))
    yield from status
    if status[0][0] is Result.WRONG:
        return
    try:
        card = json.loads(found.body)
    except (ValueError, RecursionError):
        card = None
    if not isinstance(card, dict) or not isinstance(card.get("web_bot_auth"), dict):
        yield _wrong("the card is no JSON object with web_bot_auth: publish it as it was made")
    elif not config.identity.contact:
        yield _note("CRAWLER_CONTACT is not set: the card is not compared with the settings")
    else:
        yield from _compared(card, agent_card(config, origin))


def _compared(card: dict[str, Any], ours: dict[str, Any]) -> Iterator[Line]:
    """Yield what the settings say otherwise than a published *card*. What it says beside is up to
    its author."""
    differing = {
        name: (said.get(name), wanted)
        for said, own in ((card, ours), (card["web_bot_auth"], ours["web_bot_auth"]))
        for name, wanted in own.items()
        if name != "web_bot_auth" and said.get(name) != wanted
    }
    for name, (said, wanted) in differing.items():
        shown = plain(json.dumps(said)) if said is not None else "missing"
        yield _wrong(
            f"the card's {name} is {shown}, by the settings {json.dumps(wanted)}: change one"
        )
    if not differing:
        yield _ok("the card agrees with the settings")


def fetch(origin: str, path: str, agent: str, patience_s: float = PATIENCE_S) -> Published:
    """Return the answer at *path*. Raises NotPublished. A thread fetches, as no time-out of the
    library is for an answer as a whole."""
    ended: list[Published | Exception] = []

    def work() -> None:
        try:
            ended.append(_fetched(origin, path, agent))
        except (OSError, http.client.HTTPException, ValueError) as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(patience_s)
    if not ended:
        raise NotPublished(f"no whole answer within {patience_s:g} s")
    match ended[0]:
        case Published() as found if len(found.body) > LARGEST_BYTES:
            raise NotPublished(f"its answer is longer than {LARGEST_BYTES:,} bytes")
        case Published() as found:
            return found
        case ssl.SSLCertVerificationError() as error:
            raise NotPublished(
                f"its certificate is not valid here ({error.verify_message}); SSL_CERT_FILE names"
                " the file of another authority to trust"
            )
        case socket.gaierror():
            raise NotPublished("its name has no address: look at the DNS of the host")
        case error:
            raise NotPublished(
                f"no answer over https ({plain(str(error)) or type(error).__name__})"
            )


def _fetched(origin: str, path: str, agent: str) -> Published:
    connection = http.client.HTTPSConnection(
        origin.removeprefix("https://"), timeout=PATIENCE_S, context=ssl.create_default_context()
    )
    try:
        headers = {"User-Agent": agent, "Accept": f"{DIRECTORY_TYPE}, application/json"}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(LARGEST_BYTES + 1)
        return Published(origin + path, answer.status, tuple(answer.getheaders()), body)
    finally:
        connection.close()
