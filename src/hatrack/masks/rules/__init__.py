"""How operators treat units, one file a kind."""

from hatrack.masks.rules import elementwise, layers, matmul, normalisation, recurrent, reduce
from hatrack.masks.rules.rule import RULES, Call, Rule, bind, run

KINDS = (elementwise, reduce, layers, matmul, normalisation, recurrent)  # importing them fills RULES

__all__ = ["KINDS", "RULES", "Call", "Rule", "bind", "run"]
