#!/bin/sh
# Build the virtual environment in which hat-cl runs beside hatrack: benchmarks/peers/.venv-hat-cl.
#
# One requirement is bent: hat-cl asks for a Python before 3.11 and an older timm; only its layers are used here.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
venv=.venv-hat-cl

"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' avalanche-constraints.txt)"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --ignore-requires-python hat-cl==0.1.1
"$venv/bin/pip" install --quiet --disable-pip-version-check numpy scipy pandas
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps timm
