"""Which finished files go to a store together, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.archive.delivery import bundles


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            ["a.cdxj", "a.parquet", "a.warc.gz"],
            [["a.warc.gz", "a.parquet", "a.cdxj"]],
            id="first the WARC file, last what names it",
        ),
        pytest.param(
            ["c-2026-b.warc.gz", "c-2025-z.warc.gz"],
            [["c-2025-z.warc.gz"], ["c-2026-b.warc.gz"]],
            id="the oldest first",
        ),
        pytest.param(
            ["a.warc.gz.open", "a.cdxj", "b.warc.gz"],
            [["b.warc.gz"]],
            id="companions are finished a moment before their WARC file",
        ),
        pytest.param(
            ["a.warc.gz", "a.cdxj.open", "a.parquet"],
            [],
            id="a companion is being made again: it needs the others here",
        ),
        pytest.param(["a.cdxj"], [["a.cdxj"]], id="a crash came after the WARC file was removed"),
        pytest.param(
            ["h.example.com-1.warc.gz", "h.example.com-1.cdxj", "h.example.com-12.cdxj"],
            [["h.example.com-1.warc.gz", "h.example.com-1.cdxj"], ["h.example.com-12.cdxj"]],
            id="dots in the name of a host",
        ),
        pytest.param(["a.wacz", "notes.txt", "b.warc"], [], id="what is not ours stays"),
    ],
)
def test_bundles(there: list[str], expected: list[list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "warc"
    folder.mkdir()
    for name in there:
        (folder / name).touch()
    found = bundles(tmp_path)
    assert [[file.name for file in bundle.files] for bundle in found] == expected


def test_a_file_finished_during_the_listing_keeps_its_companions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "warc"
    folder.mkdir()
    for name in ("a.cdxj", "a.warc.gz.open"):
        (folder / name).touch()
    listed = list(folder.iterdir())
    (folder / "a.warc.gz.open").rename(folder / "a.warc.gz")
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(listed))
    assert bundles(tmp_path) == []


def test_links_to_other_files_are_not_delivered(tmp_path: Path) -> None:
    """Not what a link leads to: it would be brought, and the link removed."""
    (tmp_path / "warc" / "a.warc.gz").mkdir(parents=True)
    (tmp_path / "elsewhere").touch()
    (tmp_path / "warc" / "b.warc.gz").symlink_to(tmp_path / "elsewhere")
    assert bundles(tmp_path) == []


def test_no_folder_is_no_file(tmp_path: Path) -> None:
    assert bundles(tmp_path / "none") == []
