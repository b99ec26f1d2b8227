"""All methods by the name that `--method` takes."""

from __future__ import annotations

from hatrack.methods.base import Method
from hatrack.methods.hat import HAT
from hatrack.methods.joint import Joint
from hatrack.methods.pmask import PMask
from hatrack.methods.random import Random
from hatrack.methods.sgd import SGD
from hatrack.methods.sgd_frozen import SGDFrozen
from hatrack.methods.sgd_restart import SGDRestart

METHODS: dict[str, type[Method]] = {m.name: m for m in (HAT, Joint, PMask, Random, SGD, SGDFrozen, SGDRestart)}
