"""Manifests of apps: their pictures, whatever else the JSON holds."""

from __future__ import annotations

import pytest

from crawler.content.parsers.manifest import ManifestParser
from crawler.model.page import Link, LinkKind, Source


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(b'{"icons": [{"src": "a.png"}, {"src": "/b"}]}', ["a.png", "/b"], id="icons"),
        pytest.param(b'{"shortcuts": [{"icons": [{"src": "c"}]}], "screenshots": [{"src": "d"}]}',
                     ["d", "c"], id="other pictures"),
        pytest.param(b'\xef\xbb\xbf{"icons": [{"src": "a"}, {"src": "a"}]}', ["a"], id="a BOM"),
        pytest.param(b'{"icons": [{"src": 1}, {"src": ""}, 2, null, {}], "shortcuts": 3}', [],
                     id="wrong types"),
        pytest.param(b'{"icons": {"src": "a"}}', [], id="no list"),
        pytest.param(b'[{"src": "a"}]', [], id="no manifest"),
        pytest.param(b'{"icons": [{"src": "a"}', [], id="cut"),
        pytest.param(b"[" * 300_000, [], id="nested without end"),
        pytest.param(b"\xff\0", [], id="no JSON"),
    ],
)  # fmt: skip
def test_the_pictures_of_a_manifest(body: bytes, found: list[str]) -> None:
    parsed = ManifestParser().parse(Source("http://a.example/m", "application/json", body))
    assert (parsed.text, parsed.links) == ("", tuple(Link(url, LinkKind.IMAGE) for url in found))
