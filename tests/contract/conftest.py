from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.frontiers import STORES, World


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with request.param(tmp_path) as store:
        yield World(store)
