"""A spider's own requests, as bytes and back: all of it or a reason, and never code."""

from __future__ import annotations

import inspect
import io
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.http import FormRequest, JsonRequest, XmlRpcRequest

from crawler.engine.request_meta import LEASE
from crawler.model.types import UnstorableRequest
from crawler.scheduler.requests import pack_request, unpack_request
from tests.harness.budget import examples

URL = "http://a.example/"


class Own(Spider):
    name = "own"
    limit = 5

    def page(self, response: object) -> None: ...
    def failed(self, failure: object) -> None: ...
    def _hidden(self, response: object) -> None: ...

    @classmethod
    def of_class(cls, response: object) -> None: ...

    @staticmethod
    def static(response: object) -> None: ...


class OwnRequest(Request):
    pass


class Text(str):
    __slots__ = ()


SPIDER = Own()


def bottomless() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


def nested(depth: int) -> list[Any]:
    held: list[Any] = []
    for _ in range(depth):
        held = [held]
    return held


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Request(URL), id="a plain one"),
        pytest.param(Request(URL, SPIDER.page, errback=SPIDER.failed), id="callback, errback"),
        pytest.param(Request(URL, SPIDER._hidden), id="a private method of the spider"),
        pytest.param(Request(URL, SPIDER.of_class), id="a method of its class"),
        pytest.param(Request(URL, method="put", body=b"\xff\0"), id="method, body of any bytes"),
        pytest.param(Request(URL, body="caf\xe9", encoding="latin-1"), id="another encoding"),
        pytest.param(Request(URL, headers={"X-A": ["1", b"\xff"], "b": "2"}), id="headers"),
        pytest.param(Request(URL, cookies={"a": "b"}), id="cookies"),
        pytest.param(
            Request(URL, cookies=[{"name": "a", "value": "b", "secure": True}]),
            id="cookies with attributes",
        ),
        pytest.param(Request(URL, priority=-7, dont_filter=True, flags=["f"]), id="the small ones"),
        pytest.param(
            Request(URL, meta={"a": [1, 2.5, None, True, b"b", {"c": {}}], "depth": 3}), id="meta"
        ),
        pytest.param(Request(URL, meta={"a": {1: "x", b"k": "y", "": "z"}}), id="keys"),
        pytest.param(Request(URL, cb_kwargs={"a": "\U0001f41b", "b": 1 << 63}), id="cb_kwargs"),
        pytest.param(FormRequest(URL, formdata={"a": "b"}), id="a form"),
        pytest.param(JsonRequest(URL, data={"a": [1]}), id="JSON"),
        pytest.param(XmlRpcRequest(URL, methodname="m", params=(1,)), id="XML-RPC"),
    ],
)
def test_all_of_a_request_comes_back(request_: Request) -> None:
    back = unpack_request(pack_request(request_, SPIDER), SPIDER)
    assert type(back) is type(request_)
    for part in Request.attributes:
        assert getattr(back, part) == getattr(request_, part), part


def test_text_of_a_class_of_its_own_comes_back_as_plain_text() -> None:
    request = Request(URL, meta={"link_text": Text("b")}, cb_kwargs={"a": [Text("c")]})
    back = unpack_request(pack_request(request, SPIDER), SPIDER)
    assert (back.meta, back.cb_kwargs) == ({"link_text": "b"}, {"a": ["c"]})
    assert type(back.meta["link_text"]) is type(back.cb_kwargs["a"][0]) is str


def test_fields_of_one_fetch_are_not_stored() -> None:
    meta = {LEASE: object(), "download_slot": "a", "download_latency": 0.1, "mine": 1}
    request = Request(URL, meta=meta)
    assert unpack_request(pack_request(request, SPIDER), SPIDER).meta == {"mine": 1}
    assert request.meta == meta, "the request itself is not changed"


@pytest.mark.parametrize(
    ("given_", "reason"),
    [
        pytest.param({"callback": lambda _: None}, "not an instance method", id="a lambda"),
        pytest.param({"callback": print}, "not an instance method", id="a function"),
        pytest.param({"callback": Own.static}, "not an instance method", id="a static method"),
        pytest.param({"errback": lambda _: None}, "not an instance method", id="as errback"),
        pytest.param({"meta": {"f": io.StringIO()}}, r"meta\['f'\] is a StringIO", id="a file"),
        pytest.param({"meta": {"a": [{"b": {1}}]}}, r"meta\['a'\]\[\]\['b'\] is a set", id="a set"),
        pytest.param({"meta": {"a": (1, 2)}}, "is a tuple", id="a tuple would be a list"),
        pytest.param({"meta": {Text("a"): 1}}, "key of Text", id="a key of a class of its own"),
        pytest.param({"cb_kwargs": {"a": SPIDER}}, r"cb_kwargs\['a'\] is a Own", id="an object"),
        pytest.param({"cb_kwargs": {"a": {1.5: 1}}}, "key of float", id="a key of another kind"),
        pytest.param({"meta": {"a": 1 << 64}}, "serialize ints", id="a number beyond 64 bits"),
        pytest.param({"meta": {"a": "\ud800"}}, "surrogates", id="half a character"),
        pytest.param({"meta": {"a": bottomless()}}, "deep", id="a list that holds itself"),
        pytest.param({"meta": {"a": nested(100_000)}}, "deep", id="lists without end"),
        pytest.param(
            {"body": b"x" * (4 << 20)},
            "4194[0-9]{3} bytes .* at most 4194304 are",
            id="more than 4 MB",
        ),
    ],
)
def test_requests_that_cannot_be_stored_are_refused_with_the_place(
    given_: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnstorableRequest, match=reason):
        pack_request(Request(URL, **given_), SPIDER)


