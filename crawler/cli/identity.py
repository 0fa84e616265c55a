"""What `scrapy identity` does: make a key and what is published of it, check that, and write the
page for webmasters.

Rule: no file is overwritten, and nothing is printed of a key but its public half.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawler.cli.identity_check import check_identity, read_origin
from crawler.config.settings import Config, read_config
from crawler.engine.web_bot_auth import (
    DIRECTORY_PATH,
    DIRECTORY_TYPE,
    SigningKey,
    check_directory,
    directory_body,
    directory_fields,
    request_fields,
)
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, CrawlerError
from crawler.report.agent_card import CARD_PATH, agent_card
from crawler.report.messages import print_error
from crawler.report.webmaster_page import EXAMPLE_HOST, Signed, webmaster_page

KEY_FILE: Final = "signing-key.pem"
DIRECTORY_FILE: Final = Path(DIRECTORY_PATH).name
CARD_FILE: Final = Path(CARD_PATH).name
FOLDER: Final = Path("identity")
VALID_S: Final = 24 * 3600
"""How long the signature of a directory is valid: the longest that the draft advises."""
_FORMS: Final = {"new": (1, 2), "check": (1, 1), "headers": (0, 2), "page": (0, 0)}


def run(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Do what *args* ask for and return the exit status. Raises UsageError."""
    least, most = _FORMS.get(args[0] if args else "", (1, 0))
    if not least <= len(args) - 1 <= most:
        raise UsageError(
            "say what: new ORIGIN [FOLDER], check URL, headers [ORIGIN] [FOLDER], or page",
            print_help=False,
        )
    try:
        config = read_config(settings)
        match args[0]:
            case "new":
                _new(config, args[1], Path(args[2]) if len(args) > 2 else FOLDER, opts.purpose)
            case "check":
                return check_identity(config, args[1])
            case "headers":
                _headers(config, args[1:])
            case _:
                _page(config, opts.purpose)
    except CrawlerError as error:
        print_error(error)
        return 1
    return 0


def _new(config: Config, text: str, folder: Path, purpose: str) -> None:
    """Make a key, and what is published of it, in *folder*."""
    origin, current = read_origin(text), config.identity.signing_key
    _require_contact(config, "the card says how to reach you")
    key = SigningKey.new()
    # While a key is replaced, both are published: requests are signed by the old one until all
    # have the new one.
    is_used = current and Path(current).exists()  # or it is the one that is made now
    before = [SigningKey.read(Path(current)).public] if is_used else []
    card = json.dumps(agent_card(config, origin, purpose), indent=2) + "\n"
    files = {
        folder / KEY_FILE: (key.pem(), 0o600),
        folder / DIRECTORY_FILE: (directory_body(*before, key.public), 0o644),
        folder / CARD_FILE: (card.encode(), 0o644),
    }
    for path in files:
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} is there already, and is not overwritten: name a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, (content, mode) in files.items():
            _write_new(path, content, mode)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from error
    print(
        _NEXT.format(
            key=key.public.thumbprint,
            pem=folder / KEY_FILE,
            absolute=json.dumps(str((folder / KEY_FILE).resolve()), ensure_ascii=False),
            directory=folder / DIRECTORY_FILE,
            card=folder / CARD_FILE,
            folder=shlex.quote(str(folder)),
            origin=origin,
            directory_path=DIRECTORY_PATH,
            card_path=CARD_PATH,
            type=DIRECTORY_TYPE,
            program=PROGRAM,
        )
    )
    if before:
        print(f"The directory lists the key in use, too: {before[0].thumbprint}. Take it out a day")
        print("after all workers have the new one.")
    if not purpose:
        print("The card does not say what for: --purpose search, or in words of yours.")


_NEXT: Final = """\
Made the key {key}, for {origin}:

  {pem}
      the key itself: keep it secret, and keep a copy
  {directory}
      to be published at {origin}{directory_path}
      as {type}
  {card}
      to be published at {origin}{card_path}
      as application/json

1. Copy these two files to the web server of {origin}. For nginx, in its server block:

    location = {directory_path} {{
        default_type {type};
        alias /PATH/http-message-signatures-directory;
    }}
    location = {card_path} {{
        default_type application/json;
        alias /PATH/signature-agent-card;
    }}

2. Look whether all is right:

    {program} identity check {origin}

3. Sign, by these settings of the project:

    CRAWLER_SIGNING_KEY = {absolute}
    CRAWLER_SIGNATURE_AGENT = "{origin}"

4. The directory may be signed, too, by fields of its answer that are valid for a day:

    {program} identity headers {origin} {folder}
"""


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _headers(config: Config, words: Sequence[str]) -> None:
    """Print the fields that sign a directory, for a web server that adds them to its answer."""
    identity = config.identity
    origin, path = identity.signature_agent, Path(identity.signing_key or FOLDER / KEY_FILE)
    for word in words:
        if "://" in word:
            origin = read_origin(word)
        else:
            path = Path(word) / KEY_FILE
    if not origin:
        raise ConfigError("name the origin: CRAWLER_SIGNATURE_AGENT is not set")
    directory, now = path.with_name(DIRECTORY_FILE), time.time()
    try:
        body = directory.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{directory}: {error.strerror}: the fields sign the file as it is published, which is"
            " looked for beside the key"
        ) from error
    authority = origin.removeprefix("https://")
    keys = _keys_of(directory, body, {path, Path(identity.signing_key or path)})
    for name, value in directory_fields(keys, authority, body, now, VALID_S):
        print(f"{name.decode()}: {value.decode()}")
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(int(now) + VALID_S))
    print(f"Valid until {until}, for {directory} as it is now.", file=sys.stderr)


def _keys_of(directory: Path, body: bytes, paths: Iterable[Path]) -> list[SigningKey]:
    """Return the keys in *paths* that *directory*, with *body*, lists: a verifier may want one
    signature of each. Raises ConfigError if it lists none."""
    listed = check_directory(body, (), "", 0.0).keys
    keys = {key.public: key for key in map(SigningKey.read, sorted(paths))}
    found = [key for public, key in keys.items() if public in listed]
    if not found:
        raise ConfigError(f"{directory} does not list the key beside it: make both anew")
    return found


def _page(config: Config, purpose: str) -> None:
    _require_contact(config, "a page for webmasters says how to reach you")
    identity, signed = config.identity, None
    if identity.signing_key:
        key, agent = SigningKey.read(Path(identity.signing_key)), identity.signature_agent
        example = request_fields(key, agent, EXAMPLE_HOST, time.time())
        signed = Signed(agent, key.public.thumbprint, example)
    print(webmaster_page(config, signed, purpose), end="")


def _require_contact(config: Config, why: str) -> None:
    if not config.identity.contact:
        raise ConfigError(
            f"CRAWLER_CONTACT is not set, and {why}: give a mail address that you read, or the URL"
            " of a page about your crawl"
        )
