"""What an operator has said about a crawl: the rules in force, and the audit of all acts.

Rule: `rules.toml` may be edited by hand and by commands, which keep its comments. It is replaced as
a whole, and only if it is as it was read. The audit is only ever appended to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import tomlkit
from tomlkit.items import AoT, Item, Table
from tomlkit.toml_document import TOMLDocument

from crawler.data.files import replace_file
from crawler.model.types import ConfigError, StoreUnavailable, store_error
from crawler.policy.addresses import loopback_origin

logger = logging.getLogger(__name__)

RULES: Final = "rules.toml"
AUDIT: Final = "audit.jsonl"
_FOREVER: Final = float("inf")
_HEAD: Final = (
    "# Rules of the operator (docs/operating.md). Changes are in force within two seconds.\n"
)

Value = bool | int | float | str | list[str] | None
"""What a key of a rule is set to. None: it is removed."""


class RuleEdit(msgspec.Struct, frozen=True):
    """A change of one key of the rule for one target. An empty target: of the whole crawl."""

    target: str
    key: str
    value: Value


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator has done, as a line of the audit."""

    at: float  # epoch seconds
    number: int  # from 1
    by: str  # the user of the machine, or the name of a token
    verb: str
    targets: tuple[str, ...] = ()
    value: str = ""
    before: tuple[RuleEdit, ...] = ()  # what the rules said
    undoes: int = 0  # the act that this one undoes; 0: none
    level: int | None = None  # add: of the URLs
    again: bool = False  # add: they are fetched even if they were fetched before
    text_before: str | None = None  # rules: what was replaced


class ActResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many URLs an act has touched, as a line of the audit that comes later."""

    at: float
    of: int  # the number of the act
    touched: int
    failed: bool = False  # the rules could not be written: the act is void


class RulesFile:
    """The file of the rules, and its changes after this was built."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._returned = self._version()  # of the text that was returned last

    def read(self) -> str:
        """Return its text, which is empty if there is none. Raises ConfigError."""
        try:
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as broken:
            line = broken.object.count(b"\n", 0, broken.start) + 1
            raise ConfigError(f"{self.path} line {line} is not UTF-8") from broken
        except OSError as refused:
            raise ConfigError(f"{self.path} cannot be read: {refused.strerror}") from refused

    def _version(self) -> tuple[int, int, int]:
        """Return what changes when the file does, without reading it."""
        with suppress(OSError):
            found = self.path.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
        return 0, 0, 0

    async def changed(self) -> str | None:
        """Return the text if it was not returned before, else None. Raises ConfigError."""
        version = self._version()
        if version == self._returned:
            return None
        self._returned = version
        return await asyncio.to_thread(self.read)

    def replace(self, before: str, after: str) -> bool:
        """Write *after*, and return whether the file still said *before*. Raises
        StoreUnavailable."""
        if self.read() != before:
            return False
        try:
            replace_file(self.path, after.encode())
        except OSError as refused:
            raise store_error(f"{self.path} cannot be written", refused) from refused
        return True


def edited(written: str, edits: Sequence[RuleEdit]) -> tuple[str, tuple[RuleEdit, ...]]:
    """Return the text of the rules with *edits*, and the edits that undo these. Comments stay.
    Raises ConfigError if *written* is not TOML."""
    try:
        document = tomlkit.parse(written or _HEAD)
    except tomlkit.exceptions.TOMLKitError as broken:
        raise ConfigError(f"{RULES} is not TOML: {broken}") from broken
    before = [_apply_edit(document, each) for each in edits]
    return tomlkit.dumps(document), tuple(reversed(before))


def _apply_edit(document: TOMLDocument, edit: RuleEdit) -> RuleEdit:
    """Apply *edit*, and return the one that undoes it."""
    table: Table | TOMLDocument | None = (
        document if not edit.target else _rule_for(document, edit.target)
    )
    found = table.get(edit.key) if table is not None else None
    before = _plain(found)
    if edit.value is not None:
        if table is None:
            table = tomlkit.table()
            table.append("for", edit.target)
            table.append(edit.key, _written(edit.value))
            table.add(tomlkit.nl())
            document.setdefault("rule", tomlkit.aot()).append(table)
        else:
            table[edit.key] = _written(edit.value)
    elif table is not None and found is not None:
        del table[edit.key]
        rules = document.get("rule")
        if isinstance(rules, AoT) and isinstance(table, Table) and set(table) <= {"for", "note"}:
            rules.remove(table)
            if not rules:
                del document["rule"]
    return RuleEdit(edit.target, edit.key, before)


def _rule_for(document: TOMLDocument, target: str) -> Table | None:
    """Return the last rule for *target* alone, or None."""
    rules = document.get("rule")
    found = [each for each in rules or () if each.get("for") in (target, [target])]
    return found[-1] if found else None


def _plain(value: Any) -> Value:
    """Return a value of TOML as one of JSON; a time is in epoch seconds."""
    if isinstance(value, datetime):
        return value.timestamp()
    plain: Value = value.unwrap() if isinstance(value, Item) else value
    return plain


def _written(value: Value) -> object:
    """Return *value* as it stands in the file: of `paused` a number is a time."""
    if isinstance(value, float) and value != _FOREVER and value > _TIMES:
        return datetime.fromtimestamp(round(value), UTC)
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TIMES: Final = 1e9  # larger numbers are epoch seconds: no delay has so many