def test_a_class_of_the_users_own_is_refused() -> None:
    with pytest.raises(UnstorableRequest, match="OwnRequest is not one that can be stored"):
        pack_request(OwnRequest(URL), SPIDER)


def written(**parts: object) -> bytes:
    return msgspec.msgpack.encode({"url": URL, **parts})


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="no msgpack"),
        pytest.param(b"cos\nsystem\n(S'true'\ntR.", id="a pickle"),
        pytest.param(pack_request(Request(URL), SPIDER)[:-3], id="cut"),
        pytest.param(pack_request(Request(URL), SPIDER) + b"x", id="and more"),
        pytest.param(msgspec.msgpack.encode([1, 2]), id="a list"),
        pytest.param(msgspec.msgpack.encode({}), id="no URL"),
        pytest.param(b"\x81\xa3url\xdd\xff\xff\xff\xff", id="a list said to have 4 billion parts"),
        pytest.param(b"\x81\xa3url" + b"\x91" * 1_000_000, id="lists without end"),
        pytest.param(written(url=5), id="a URL that is a number"),
        pytest.param(written(url="not a url"), id="a URL without a scheme"),
        pytest.param(written(_class="os.system"), id="a function as class"),
        pytest.param(written(_class="subprocess.Popen"), id="another class"),
        pytest.param(written(_class="tests.unit.test_requests.OwnRequest"), id="a user's class"),
        pytest.param(written(_class=["a"]), id="a list as class"),
        pytest.param(written(_class=None), id="no class"),
        pytest.param(written(callback="gone"), id="a method that is no more"),
        pytest.param(written(callback="os.system"), id="a function elsewhere"),
        pytest.param(written(callback="page.__func__.__globals__"), id="a path of attributes"),
        pytest.param(written(callback="limit"), id="what is not called"),
        pytest.param(written(callback="crawler"), id="an object of Scrapy's"),
        pytest.param(written(callback="__class__"), id="the spider's class"),
        pytest.param(written(callback="__init__"), id="its birth"),
        pytest.param(written(errback="__reduce_ex__"), id="a method all objects have"),
        pytest.param(written(callback="static"), id="a static method"),
        pytest.param(written(callback=["page"]), id="a list of methods"),
        pytest.param(written(meta=5), id="meta that is a number"),
        pytest.param(written(meta="ab"), id="meta that is text"),
        pytest.param(written(cb_kwargs=[1]), id="cb_kwargs that are a list"),
        pytest.param(written(headers=7), id="headers that are a number"),
        pytest.param(written(headers=[[1, 2, 3]]), id="headers that are triples"),
        pytest.param(written(headers={5: []}), id="a number as the name of a header"),
        pytest.param(written(headers={b"a": [5]}), id="and as its value"),
        pytest.param(written(cookies=5), id="cookies that are a number"),
        pytest.param(written(cookies=["a"]), id="cookies that are text"),
        pytest.param(
            written(_class="scrapy.http.request.json_request.JsonRequest", dumps_kwargs="a"),
            id="options of JSON that are text",
        ),
        pytest.param(written(body=5), id="a body that is a number"),
        pytest.param(written(encoding="no-such"), id="an encoding nobody knows"),
        pytest.param(written(encoding="zip"), id="an encoding that is none of text"),
        pytest.param(written(encoding=5), id="an encoding that is a number"),
        pytest.param(written(priority="high"), id="a priority in words"),
        pytest.param(written(flags=5), id="flags that are a number"),
    ],
)
def test_hostile_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(UnstorableRequest):
        unpack_request(packed, SPIDER)


def judged(packed: bytes) -> None:
    """A request that calls nothing but methods of its spider, or a refusal."""
    try:
        request = unpack_request(packed, SPIDER)
    except UnstorableRequest:
        return
    assert type(request) in (Request, FormRequest, JsonRequest, XmlRpcRequest)
    for called in (request.callback, request.errback):
        assert called is None or inspect.ismethod(called)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_refusal(packed: bytes) -> None:
    judged(packed)


WHOLE = pack_request(
    Request(URL, SPIDER.page, errback=SPIDER.failed, headers={"a": "b"}, meta={"c": [1]}), SPIDER
)


@settings(max_examples=examples(500))
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, 255))
def test_a_damaged_request_is_a_request_or_a_refusal(at: int, first: int, second: int) -> None:
    judged(WHOLE[:at] + bytes([first, second]) + WHOLE[at + 2 :])
