"""The line that says what a run is."""

from __future__ import annotations

from hatrack.runs.callback import Plan


def headline(plan: Plan) -> str:
    """Return method, benchmark, net, seed, device and folder; for a resumed run also where it goes on."""
    spec = plan.spec
    what = f"{spec.method} on {spec.benchmark}, net {spec.net}, seed {spec.seed}, {spec.device} → {plan.path}"
    if not plan.resumed:
        return what
    return f"{what} (resumed: {plan.finished} of {len(plan.names)} tasks were finished)"
