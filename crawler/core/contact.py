"""Who runs the crawl: a page or a mail address a webmaster can turn to.

Rule: a contact that nobody answers is worse than none, so names reserved for examples
(RFC 2606, RFC 6761) and addresses that only this machine can reach are refused. No text of ours
gives an example that would be accepted here: it would be copied.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from crawler.core.kinds import Kind, Unfit

WANT: Final = (
    "a mail address that you read (name@host) or the http(s) URL of a page about your crawl"
)
RESERVED: Final = ("example", "invalid", "localhost", "test", "local", "internal")
PLACEHOLDERS: Final = frozenset(
    {"example.com", "example.org", "example.net", "example.edu"}
    | {"your-organisation.org", "your-site.com", "yoursite.com", "yourdomain.com", "domain.com"}
)
# It goes into two header lines: nothing that ends a comment, a quotation or a line.
SAFE: Final = re.compile(r"[!#-'*-;=?-\[\]^-~]{1,200}")
MAIL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@([A-Za-z0-9.-]+)")
NAME: Final = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]")


def contact() -> Kind[str]:
    """A contact in its plain form (no mailto:), or the empty string: not said yet."""
    return Kind(WANT, "URL or mail address", _read)


def is_mail(value: str) -> bool:
    """Whether a contact can stand in a From header (RFC 9110 10.1.2 wants a mailbox)."""
    return MAIL.fullmatch(value) is not None


def _read(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    plain = value.removeprefix("mailto:")
    if not plain:
        return ""
    if not SAFE.fullmatch(plain):
        raise ValueError
    _refuse_unreachable(_name_in(plain))
    return plain


def _name_in(plain: str) -> str:
    """The host name of a page or of a mail address."""
    if mail := MAIL.fullmatch(plain):
        return mail[1].lower()
    parts = urlsplit(plain)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError
    return parts.hostname.rstrip(".")


def _refuse_unreachable(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Unfit(f"{name!r} is not a public host name")
    last_two = ".".join(name.split(".")[-2:])
    if last_two in PLACEHOLDERS or name.rpartition(".")[2] in RESERVED:
        raise Unfit(f"{name} is a placeholder: give an address of your own")
