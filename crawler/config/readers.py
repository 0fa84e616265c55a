"""Strict readers for the values of settings and arguments, and how a setting is declared.

Rule: pure. One Kind reads both the string of a command line and the Python value of a settings
module; what it cannot read is an error, never a guess.
"""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from crawler.model.choices import OnlyChoice, RevisitChoice, RevisitMode
from crawler.model.types import ConfigError

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TRUE: Final = frozenset({"true", "yes", "1"})
FALSE: Final = frozenset({"false", "no", "0"})
NONE: Final = "none"
_LONGEST_INTERVAL_S: Final = 3_650 * 86_400.0
_LEAST_INTERVAL_S: Final = 600.0  # between two visits of a page


class InvalidValue(ValueError):
    """A value is invalid, and the text says more about it than what is wanted."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value. *read* raises ValueError (or InvalidValue) for anything else."""

    expected: str  # completes the sentence "want ..."
    unit: str  # for the tables in the documentation
    read: Callable[[object], T]
    secret: bool = False  # the value is left out of error texts and repr


def number(unit: str, least: float = 0.0, most: float = math.inf) -> Kind[float]:
    """Accept a finite number of *unit*s."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return _in_range(float(value), least, most)

    return Kind(f"a number of {unit}, {_range(least, most)}", unit, read)


def integer(unit: str, least: int = 0, most: float = math.inf) -> Kind[int]:
    """Accept a whole number of *unit*s; 3.0 is refused, as it suggests a wrong calculation."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        return _in_range(int(value), least, most)

    return Kind(f"a whole number of {unit}, {_range(least, most)}", unit, read)


def _in_range(value: T, least: float, most: float) -> T:
    if not (isinstance(value, int | float) and math.isfinite(value) and least <= value <= most):
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    return f"{least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"


def flag() -> Kind[bool]:
    """Accept yes or no."""

    def read(value: object) -> bool:
        word = str(value).lower() if isinstance(value, bool | int | str) else ""
        if word not in TRUE | FALSE:
            raise ValueError
        return word in TRUE

    return Kind("True or False", "yes or no", read)


