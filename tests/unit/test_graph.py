"""The graph of an archive's hosts and domains: its files, and its figures beside igraph's."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import igraph  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.archive.capture import RecordPlace
from crawler.archive.centrality import harmonic_centrality, in_links, page_rank
from crawler.archive.columns import ColumnsFile
from crawler.archive.graph import Graph, HostLinks, domain_graph, write_graph
from crawler.model.page import ColumnsRow, Link, LinkKind
from crawler.model.types import DataDirError
from crawler.policy.ranks import read_ranks, reversed_name

PAGES = {
    "www.example.org": [
        "https://www.example.org/own",
        "http://shop.example.org:8080/a?b=http://nowhere.example/",
        "http://shop.example.org/again#x",
        "https://example.com",
        "https://a.github.io/",
    ],
    "shop.example.org": ["https://example.com/?a", "https://user@example.com/", "http://[::1]:80/"],
    "example.com": ["https://www.example.org/", "http://192.0.2.7/", "https://b.github.io./"],
    "alone.example": ["http://name!/", "ftp://example.net/", "http:///"],
}
HOSTS = [
    *("192.0.2.7", "[::1]", "com.example", "example.alone", "io.github.a", "io.github.b"),
    *("org.example.shop", "org.example.www"),
]
DOMAINS = [name for name in HOSTS if not name.startswith("org.")] + ["org.example"]


def columns(folder: Path, pages: dict[str, list[str]]) -> Path:
    file = ColumnsFile(folder / "a.parquet")
    for host, urls in pages.items():
        row = ColumnsRow(url=f"http://{host}/", host=host, fetched_at=1.0, status=200)
        links = [Link(url, LinkKind.A, "") for url in urls]
        file.add(row, links, RecordPlace("a.warc.gz", 0, 1))
    file.finish()
    return folder / "a.parquet"


def edges_of(graph: Graph) -> set[tuple[str, str]]:
    ends = zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
    return {(graph.names[source], graph.names[target]) for source, target in ends}


@pytest.mark.parametrize("merged_edges", [0, 1 << 22])
def test_hosts_and_domains(tmp_path: Path, merged_edges: int) -> None:
    links = HostLinks(merged_edges)
    for _ in range(2):  # repeated pages change nothing
        assert links.add(columns(tmp_path, PAGES)) == 4
    hosts = links.graph()
    assert hosts.names == HOSTS
    assert edges_of(hosts) == {
        ("org.example.www", "org.example.shop"),
        ("org.example.www", "com.example"),
        ("org.example.www", "io.github.a"),
        ("org.example.shop", "com.example"),
        ("org.example.shop", "[::1]"),
        ("com.example", "org.example.www"),
        ("com.example", "192.0.2.7"),
        ("com.example", "io.github.b"),
    }
    domains = domain_graph(hosts)
    assert domains.names == DOMAINS
    assert domains.hosts is not None and domains.hosts.tolist() == [1, 1, 1, 1, 1, 1, 2]
    assert edges_of(domains) == {
        ("org.example", "com.example"),
        ("org.example", "io.github.a"),
        ("org.example", "[::1]"),
        ("com.example", "org.example"),
        ("com.example", "192.0.2.7"),
        ("com.example", "io.github.b"),
    }


def unpacked(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def test_files_are_as_common_crawls_and_read_as_ranks(tmp_path: Path) -> None:
    links = HostLinks()
    links.add(columns(tmp_path, PAGES))
    domains = domain_graph(links.graph())
    written = write_graph(domains, tmp_path, "domain")
    assert (written.nodes, written.edges, written.drawn) == (7, 6, 0)
    vertices = unpacked(tmp_path / "domain-vertices.txt.gz")
    assert vertices[-1] == ["6", "org.example", "2"]
    edges = unpacked(tmp_path / "domain-edges.txt.gz")
    assert edges[0] == ["2", "0"] and edges == sorted(edges)
    head, *ranks = unpacked(tmp_path / "domain-ranks.txt.gz")
    assert head == [
        *("#harmonicc_pos", "#harmonicc_val", "#pr_pos", "#pr_val", "#host_rev", "#n_hosts"),
        "#in_degree",
    ]
    assert [int(cells[0]) for cells in ranks] == list(range(1, 8))
    # From example.com one link leads there, and two from example.org.
    assert {cells[4]: (cells[1], cells[6]) for cells in ranks}["io.github.b"] == ("1.5", "1")
    assert sum(float(cells[3]) for cells in ranks) == pytest.approx(1)

    with (tmp_path / "domain-ranks.txt.gz").open("rb") as file:
        read = read_ranks([file.read()], "ranks")
    assert read.notes == () and len(read) == 7
    expected = {reversed_name(cells[4]): int(cells[0]) for cells in ranks}
    assert {name: read.of_domain(name) for name in expected} == expected
    before = (tmp_path / "domain-ranks.txt.gz").read_bytes()
    write_graph(domains, tmp_path, "domain")
    assert (tmp_path / "domain-ranks.txt.gz").read_bytes() == before


def test_damaged_columns_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"rubbish")
    with pytest.raises(DataDirError, match=r"a\.parquet cannot be read"):
        HostLinks().add(tmp_path / "a.parquet")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    nodes = draw(st.integers(1, 40))
    numbers = st.integers(0, nodes - 1)
    edges = draw(st.sets(st.tuples(numbers, numbers), max_size=120))
    return nodes, sorted((source, target) for source, target in edges if source != target)


def arrays(edges: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(edges, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]


@given(graphs())
def test_centralities_are_igraphs(graph: tuple[int, list[tuple[int, int]]]) -> None:
    nodes, edges = graph
    links = in_links(nodes, *arrays(edges))
    judge = igraph.Graph(n=nodes, edges=edges, directed=True)
    harmonic, drawn = harmonic_centrality(links)
    assert drawn == 0
    # igraph has no number for a node that is alone.
    of_judge = np.nan_to_num(judge.harmonic_centrality(mode="in", normalized=False))
    assert harmonic == pytest.approx(of_judge)
    assert page_rank(links) == pytest.approx(judge.pagerank(damping=0.85), rel=1e-6)


def test_paths_from_some_of_many_nodes_are_an_estimate() -> None:
    random = np.random.default_rng(7)
    nodes = 3000
    drawn_edges = random.integers(0, nodes, (12_000, 2)) ** 2 // nodes  # some have many links
    edges = np.unique(drawn_edges[drawn_edges[:, 0] != drawn_edges[:, 1]], axis=0).astype(np.int32)
    links = in_links(nodes, edges[:, 0], edges[:, 1])
    exact, _ = harmonic_centrality(links)
    estimate, drawn = harmonic_centrality(links, most_sources=640)
    assert drawn == 640
    best = (-exact).argsort()[:1000]
    assert estimate[best] == pytest.approx(exact[best], rel=0.05)
    assert (estimate[links.in_degrees == 0] == 0).all()
