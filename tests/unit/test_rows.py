"""What is kept with a page of its links."""

from __future__ import annotations

import pytest

from crawler.model.page import Link
from crawler.policy.links import (
    BASE_CHARS,
    MAX_LINKS_KEPT,
    max_links,
    resolve_links,
)


@pytest.mark.parametrize(
    ("base", "kept"),
    [
        pytest.param("http://a.example/b/", MAX_LINKS_KEPT, id="an ordinary one"),
        pytest.param("http://a.example/" + "b" * 383, MAX_LINKS_KEPT, id="a long one"),
        pytest.param(
            "http://a.example/" + "b" * 1983, MAX_LINKS_KEPT // 5, id="one that is meant to hurt"
        ),
    ],
)
def test_a_long_base_leaves_fewer_links(base: str, kept: int) -> None:
    assert max_links(base) == kept


def test_a_base_adds_so_much_and_no_more() -> None:
    base = "http://a.example/" + "b" * 2000 + "/"
    links = [Link(str(number)) for number in range(MAX_LINKS_KEPT)]
    found, others = resolve_links(links[: max_links(base)], base)
    assert sum(len(link.url) for link in found) < BASE_CHARS + 10 * MAX_LINKS_KEPT and others == []
