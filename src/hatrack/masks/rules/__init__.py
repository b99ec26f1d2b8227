"""How operators treat units, one file a kind."""

from hatrack.masks.rules import keep, layers, norms, products, recurrent, reduce
from hatrack.masks.rules.registry import RULES, Call, Rule, bind, constant, flat

KINDS = (keep, reduce, layers, products, norms, recurrent)  # importing them fills RULES

__all__ = ["KINDS", "RULES", "Call", "Rule", "bind", "constant", "flat"]
