"""How operators treat units, one file a kind."""

from hatrack.masks.rules import keep, layers, matmul, norms, recurrent, reduce
from hatrack.masks.rules.rule import RULES, Call, Rule, bind, constant

KINDS = (keep, reduce, layers, matmul, norms, recurrent)  # importing them fills RULES

__all__ = ["KINDS", "RULES", "Call", "Rule", "bind", "constant"]
