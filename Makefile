PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PUBLIC := .venv-public
LOOPS := .venv-loops
LOGGERS := .venv-loggers
# torch first and alone: a later package must not pull another build of it.
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)

.PHONY: run test test-slow test-public test-loops test-loggers test-storm check bench clean

$(BIN)/hatrack: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hatrack needs Python 3.11 or newer; try: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(BIN)/hatrack
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

run: $(BIN)/hatrack
	$(BIN)/hatrack run

# Two processes with a thread each: the tests are many and small.
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist worksteal

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

# Commands killed at random moments, continued, compared; about 40 minutes on two cores.
test-storm: $(VENV)/.dev
	$(BIN)/python -m tests.storm --kills 300 --seed 7 --jobs 2

# Networks that nobody here wrote: their packages in an environment of their own.
$(PUBLIC)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PUBLIC)
	$(PUBLIC)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(PUBLIC)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . timm transformers peft vit-pytorch x-transformers pytest
	touch $@

# `make test-public ONLY="timm/vit Llama"` tries some of them, by parts of their names, and writes no page.
test-public: $(PUBLIC)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(PUBLIC)/bin/python -m public $(or $(ONLY),--page docs/results/networks.md)
	$(if $(ONLY),,OMP_NUM_THREADS=1 $(PUBLIC)/bin/python -m pytest tests/public/test_learned.py)

# The loops of docs/loops.md, with the real packages.
$(LOOPS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LOOPS)
	$(LOOPS)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	$(LOOPS)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . pytest lightning transformers accelerate
	touch $@

test-loops: $(LOOPS)/.ready
	$(LOOPS)/bin/python -m pytest tests/test_loops.py

# Loggers with the tools that they write for; trackio takes an older Pillow than the one that is tried here.
$(LOGGERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LOGGERS)
	$(LOGGERS)/bin/pip install --quiet --disable-pip-version-check $(TORCH)
	grep -v '^pillow==' constraints.txt > $(LOGGERS)/constraints.txt
	$(LOGGERS)/bin/pip install --quiet --disable-pip-version-check --constraint $(LOGGERS)/constraints.txt --editable '.[tensorboard,mlflow,wandb,trackio]' pytest
	touch $@

test-loggers: $(LOGGERS)/.ready
	OMP_NUM_THREADS=1 $(LOGGERS)/bin/python -m pytest tests/loggers

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(BIN)/hatrack
	$(BIN)/hatrack bench step

clean:
	rm -rf $(VENV) $(PUBLIC) $(LOOPS) $(LOGGERS) .pytest_cache .mypy_cache .ruff_cache
