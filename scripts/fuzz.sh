#!/bin/sh
# Property tests with new examples, round after round, until MINUTES are over or one fails. What
# failed is kept in .hypothesis: the next call tries it first.
set -eu
cd "$(dirname "$0")/.."

over=$(($(date +%s) + 60 * $1))
files=$(grep -rlE --include='test_*.py' '@given\(|RuleBasedStateMachine' tests)
while [ "$(date +%s)" -lt "$over" ]; do
    # shellcheck disable=SC2086  # a list of files
    .venv/bin/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile=fuzz $files
done
