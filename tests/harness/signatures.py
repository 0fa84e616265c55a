"""Verify signed requests and directories with other people's software: http-message-signatures of
PyPI, and web-bot-auth of npm.

Rule: nothing of ours verifies them. A key is what a directory says, read as JSON.
"""

from __future__ import annotations

import json
import subprocess
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
    algorithms,
)

from tests.harness.sources import PROJECT

# RFC 9421, B.1.4, and the examples with it in draft-ietf-webbotauth-httpsig-protocol.
DRAFT_SECRET: Final = "n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"  # noqa: S105  # published
DRAFT_THUMBPRINT: Final = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"
DRAFT_CREATED: Final = 1735689600
DRAFT_EXPIRES: Final = 4889289600
DRAFT_NONCE: Final = (
    "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="
)
DRAFT_REQUEST: Final = (
    "RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg=="
)
DRAFT_DIRECTORY: Final = (
    b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"'
    b',"x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}'
)
DRAFT_DIGEST: Final = "CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0="
DRAFT_DIRECTORY_SIGNATURE: Final = (
    "l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg=="
)

JUDGES: Final = PROJECT / ".venv-judges"
NAMES: Final = ("signature-agent", "signature-input", "signature")


@dataclass
class SignedRequest:
    """A request, as the judge of PyPI takes it."""

    url: str
    headers: dict[str, str]
    method: str = "GET"


@dataclass
class SignedAnswer:
    """An answer, as that takes it."""

    request: SignedRequest
    headers: dict[str, str]
    status_code: int = 200


@dataclass(frozen=True)
class Published(HTTPSignatureKeyResolver):
    """The keys of a directory."""

    directory: bytes
    keys: Mapping[str, Ed25519PublicKey] = field(init=False)

    def __post_init__(self) -> None:
        keys = {
            key["kid"]: Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(key["x"] + "="))
            for key in json.loads(self.directory)["keys"]
        }
        object.__setattr__(self, "keys", keys)

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey | None:
        return self.keys.get(key_id)


def signature_fields(fields: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return those of *fields* that sign a request, by names in lower case. None may be there
    twice."""
    found = [(name.lower(), value) for name, value in fields if name.lower() in NAMES]
    assert len(dict(found)) == len(found), found
    return dict(found)


class SignatureJudge:
    """Verifies what a site has signed, by the keys of its *directory*."""

    def __init__(self, directory: bytes, label: str = "g") -> None:
        self._agent = f'"signature-agent";key="{label}"'
        self._verifier = HTTPMessageVerifier(
            signature_algorithm=algorithms.ED25519, key_resolver=Published(directory)
        )

    def is_valid(self, url: str, headers: dict[str, str]) -> bool:
        """Return whether a request for *url* is signed as Web Bot Auth wants it."""
        return self._accepts(
            SignedRequest(url, headers), "web-bot-auth", ("@authority", self._agent)
        )

    def is_valid_directory(self, url: str, headers: dict[str, str], body: bytes) -> bool:
        answer = SignedAnswer(SignedRequest(url, {}), headers)
        components = ('"@authority";req', "content-digest")
        return self._accepts(answer, "http-message-signatures-directory", components, body)

    def _accepts(self, message: Any, tag: str, components: Any, body: bytes | None = None) -> bool:
        try:
            results = self._verifier.verify(
                message,
                max_age=None,
                expect_tag=tag,
                require_components=components,
                body=body,
            )
        except InvalidSignature:
            return False
        return len(results) == 1


_OF_NPM: Final = """
import { verify } from "web-bot-auth";
import { verifierFromJWK } from "web-bot-auth/crypto";
import { readFileSync } from "node:fs";
const { url, headers, jwk } = JSON.parse(readFileSync(0));
await verify({ method: "GET", url, headers }, await verifierFromJWK(jwk));
console.log("valid");
"""


def is_valid_by_npm(url: str, headers: dict[str, str], directory: bytes) -> bool:
    """Return whether web-bot-auth accepts a request. It knows no members of dictionaries, and takes
    a field as a whole: it is given the member alone."""
    assert (JUDGES / "node_modules").exists(), "needs web-bot-auth: sh scripts/judges.sh has it"
    member = headers["signature-agent"].partition("=")[2]
    asked = {
        "url": url,
        "headers": {**headers, "signature-agent": member},
        "jwk": json.loads(directory)["keys"][0],
    }
    done = subprocess.run(
        ["node", "--input-type=module", "-e", _OF_NPM],
        cwd=JUDGES,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "valid\n" or "invalid signature" in done.stderr, done.stderr
    return done.stdout == "valid\n"
