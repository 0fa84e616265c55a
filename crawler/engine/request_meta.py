"""What this crawler keeps in the meta of Scrapy's requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LEASE: Final = "lease"
"""The only key of this crawler in `request.meta`. Copies of a request have it too, so it does not
say which lease a request has: see `Lives.of`."""

# `meta=response.meta` in a callback copies these keys to another request.
_OF_ONE_FETCH: Final = frozenset(
    {LEASE, "download_slot", "download_latency", "verbatim_url", "redirect_times"}
)


def own_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copied *meta* without the keys of the fetch that it was copied from."""
    return {key: value for key, value in meta.items() if key not in _OF_ONE_FETCH}
