"""Serialize the requests of a spider for the frontier, and read them back.

Rule: msgpack, never pickle. A value that would be read back as another type is refused before it is
stored; a stored request names only methods of the spider and the classes in `_CLASSES`.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, TypedDict

import msgspec
from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest, XmlRpcRequest
from scrapy.utils.request import request_from_dict

from crawler.engine.request_meta import LEASE
from crawler.model.types import UnstorableRequest

# The downloader sets these again at each fetch.
_PASSING: Final = frozenset({LEASE, "download_slot", "download_latency"})
_CLASSES: Final = {f"{kind.__module__}.{kind.__qualname__}" for kind in
                   (Request, FormRequest, JsonRequest, XmlRpcRequest)}  # fmt: skip
MAX_REQUEST_BYTES: Final = 4 << 20
"""Guess: a form with a picture fits. A larger one would delay all workers of a shared frontier."""
_DEEPEST: Final = 100  # guess: no real request nests deeper; a list that holds itself ends here
_SCALARS: Final = (str, bytes, bool, int, float, type(None))
_encode = msgspec.msgpack.Encoder(enc_hook=str.__str__).encode
_decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class _Parts(TypedDict, total=False):
    """The types that Scrapy expects of the parts of a stored request."""

    url: str
    callback: str | None
    errback: str | None
    headers: dict[bytes, list[bytes]]
    cookies: dict[Any, Any] | list[dict[Any, Any]]
    meta: dict[Any, Any]
    flags: list[Any]
    cb_kwargs: dict[Any, Any]
    dumps_kwargs: dict[Any, Any]  # of a JsonRequest


def pack_request(request: Request, spider: Spider) -> bytes:
    """Serialize *request*. Raises UnstorableRequest, which names the part that cannot be stored."""
    try:
        parts = request.to_dict(spider=spider)
    except ValueError as refused:  # a callback that is no method of the spider
        raise UnstorableRequest(f"{request}: {refused}") from refused
    parts["meta"] = {key: value for key, value in parts["meta"].items() if key not in _PASSING}
    kind = parts.get("_class")
    if kind is not None and kind not in _CLASSES:
        raise UnstorableRequest(f"{request}: its class {kind} is not one that can be stored")
    for name, value in parts.items():
        _refuse_foreign(request, name, value)
    try:
        packed = _encode(parts)
    except (OverflowError, ValueError, UnicodeError) as refused:
        raise UnstorableRequest(f"{request}: {refused}") from refused
    if len(packed) > MAX_REQUEST_BYTES:
        raise UnstorableRequest(
            f"{request}: {len(packed)} bytes with its body, meta and cb_kwargs; at most"
            f" {MAX_REQUEST_BYTES} are stored"
        )
    return packed


def unpack_request(packed: bytes, spider: Spider) -> Request:
    """Read a request back. Raises UnstorableRequest if *packed* is not a request of this spider."""
    try:
        parts = _decode(packed)
        msgspec.convert(parts, _Parts)
        if parts.get("_class", f"{Request.__module__}.Request") not in _CLASSES:
            raise UnstorableRequest(f"a stored request of class {parts['_class']}")
        request = request_from_dict(parts, spider=spider)
    except (ValueError, TypeError, LookupError, RecursionError, msgspec.MsgspecError) as broken:
        raise UnstorableRequest(f"a stored request cannot be read: {broken}") from broken
    for called in (request.callback, request.errback):
        if called is not None and not _is_callback(called):
            raise UnstorableRequest(f"a stored request calls {called!r}")
    return request


def _is_callback(called: object) -> bool:
    """Return whether `pack_request` can have named it: a method of the spider or its class, but
    none that all objects have."""
    return inspect.ismethod(called) and not called.__name__.startswith("__")


def _refuse_foreign(request: Request, where: str, value: object, depth: int = 0) -> None:
    # A subclass of str is read back as plain text, which is equal to it: a CrawlSpider puts
    # lxml's into the meta of each request.
    if type(value) in _SCALARS or isinstance(value, str):
        return
    if depth > _DEEPEST:
        raise UnstorableRequest(f"{request}: {where[:80]} is nested too deep")
    if type(value) is list:
        for item in value:
            _refuse_foreign(request, f"{where}[]", item, depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) not in (str, bytes, int):
                raise UnstorableRequest(f"{request}: {where} has a key of {type(key).__name__}")
            _refuse_foreign(request, f"{where}[{key!r}]", item, depth + 1)
    else:
        raise UnstorableRequest(
            f"{request}: {where} is a {type(value).__name__};"
            " only text, bytes, numbers, None, lists and dicts are stored"
        )
