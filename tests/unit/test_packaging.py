"""What an egg, a wheel and a source distribution must hold."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from crawler.model.types import VERSION

PROJECT = Path(__file__).parents[2]


def test_every_file_that_is_no_python_is_declared_as_package_data() -> None:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        package_data = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    belongs = {
        path
        for package, patterns in package_data.items()
        for pattern in patterns
        for path in PROJECT.joinpath(*package.split(".")).glob(pattern)
    }
    found = {
        path
        for path in (PROJECT / "crawler").rglob("*")
        if "__pycache__" not in path.parts  # where numba keeps what it compiled
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert found == belongs


def test_the_version_to_cite_is_the_present_one() -> None:
    assert f"\nversion: {VERSION}\n" in (PROJECT / "CITATION.cff").read_text(encoding="utf-8")


def test_a_source_distribution_holds_what_its_tests_need(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    command += ["sdist", "--formats", "tar", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar")
    with tarfile.open(archive) as packed:
        held = {Path(*Path(name).parts[1:]) for name in packed.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, check=False, capture_output=True, text=True
    )
    tracked = set(map(Path, filter(None, listed.stdout.split("\0"))))  # none outside a checkout
    needed = tracked or {path.relative_to(PROJECT) for path in (PROJECT / "tests").rglob("*.py")}
    assert needed - {Path(".git-blame-ignore-revs")} <= held
    assert not [path for path in held if path.suffix in (".pyc", ".nbi", ".nbc")]
