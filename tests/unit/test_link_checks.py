"""What is asked of an external link, and what its answer says of it."""

from __future__ import annotations

import pytest

from crawler.model.types import Answer, Candidate, HostKey, Outcome
from crawler.policy.link_checks import ExternalResult, is_asked_again, method_of, result_of

FIRST = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example")
SECOND = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example", attempts=1)


@pytest.mark.parametrize(
    ("answer", "is_again"),
    [
        pytest.param(Answer(0.1, 200), False, id="it is there"),
        pytest.param(Answer(0.1, 301), False, id="it has moved"),
        *(pytest.param(Answer(0.1, status), False, id=str(status)) for status in (401, 410)),
        *(
            pytest.param(Answer(0.1, status), True, id=f"{status}, perhaps to HEAD only")
            for status in (400, 403, 404, 405, 429, 500, 501, 503, 999)
        ),
        pytest.param(Answer(0.1, error="disconnect"), True, id="no answer"),
        pytest.param(Answer(0.1, 200, "challenge"), True, id="a challenge"),
    ],
)
def test_a_get_follows_a_head_that_says_little_and_nothing_follows_a_get(
    answer: Answer, is_again: bool
) -> None:
    assert (method_of(FIRST), method_of(SECOND)) == ("HEAD", "GET")
    assert is_asked_again(FIRST, answer) is is_again
    assert not is_asked_again(SECOND, answer)


def outcome(fate: str = "done", status: int | None = None, **more: str) -> Outcome:
    return Outcome(1.0, "http://a.example/", "a.example", fate, status, **more)  # type: ignore[arg-type]  # all of these are texts


@pytest.mark.parametrize(
    ("found", "error", "result"),
    [
        pytest.param(outcome(status=200), "", "ok", id="it is there"),
        pytest.param(outcome(status=304), "", "ok", id="any answer below 400"),
        pytest.param(outcome("moved", 301, target="http://b/"), "", "moved", id="a redirect"),
        pytest.param(outcome(status=301, target="http://b/"), "", "moved", id="not followed"),
        pytest.param(outcome(status=301), "", "broken", id="a redirect to nowhere"),
        pytest.param(outcome("dead", 302, failure="redirects"), "", "broken", id="without end"),
        *(
            pytest.param(outcome(status=status), "", "broken", id=str(status))
            for status in (400, 404, 410, 500, 503)
        ),
        *(
            pytest.param(outcome(status=status), "", "unknown", id=str(status))
            for status in (401, 403, 407, 429, 451, 999)
        ),
        pytest.param(outcome(status=200), "challenge", "unknown", id="a challenge"),
        pytest.param(outcome("dead", failure="dns"), "", "broken", id="no such name"),
        pytest.param(
            outcome("dead", failure="robots_unreachable", reason="robots.txt unreachable: connect"),
            "",
            "broken",
            id="nobody there, not even for a robots.txt",
        ),
        pytest.param(
            outcome("dead", failure="robots_unreachable", reason="robots.txt unreachable: 503"),
            "",
            "unknown",
            id="a robots.txt in trouble",
        ),
        pytest.param(outcome(reason="robots.txt: line 2"), "", "unknown", id="robots.txt"),
        pytest.param(outcome("refused"), "", "unknown", id="a rule"),
        pytest.param(outcome("retry", 404), "", "unknown", id="not over"),
    ],
)
def test_the_result(found: Outcome, error: str, result: str) -> None:
    assert result_of(found, error) is ExternalResult(result)
