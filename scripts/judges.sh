#!/bin/sh
# Make .venv-judges, with the Python of .venv, for judges that cannot live beside our packages.
set -eu
cd "$(dirname "$0")/.."

.venv-judges/bin/python -c '' 2>/dev/null ||
    .venv/bin/python -m venv --clear --without-pip .venv-judges
echo "Installing requirements-judges.txt into .venv-judges, once" >&2
.venv/bin/python -m pip --python .venv-judges/bin/python install --quiet \
    --disable-pip-version-check --no-compile -r requirements-judges.txt

# The judge of signed requests is of npm: its test is skipped where there is no Node.js.
if command -v npm >/dev/null; then
    npm install --prefix .venv-judges --no-save --no-fund --no-audit --ignore-scripts --silent \
        web-bot-auth@0.1.3
fi
