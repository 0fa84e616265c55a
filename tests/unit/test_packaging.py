"""What an egg or a wheel must hold beside Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

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