def text(want: str, unit: str, pattern: str) -> Kind[str]:
    """Accept a string that *pattern* matches in full."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not (isinstance(value, str) and compiled.fullmatch(value)):
            raise ValueError
        return value

    return Kind(want, unit, read)


def choice(words: type[E]) -> Kind[E]:
    """Accept one of the words of an enumeration."""

    def read(value: object) -> E:
        return words(str(value))

    listed = " or ".join(words)
    return Kind(listed, listed, read)


def or_none(kind: Kind[T]) -> Kind[T | None]:
    """Accept what *kind* does, or the word none, so that 0 never means absence."""

    def read(value: object) -> T | None:
        if value is None or (isinstance(value, str) and value.lower() == NONE):
            return None
        return kind.read(value)

    return Kind(f"{kind.expected}, or none", f"{kind.unit}, or none", read)


def or_word(kind: Kind[T], words: type[E]) -> Kind[T | E]:
    """Accept what *kind* does, or one of the words of an enumeration."""

    def read(value: object) -> T | E:
        return words(value) if isinstance(value, str) and value in set(words) else kind.read(value)

    return Kind(
        f"{kind.expected}, or {' or '.join(words)}", f"{kind.unit}, or {' or '.join(words)}", read
    )


def only() -> Kind[OnlyChoice | str]:
    """Accept what a run fetches only: a word, or the path of a list of URLs."""
    words = " or ".join(OnlyChoice)

    def read(value: object) -> OnlyChoice | str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        if value in set(OnlyChoice):
            return OnlyChoice(value)
        if "/" not in value and "." not in value:
            raise InvalidValue("a list in this folder is named as ./LIST")
        return value

    return Kind(f"{words}, or the path of a list of URLs", f"{words}, or path", read)


def list_of(kind: Kind[T], separator: str = ",", least: int = 0) -> Kind[tuple[T, ...]]:
    """Accept a list: in Python a list or tuple, on a command line parts split at *separator*."""

    def read(value: object) -> tuple[T, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(separator) if part.strip()]
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError
        return tuple(kind.read(one) for one in value)

    return Kind(f"a list, each {kind.expected}", f"list of {kind.unit}", read)


_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def interval(least_s: float) -> Kind[float]:
    """Accept a time such as 90s, 10m, 12h, 7d, 2w, in words "every 7d" too, and return seconds."""

    def read(value: object) -> float:
        found = re.fullmatch(r"(?:every )?(\d+(?:\.\d+)?)([smhdw])", str(value).strip())
        if not found:
            raise ValueError
        return _in_range(float(found[1]) * _UNITS_S[found[2]], least_s, _LONGEST_INTERVAL_S)

    return Kind(f"a time such as 12h or 7d, {least_s / 60:g}m or more", "time", read)


_BYTES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def size() -> Kind[int]:
    """Accept a size such as 500MB or 1.5 GB, or a number of bytes; of more than 0."""

    def read(value: object) -> int:
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?b|)", str(value).strip().lower())
        if not found:
            raise ValueError
        return _in_range(round(float(found[1]) * _BYTES[found[2]]), 1, math.inf)

    return Kind("a size such as 500MB or 10GB", "size", read)


def duration() -> Kind[timedelta]:
    """Accept a time such as 90s, 10m or 12h."""
    seconds = interval(1.0)
    return Kind(
        "a time such as 30m or 12h, 1s or more",
        "time",
        lambda value: timedelta(seconds=seconds.read(value)),
    )


def end_of_run() -> Kind[datetime | timedelta]:
    """Accept a date, with a time and its offset or alone, which is its begin in UTC; or a duration
    such as 30d."""
    duration = interval(1.0)

    def read(value: object) -> datetime | timedelta:
        written = str(value).strip()
        if not written[:1].isdecimal():
            raise ValueError
        if written[-1] in _UNITS_S:
            return timedelta(seconds=duration.read(written))
        at = datetime.fromisoformat(written)
        if at.tzinfo is not None:
            return at
        if len(written) > len("2026-12-24"):
            raise InvalidValue(f"it has no offset: write {written}Z for UTC")
        return at.replace(tzinfo=UTC)

    return Kind(
        "a date such as 2026-12-24 or 2026-12-24T08:00Z, or a time such as 12h or 30d",
        "date or time",
        read,
    )


def revisit_mode() -> Kind[RevisitMode]:
    """Accept when pages are visited again."""
    return or_word(interval(_LEAST_INTERVAL_S), RevisitChoice)


def network() -> Kind[Network]:
    """Accept a range of addresses. One with host bits set (10.1.2.3/8) is ambiguous and refused."""

    def read(value: object) -> Network:
        if not isinstance(value, str):
            raise ValueError
        try:
            return ipaddress.ip_network(value)
        except ValueError as error:
            raise InvalidValue(str(error)) from error

    return Kind("a network such as 10.0.0.0/8", "networks", read)


def server_address() -> Kind[str]:
    """Accept an IP address, IPv6 in brackets, with a port or without."""

    def read(value: object) -> str:
        parts = urlsplit(f"//{value}")
        host = ipaddress.ip_address(parts.hostname or "")
        name = f"[{host}]" if host.version == 6 else str(host)
        written = name if parts.port is None else f"{name}:{parts.port}"
        if value != written or parts.port == 0:
            raise ValueError
        return written

    return Kind("an IP address, with a port or without, such as 127.0.0.1:53", "addresses", read)


def suffix() -> Kind[str]:
    """Accept a file name extension in lower case, without its dot."""
    return text("an extension such as jpg", "extensions", r"[a-z0-9]{1,16}")


def class_path() -> Kind[str]:
    """Accept the path of a class. The class is loaded where it is used, not here."""
    return text(
        "a class such as package.module.Class", "class path", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
    )


def pattern() -> Kind[re.Pattern[str]]:
    """Accept a regular expression, and compile it."""

    def read(value: object) -> re.Pattern[str]:
        if not isinstance(value, str):
            raise ValueError
        try:
            return re.compile(value)
        except re.error as error:
            raise InvalidValue(f"{value!r} does not compile: {error}") from error

    return Kind("a regular expression", "regular expressions", read)


# A setting is a field of a frozen dataclass, with its name, type, default, unit and meaning. The
# reader, settings.py, the documentation and the error texts are all made from it.

SETTING: Final = "setting"
_FEW: Final = 30  # names that fit into an error text


class Comparable(Protocol):
    """A value that has an order."""

    def __le__(self, other: Any, /) -> bool:
        """Return whether this value is not above *other*."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings."""

    name: str  # as users write it
    field: str  # of the dataclass
    default: object
    kind: Kind[object]
    meaning: str  # one line

    def read(self, given: Mapping[str, object]) -> object:
        """Return the user's value, or the default. Raises ConfigError."""
        if self.name not in given:
            return self.default
        value = given[self.name]
        try:
            return self.kind.read(value)
        except (ValueError, OverflowError) as error:
            detail = f" ({error})" if isinstance(error, InvalidValue) else ""
            shown = "not shown, it may hold a password" if self.kind.secret else repr(value)
            raise ConfigError(
                f"{self.name} is {shown}; want {self.kind.expected}{detail}"
            ) from error


