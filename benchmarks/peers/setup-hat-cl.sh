#!/bin/sh
# Build the virtual environment in which hat-cl runs beside hatrack: benchmarks/peers/.venv-hat-cl.
#
# One requirement is bent: hat-cl asks for a Python before 3.11 and an older timm; only its layers are used here.
set -eu
cd "$(dirname "$0")"
venv=.venv-hat-cl
. ./environment.sh
install --no-deps --ignore-requires-python hat-cl==0.1.1
install numpy scipy pandas
install --no-deps timm
