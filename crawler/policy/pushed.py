"""What somebody pushed to be crawled: a URL, or scrapy-redis' JSON form of a request.

Rule: it comes from outside: each part is what it must be, or the whole is refused and named.
Nothing in it is code, and nothing is made of it but text, numbers, lists and dicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from crawler.policy.seeds import seed_url

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Form = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Pushed:
    """A request as it was pushed."""

    url: str  # its fetch form
    method: str = "GET"
    meta: Mapping[str, Any] = field(default_factory=dict)
    form: Form = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Its URL says all."""
        return self.method == "GET" and not self.meta and not self.form


def read_pushed(item: bytes) -> Pushed:
    """ValueError: the reason why it is none."""
    try:
        text = item.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    if not text:
        raise ValueError("it is empty")
    if not text.startswith("{"):
        return Pushed(seed_url(text))
    try:
        fields = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as broken:
        raise ValueError(f"not JSON that can be read: {broken}") from None
    return _of_fields(fields)


def _of_fields(fields: dict[str, Any]) -> Pushed:
    url, meta = fields.pop("url", None), fields.pop("meta", None)
    method = fields.pop("method", "GET")
    if not isinstance(url, str):
        raise ValueError("no URL in it, under the name url")
    if not (isinstance(method, str) and _METHOD.fullmatch(method.upper())):
        raise ValueError("its method is none")
    if not (meta is None or isinstance(meta, dict)):
        raise ValueError("its meta is no object")
    for name, value in fields.items():
        if not _is_form_data(value):
            raise ValueError(f"its field {name[:80]!r} can be no form data: text, or a list of it")
    return Pushed(seed_url(url), method.upper(), meta or {}, fields)


def _is_form_data(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, str) for each in values)
