"""What the questions of a report on a site make of outcomes and captures that a crawl of a second
does not bring."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest

from crawler.archive.columns import COLUMNS
from crawler.archive.outcome_table import OUTCOME_COLUMNS
from crawler.archive.site_queries import FINDINGS
from crawler.archive.site_tables import SiteTables, open_site_tables
from crawler.model.types import DataDirError

HOST: Final = "http://h.example/"
HOURS: Final = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]
CAPTURES: Final = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])
OUTCOMES: Final = pa.schema([pa.field(each.name, each.type) for each in OUTCOME_COLUMNS])
Row = Mapping[str, Any]


def page(path: str, at: int = 0, links: str = "", **more: Any) -> Row:
    outlinks = [
        {"url": HOST + each, "kind": "a", "rel": "", "text": each, "language": ""}
        for each in links.split()
    ]
    given = {"url": HOST + path, "fetched_at": HOURS[at], "status": 200, "outlinks": outlinks}
    return {**given, "media_type": "text/html", "digest": "one", "depth": 0, **more}


def outcome(path: str, at: int = 0, fate: str = "done", **more: Any) -> Row:
    return {"url": HOST + path, "at": HOURS[at], "fate": fate, "seconds": 0.1, "depth": 0, **more}


def answers(folder: Path, captures: list[Row], outcomes: list[Row], *names: str) -> Any:
    """The answers to the findings of *names*, with each URL as its path."""
    pq.write_table(pa.Table.from_pylist(captures, CAPTURES), folder / "captures.parquet")
    pq.write_table(pa.Table.from_pylist(outcomes, OUTCOMES), folder / "outcomes.parquet")
    files = [folder / "captures.parquet"], [folder / "outcomes.parquet"]
    with open_site_tables(*files, lambda url: url) as tables:
        return [found(tables, name) for name in names]


def found(tables: SiteTables, name: str) -> list[tuple[Any, ...]]:
    (finding,) = [each for each in FINDINGS if each.name == name]
    return [tuple(map(short, row)) for row in tables.rows(finding.sql)]


def short(value: Any) -> Any:
    return value.replace(HOST, "") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("outcomes", "why"),
    [
        pytest.param([{"status": 404}], "404", id="not found"),
        pytest.param([{"status": 403, "fate": "dead"}], "403", id="forbidden by the server"),
        pytest.param(
            [{"fate": "retry", "status": 503, "failure": "status_503"}], "503", id="to be retried"
        ),
        *(
            pytest.param([{"fate": "dead", "failure": kind}], kind, id=kind)
            for kind in ("timeout", "connect", "dns", "tls", "protocol", "disconnect", "redirects")
        ),
        pytest.param(
            [
                {
                    "fate": "dead",
                    "failure": "robots_unreachable",
                    "reason": "robots.txt unreachable: dns",
                }
            ],
            "dns",
            id="its host has no address, so its robots.txt has none",
        ),
        pytest.param(
            [{"status": 200, "reason": "soft_404"}], "says that it is not there", id="soft"
        ),
        pytest.param([{"status": 404}, {"status": 200}], None, id="it came back"),
        pytest.param([{"status": 200}, {"status": 410}], "410", id="it is gone"),
        pytest.param(
            [{"status": 200}, {"fate": "dead", "failure": "timeout"}], "timeout", id="it hangs now"
        ),
        pytest.param([{"status": 200}, {"status": 304}], None, id="not modified"),
        pytest.param([{"reason": "robots.txt: line 1: Disallow: /"}], None, id="robots.txt"),
        pytest.param(
            [
                {
                    "fate": "dead",
                    "failure": "robots_unreachable",
                    "reason": "robots.txt unreachable: status 503",
                }
            ],
            None,
            id="robots.txt has an error",
        ),
        pytest.param(
            [{"fate": "dead", "status": 200, "failure": "broken"}], None, id="our own error"
        ),
        pytest.param([], None, id="not fetched"),
        pytest.param(
            [{"status": 403, "external": "unknown"}], None, id="external, closed to robots"
        ),
        pytest.param([{"status": 404, "external": "broken"}], "404", id="external, not found"),
        pytest.param(
            [{"fate": "dead", "failure": "dns", "external": "broken"}],
            "dns",
            id="external, no name",
        ),
    ],
)
def test_a_link_is_broken_by_the_last_outcome(
    tmp_path: Path, outcomes: list[dict[str, Any]], why: str | None
) -> None:
    told = [outcome("x", at, **{"fate": "done", **more}) for at, more in enumerate(outcomes)]
    given = [outcome("", status=200), *reversed(told)]
    (broken,) = answers(tmp_path, [page("", links="x")], given, "broken-links")
    assert broken == ([("x", why, "", "x", "a", False, None)] if why else [])


def test_a_page_that_is_gone_has_no_links_and_one_that_was_as_before_has_its_own(
    tmp_path: Path,
) -> None:
    captures = [
        page("", links="gone back", digest="start"),
        page("gone", links="x"),
        page("back", 1, "y", digest="two", title="Then"),
        page("back", 0, "x", digest="one", title="Now"),
        page("back", 2, "", digest="one", original=f"{HOST}back"),  # the bytes of the first
    ]
    outcomes = [
        *(outcome("", status=200), outcome("x", status=404), outcome("y", status=404)),
        *(outcome("gone", status=200), outcome("gone", 1, status=404)),
        *(outcome("back", at, status=200) for at in range(3)),
    ]
    broken, titles = answers(tmp_path, captures, outcomes, "broken-links", "titles")
    assert [row[:3] for row in broken] == [("gone", "404", ""), ("x", "404", "back")]
    assert titles == [("missing", None, 1, "")]


def test_redirects_are_followed_for_so_many_hops(tmp_path: Path) -> None:
    moves = [outcome(f"{n}", fate="moved", status=301, target=f"{HOST}{n + 1}") for n in range(100)]
    outcomes = [*moves, outcome("", status=200), outcome("100", status=404)]
    redirects, broken = answers(
        tmp_path, [page("", links="0 90")], outcomes, "redirects", "broken-links"
    )
    assert [row[:3] for row in redirects] == [("0", 20, "20"), ("90", 10, "100")]
    assert broken == [("90", "404", "", "90", "a", False, "100")]


def test_what_is_read_is_the_files_of_the_crawl_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a secret\n")
    pq.write_table(pa.Table.from_pylist([page("")], CAPTURES), tmp_path / "captures.parquet")
    forbidden = [
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        f"SELECT * FROM '{tmp_path}/*.parquet'",
        f"COPY pages TO '{tmp_path}/out.csv'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        f"ATTACH '{tmp_path}/new.duckdb'",
    ]
    for sql in forbidden:
        with (
            pytest.raises(DataDirError, match="cannot be looked through"),
            open_site_tables([tmp_path / "captures.parquet"], [], str.lower) as tables,
        ):
            list(tables.rows(sql))
    assert {path.name for path in tmp_path.iterdir()} == {"secret.csv", "captures.parquet"}