def existing(path: Path) -> Path:
    """Return *path*. Raises ConfigError if there is no such file."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    return path


class Audit:
    """The acts of all operators, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, line: Act | ActResult) -> None:
        """Add *line*, which is on disk then. Raises StoreUnavailable."""
        encoded = msgspec.json.encode(line) + b"\n"
        try:
            with self._path.open("ab") as file:
                begin = file.tell()
                try:
                    if begin and not self._ends_a_line():
                        file.write(b"\n")  # a kill may have left half of a line
                    file.write(encoded)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    os.ftruncate(file.fileno(), begin)
                    raise
        except OSError as refused:
            raise store_error(f"{self._path} cannot be written", refused) from refused

    def read(self) -> Iterator[Act | ActResult]:
        """Yield all lines, the oldest first, without damaged ones."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            yield from read_audit(file)

    def size(self) -> int:
        """Return its bytes."""
        with suppress(OSError):
            return self._path.stat().st_size
        return 0

    def _ends_a_line(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def read_audit(lines: Iterable[bytes]) -> Iterator[Act | ActResult]:
    """Yield what *lines* of an audit say, without damaged ones."""
    for line in lines:
        with suppress(msgspec.MsgspecError):
            kind: type[Act | ActResult] = Act if b'"verb":' in line else ActResult
            yield msgspec.json.decode(line, type=kind)


class OperatorStore(Protocol):
    """Where the rules and the audit of a crawl are."""

    async def rules(self) -> str:
        """Return the text of the rules."""

    async def changed(self) -> str | None:
        """Return that text if it was not returned before, else None. Raises CrawlerError."""

    async def acts(self) -> list[Act | ActResult]:
        """Return all lines of the audit."""

    async def audit_lines(self) -> int:
        """Return a number that changes when the audit does."""

    async def write(self, before: str, after: str, act: Act) -> bool:
        """Write *act* and the rules *after*, or return False if they do not say *before* any
        more, or another act has its number. Raises CrawlerError."""

    async def note(self, touched: ActResult) -> None:
        """Write how many URLs an act has touched."""


class OperatorFiles:
    """Implements OperatorStore in a data directory, for one process at a time."""

    def __init__(self, rules: RulesFile, audit: Audit) -> None:
        self._rules = rules
        self._audit = audit

    async def rules(self) -> str:
        return await asyncio.to_thread(self._rules.read)

    async def changed(self) -> str | None:
        return await self._rules.changed()

    async def acts(self) -> list[Act | ActResult]:
        return await asyncio.to_thread(lambda: list(self._audit.read()))

    async def audit_lines(self) -> int:
        return self._audit.size()

    async def write(self, before: str, after: str, act: Act) -> bool:
        return await asyncio.to_thread(self._write, before, after, act)

    def _write(self, before: str, after: str, act: Act) -> bool:
        if self._rules.read() != before:
            return False
        self._audit.append(act)
        if after == before:
            return True
        try:
            if self._rules.replace(before, after):
                return True
        except StoreUnavailable:
            self._audit.append(ActResult(act.at, act.number, 0, failed=True))
            raise
        self._audit.append(ActResult(act.at, act.number, 0, failed=True))
        return False

    async def note(self, touched: ActResult) -> None:
        await asyncio.to_thread(self._audit.append, touched)


class Credentials:
    """User names, passwords and tokens by the names that rules call them. They are in no log."""

    def __init__(self, path: Path | None, environment: Mapping[str, str]) -> None:
        """*path*: of a file of lines NAME=user:password or NAME=Bearer TOKEN, for the eyes of its
        owner only. What the variable GOSSAMER_CREDENTIALS_NAME of the *environment* holds goes
        before it. Raises ConfigError, without what is in the file."""
        self._values = _read_credentials(path) if path is not None else {}
        self._unsent: set[str] = set()  # names whose absence is logged
        for name, value in environment.items():
            if name.startswith(CREDENTIALS):
                self._values[name.removeprefix(CREDENTIALS)] = value

    def __repr__(self) -> str:
        return f"<Credentials {', '.join(sorted(self._values))}>"

    def headers(self, name: str, url: str) -> dict[str, str]:
        """Return the header with the credentials *name* (RFC 7617, 6750), if there are any and they
        may be sent to *url*: over https, or to this machine."""
        value = self._values.get(name)
        if value is None or not (url.startswith("https://") or loopback_origin(url) is not None):
            why = "there are none of that name" if value is None else f"{url} is not https"
            if name not in self._unsent:
                self._unsent.add(name)
                logger.warning("The credentials %s are not sent: %s", name, why)
            return {}
        if not value.startswith("Bearer "):
            value = f"Basic {b64encode(value.encode()).decode()}"
        return {"Authorization": value}


CREDENTIALS: Final = "GOSSAMER_CREDENTIALS_"


def _read_credentials(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(private_lines(path), start=1):
        name, value = (part.strip() for part in line.partition("=")[::2])
        if not (name and (":" in value or value.startswith("Bearer "))):
            raise ConfigError(
                f"{path}, credentials {number}: want NAME=user:password or NAME=Bearer TOKEN"
            )
        found[name] = value
    return found


def private_lines(path: Path) -> list[str]:
    """Return the lines of a file with secrets, without blank ones and comments. Raises ConfigError
    if it cannot be read, or others than its owner can read it."""
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {why}") from None
    if mode & 0o077:
        raise ConfigError(f"{path} holds secrets, and others can read it: chmod 600 {path}")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
