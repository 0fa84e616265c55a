"""The Signature Agent Card: what is published of the crawler, for programs.

Its members are those of draft-meunier-webbotauth-registry. All but the purpose are made from the
settings, so that `identity check` finds what is no longer true of a published card.
"""

from __future__ import annotations

from typing import Any, Final

from crawler.config.settings import Config, IdentitySettings, PolitenessSettings
from crawler.engine.web_bot_auth import DIRECTORY_PATH
from crawler.model.choices import PreferenceFiles

CARD_PATH: Final = "/.well-known/signature-agent-card"
_LEAST_REST_S: Final = 0.01  # of a rate that can be written, where the settings allow none


def agent_card(config: Config, origin: str, purpose: str = "") -> dict[str, Any]:
    """Return the card that is published at *origin*. *purpose*: in the words of the user."""
    identity = config.identity
    has_all = config.preferences.files is PreferenceFiles.ALL
    known = ["/robots.txt", *(["/.well-known/tdmrep.json"] if has_all else [])]
    card: dict[str, Any] = {
        "client_id": origin + CARD_PATH,
        "client_name": identity.user_agent_name,
        "contacts": [contact_url(identity)],
        "jwks_uri": origin + DIRECTORY_PATH,
        "web_bot_auth": {
            "expected-user-agent": identity.user_agent,
            "rfc9309-product-token": identity.user_agent_name,
            "rfc9309-compliance": ["User-Agent", "Allow", "Disallow", "Crawl-delay"],
            "trigger": "crawler",
            "rate-control": "429, 503 and Retry-After; Crawl-delay in robots.txt",
            "rate-expectation": _rates(config.politeness),
            "known-urls": known,
        },
    }
    if identity.mailbox is None:
        card["client_uri"] = identity.contact
    if purpose:
        card["web_bot_auth"]["purpose"] = purpose
    return card


def contact_url(identity: IdentitySettings) -> str:
    """Return the contact as a URL."""
    return f"mailto:{identity.mailbox}" if identity.mailbox else identity.contact


def _rates(politeness: PolitenessSettings) -> str:
    """Return how often one host is asked at first, and at most where its server stays fast."""
    first = 1.0 / max(politeness.min_delay_s, _LEAST_REST_S)
    most = politeness.paced_connections / max(politeness.paced_min_delay_s, _LEAST_REST_S)
    return f"avg={first:.3g}rps;max={max(first, most):.3g}rps"