def setting(default: T, kind: Kind[T], meaning: str) -> T:
    """Declare a field that a user may set."""
    return field(default=default, repr=not kind.secret, metadata={SETTING: (kind, meaning)})


def settings_of(group: type[Any], prefix: str = "") -> list[Setting]:
    """Return the rows of *group*, in order. With a prefix the names are settings, in capitals."""
    rows = []
    for each in fields(group):
        kind, meaning = each.metadata[SETTING]
        name = (prefix + each.name).upper() if prefix else each.name
        rows.append(Setting(name, each.name, each.default, kind, meaning))
    return rows


def read_group(group: type[T], given: Mapping[str, object], prefix: str = "") -> T:
    """Build *group* from the values that the user gave. Raises ConfigError."""
    return group(**{row.field: row.read(given) for row in settings_of(group, prefix)})


def refuse_unknown(what: str, given: Iterable[str], names: Iterable[str]) -> None:
    """Raise ConfigError for the first name that is not in *names*, and suggest the nearest."""
    right = {name.casefold(): name for name in names}
    for name in given:
        if name not in right.values():
            nearest = difflib.get_close_matches(name.casefold(), right, n=1)
            few = f"; there are {', '.join(right.values())}" if len(right) < _FEW else ""
            hint = f"; did you mean {right[nearest[0]]}?" if nearest else few
            raise ConfigError(f"unknown {what} {name}{hint}")


def refuse_disorder(low: str, low_value: Comparable, high: str, high_value: Comparable) -> None:
    """Raise ConfigError if the low end of a range is above its high end."""
    if not low_value <= high_value:
        raise ConfigError(f"{low} ({low_value}) is above {high} ({high_value})")


# The contact of the operator, a page or a mail address. Names reserved for examples (RFC 2606, RFC
# 6761) and local ones are refused. No text of ours has an example that would be accepted: it would
# be copied.

WANT_CONTACT: Final = (
    "a mail address that you read (name@host) or the http(s) URL of a page about your crawl"
)
RESERVED: Final = ("example", "invalid", "localhost", "test", "local", "internal")
PLACEHOLDERS: Final = frozenset(
    {"example.com", "example.org", "example.net", "example.edu"}
    | {"your-organisation.org", "your-site.com", "yoursite.com", "yourdomain.com", "domain.com"}
)
# The contact goes into two header lines: no character ends a comment, a quotation or a line.
SAFE: Final = re.compile(r"[!#-'*-;=?-\[\]^-~]{1,200}")
MAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@([A-Za-z0-9.-]+)")
NAME: Final = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")


def contact() -> Kind[str]:
    """Accept a contact in its plain form (no mailto:), or the empty string if there is none yet."""
    return Kind(WANT_CONTACT, "URL or mail address", _read_contact)


def is_mail(value: str) -> bool:
    """Return whether a contact can stand in a From header (RFC 9110 10.1.2 wants a mailbox)."""
    return MAIL.fullmatch(value) is not None


