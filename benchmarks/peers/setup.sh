#!/bin/sh
# Build the virtual environment in which Avalanche runs beside hatrack: benchmarks/peers/.venv-avalanche.
#
# Two requirements are bent, and named beside the figures. avalanche-lib goes in without its own list, because
# qpsolvers[open_source_solvers] pulls some fifteen solvers and jax; quadprog alone takes their place. torchvision's
# compiled operators do not load beside this torch; avalanche_side.py declares the two that its import asks for.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
venv=.venv-avalanche

"$python" -m venv "$venv"
# torch first and alone: a later package must not pull another build of it.
"$venv/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' avalanche-constraints.txt)"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps avalanche-lib==0.6.0
"$venv/bin/pip" install --quiet --disable-pip-version-check --constraint avalanche-constraints.txt \
    psutil gputil scikit-learn matplotlib pytorchcv wandb tensorboard tqdm torchvision torchmetrics gdown \
    qpsolvers quadprog dill packaging typing-extensions
touch "$venv/.ready"
