#!/bin/sh
# Build the virtual environment in which CLArena runs beside hatrack: benchmarks/peers/.venv-clarena.
#
# No requirement is bent: everything that CLArena asks for goes in, at the versions of Avalanche's environment where
# both name a package. torchvision's compiled operators do not load beside this torch, and its import raises; the sides
# declare the two that it asks for by torch.library.define (torchvision_operators.py). Nothing here calls them.
set -eu
cd "$(dirname "$0")"
venv=.venv-clarena
. ./environment.sh
install --constraint avalanche-constraints.txt clarena==1.1.0