def _read_contact(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    plain = value.removeprefix("mailto:")
    if not plain:
        return ""
    if not SAFE.fullmatch(plain):
        raise ValueError
    _refuse_unreachable(_host_name(plain))
    return plain


def _host_name(plain: str) -> str:
    """Return the host name of a URL or of a mail address."""
    if mail := MAIL.fullmatch(plain):
        return mail[1].lower()
    parts = urlsplit(plain)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError
    return parts.hostname.rstrip(".")


def _refuse_unreachable(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidValue(f"{name!r} is not a public host name")
    last_two = ".".join(name.split(".")[-2:])
    if last_two in PLACEHOLDERS or name.rpartition(".")[2] in RESERVED:
        raise InvalidValue(f"{name} is a placeholder: give an address of your own")


_HOST_OF_ORIGIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


def origin_of_https() -> Kind[str]:
    """Accept an origin over https as it is compared (RFC 6454, 6.2), or the empty string."""
    return Kind("an origin as in https://HOST, over https, or nothing", "origin", _read_origin)


def _read_origin(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    if not value:
        return ""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise InvalidValue(str(error)) from error
    if parts.scheme != "https":
        raise InvalidValue("its scheme is not https")
    if "@" in parts.netloc:
        raise InvalidValue("it has a user or a password")
    host = parts.netloc.lower()
    if port is not None or host.endswith(":"):
        host = host.rpartition(":")[0]
    if not _HOST_OF_ORIGIN.fullmatch(host):
        raise InvalidValue("its host is no name of letters, digits, dots and hyphens")
    origin = f"https://{host}" if port in (None, 443) else f"https://{host}:{port}"
    if "?" in value or "#" in value:
        raise InvalidValue(f"it has a query or a fragment: write {origin}")
    if parts.path:
        raise InvalidValue(f"it has a path: write {origin}")
    if value != origin:
        raise InvalidValue(f"it is not in its plain form: write {origin}")
    return origin


# Extensions of files without text or links. What may hold text (pdf, txt, xml, office documents) is
# not here, nor what names of pages end in: example.com, Node.js, U.S.A.

_IMAGES: Final = """
    jpg jpeg jpe png gif bmp tif tiff webp avif heic heif ico svg svgz psd eps jp2 jxl xcf dng
    cr2 nef"""
_AUDIO: Final = "mp3 m4a aac ogg oga opus wav wma flac aiff mid midi amr"
_VIDEO: Final = "mp4 m4v mov avi wmv mpg mpeg mkv webm ogv flv 3gp asf vob m3u8 mpd swf"
_ARCHIVES: Final = """
    zip gz tgz bz2 tbz2 xz txz zst 7z rar tar lz lzma cab iso img dmg pkg deb rpm apk ipa jar
    war whl egg gem crx xpi torrent warc wacz"""
_PROGRAMS: Final = """
    exe msi dll bin bat pyc wasm vhd vmdk ova qcow2 sqlite mdb parquet npy pkl h5"""
_STYLES: Final = "css woff woff2 ttf otf eot cur"

DENIED_EXTENSIONS: Final = tuple(
    " ".join((_IMAGES, _AUDIO, _VIDEO, _ARCHIVES, _PROGRAMS, _STYLES)).split()
)


# The URL of the Redis server of a shared frontier, or of a file that holds this URL; or of a URL
# Frontier. No text made here has any part of the URL: a password with an unescaped # or / may be in
# any of them.

MAX_PORT: Final = 65_535
WANT_REDIS_URL: Final = "redis://, rediss:// or unix:// as in redis://:password@host:6379/0"
WANT_FILE: Final = "or file:/path of a file that holds such a URL"
WANT_URL_FRONTIER: Final = "or grpc://host:7071 or grpcs:// of a URL Frontier"
HINT: Final = "a password's / ? # @ and % are written %2F %3F %23 %40 and %25"
SERVER: Final = re.compile(
    r"rediss?://([^/?#\s]*@)?"
    r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?"
    r"(/[0-9]*)?(\?[^#\s]*)?"
)
SOCKET: Final = re.compile(r"unix://([^/?#\s]*@)?/[^?#\s]+(\?[^#\s]*)?")
URL_FRONTIER: Final = re.compile(
    r"grpcs?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?(\?[^#\s]*)?"
)
FILE: Final = re.compile(r"file:(?://)?(?P<path>/[^/\0\r\n][^\0\r\n]*)")


def frontier_url() -> Kind[str]:
    """Accept a Redis URL, the file of one, the URL of a URL Frontier, or the empty string if the
    frontier is in the data directory."""
    want = f"{WANT_REDIS_URL}, {WANT_FILE}, {WANT_URL_FRONTIER}"
    return Kind(want, "URL", _read_frontier, secret=True)


def redis_url() -> Kind[str]:
    """Accept a Redis URL."""
    return Kind(WANT_REDIS_URL, "URL", _read_redis_url, secret=True)


def is_of_url_frontier(url: str) -> bool:
    """Return whether *url*, as it was set, is meant for a URL Frontier."""
    return url.startswith(("grpc://", "grpcs://"))


def refuse_bad_url(url: str) -> None:
    """Raise InvalidValue unless *url* is a Redis URL, as a setting and a file must hold it."""
    server = SERVER.fullmatch(url)
    if not (server or SOCKET.fullmatch(url)):
        raise InvalidValue(HINT)
    _refuse_bad_port(server)


def _refuse_bad_port(server: re.Match[str] | None) -> None:
    if server and server["port"] and not 0 < int(server["port"]) <= MAX_PORT:
        raise InvalidValue(f"a port is from 1 to {MAX_PORT}")


def file_of(url: str) -> str | None:
    """Return the path of the file that holds the URL, or None if *url* is the URL itself."""
    found = FILE.fullmatch(url)
    return found["path"] if found else None


def _read_frontier(value: object) -> str:
    if isinstance(value, str) and (not value or file_of(value) is not None):
        return value
    if isinstance(value, str) and is_of_url_frontier(value):
        server = URL_FRONTIER.fullmatch(value)
        if server is None:
            raise InvalidValue("a URL Frontier has a host, a port and perhaps options after ?")
        _refuse_bad_port(server)
        return value
    return _read_redis_url(value)


def _read_redis_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    refuse_bad_url(value)
    return value
