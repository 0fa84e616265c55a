#!/bin/sh
# Build wheel and sdist into dist/ and check both: their metadata, what is in the wheel, an
# installation of it in an empty environment, and every test, from the unpacked sdist.
# Usage: release.sh PYTHON HOME_URL      HOME_URL: where the project is published; needed for an upload
set -eu
cd "$(dirname "$0")/.."

if [ -n "$(git status --porcelain)" ]; then
    echo 'There are changes that are not committed: a release is made of a commit' >&2
    exit 1
fi
python=${1:-python3}
[ -n "$2" ] || echo 'Without HOME_URL=https://... the metadata names no source, documentation or issues' >&2
export GOSSAMER_HOME_URL="$2"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
"$python" -m venv "$work/tools"
tools=$work/tools/bin
"$tools/python" -m pip install --quiet --disable-pip-version-check -r requirements-release.txt

version=$(sed -n 's/^VERSION: Final = "\(.*\)"/\1/p' crawler/model/types.py)
"$tools/cffconvert" --validate
grep -qx "version: $version" CITATION.cff || { echo "CITATION.cff has another version than $version" >&2; exit 1; }

# The wheel is built from the sdist, so that one that lacks something is found.
"$tools/python" -m build --outdir "$work/dist" . >"$work/log" 2>&1 || { tail -30 "$work/log" >&2; exit 1; }
"$tools/twine" check --strict "$work"/dist/*
"$tools/check-wheel-contents" "$work"/dist/*.whl

"$python" -m venv "$work/installed"
"$work/installed/bin/python" -m pip install --quiet --disable-pip-version-check "$work"/dist/*.whl
(cd "$work" && "$work/installed/bin/gossamer" --version && "$work/installed/bin/gossamer" init >/dev/null)

mkdir "$work/sdist"
tar -xzf "$work"/dist/*.tar.gz -C "$work/sdist" --strip-components 1
env -u GOSSAMER_HOME_URL make -C "$work/sdist" test

mkdir -p dist
cp "$work"/dist/* dist/
echo "dist/ has version $version. Tag and upload it:"
echo "    git tag -a v$version -m 'Gossamer $version' && git push origin v$version"
echo "    python -m twine upload dist/*-$version*"
