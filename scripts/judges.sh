#!/bin/sh
# Make .venv-judges, with the Python of .venv, for judges that cannot live beside our packages.
set -eu
cd "$(dirname "$0")/.."

.venv-judges/bin/python -c '' 2>/dev/null ||
    .venv/bin/python -m venv --clear --without-pip .venv-judges
echo "Installing requirements-judges.txt into .venv-judges, once" >&2
.venv/bin/python -m pip --python .venv-judges/bin/python install --quiet \
    --disable-pip-version-check --no-compile -r requirements-judges.txt
