#!/bin/sh
# Build the virtual environment in which CLArena runs beside hatrack: benchmarks/peers/.venv-clarena.
#
# No requirement is bent: everything that CLArena asks for goes in, at the versions of Avalanche's environment where
# both name a package. torchvision's compiled operators do not load beside this torch, and its import raises; the sides
# declare the two that it asks for by torch.library.define (clarena_side.py). Nothing here calls them.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
venv=.venv-clarena

"$python" -m venv "$venv"
# torch first and alone: a later package must not pull another build of it.
"$venv/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' avalanche-constraints.txt)"
"$venv/bin/pip" install --quiet --disable-pip-version-check --constraint avalanche-constraints.txt clarena==1.1.0
