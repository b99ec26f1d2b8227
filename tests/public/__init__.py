"""Networks that nobody here wrote, from five packages of PyPI, and what becomes of the guarantee on each.

architectures.py (what a row of the tables is) → *_nets.py, by_hand.py (the tables) → catalogue.py (all by name) →
trial.py (one network's trial) → apart.py (each in a process of its own) → page.py (outcomes in words).

    make test-public                                             every one, and docs/results/networks.md
    PYTHONPATH=tests .venv-public/bin/python -m public NAME …    some, by parts of their names
"""
