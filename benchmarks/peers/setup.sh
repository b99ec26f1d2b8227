#!/bin/sh
# Build the virtual environment in which Avalanche runs beside hatrack: benchmarks/peers/.venv-avalanche.
#
# Two requirements are bent, and named beside the figures. avalanche-lib goes in without its own list, because
# qpsolvers[open_source_solvers] pulls some fifteen solvers and jax; quadprog alone takes their place. torchvision's
# compiled operators do not load beside this torch; torchvision_operators.py declares the two that its import asks for.
set -eu
cd "$(dirname "$0")"
venv=.venv-avalanche
. ./environment.sh
install --no-deps avalanche-lib==0.6.0
install --constraint avalanche-constraints.txt \
    psutil gputil scikit-learn matplotlib pytorchcv wandb tensorboard tqdm torchvision torchmetrics gdown \
    qpsolvers quadprog dill packaging typing-extensions
touch "$venv/.ready"
