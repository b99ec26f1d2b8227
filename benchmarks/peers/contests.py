"""Which methods meet, and from which settings each side may choose: as many for one as for the other.

Weights of penalties are chosen from five values a factor of ten apart (EWC, LwF: a factor of about three). The two
sides count them in different units (see the notes in table.py), so each has its own range, placed by a first scan of
seed 0's validation accuracy. Everything else is the method's default on its side, or the same on both.
"""

from __future__ import annotations

from protocol import Contest, Side

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
DISTILLATION = (0.1, 0.3, 1.0, 3.0, 10.0)
_SI = Side("si", knobs=("c",), candidates=(0.1, 1.0, 10.0, 100.0, 1000.0))

CONTESTS = (
    Contest(Side("sgd"), Side("Naive")),
    Contest(
        Side("ewc", {"merge": "each"}, knobs=("lam",), candidates=(1e5, 3e5, 1e6, 3e6, 1e7)),
        Side("EWC", knobs=("ewc_lambda",), candidates=(1e5, 3e5, 1e6, 3e6, 1e7)),
    ),
    Contest(_SI, Side("SI", knobs=("si_lambda",), candidates=(1.0, 10.0, 100.0, 1000.0, 10_000.0))),
    Contest(_SI, Side("SI as released", {"si_lambda": 100.0})),  # any value: on a CPU it has no effect
    Contest(
        Side("lwf", {"temperature": 2.0}, knobs=("lam",), candidates=DISTILLATION),
        Side("LwF", knobs=("alpha",), candidates=DISTILLATION),
    ),
    Contest(
        Side("a-gem", {"per_class": 25, "memory_batch": 256}),
        Side("AGEM", {"patterns_per_experience": 50, "sample_size": 256}),
    ),
    Contest(
        Side("lfl", knobs=("lam",), candidates=(1e-4, 1e-3, 1e-2, 1e-1, 1.0)),
        Side("LFL", knobs=("lambda_e",), candidates=(0.01, 0.1, 1.0, 10.0, 100.0)),
    ),
    Contest(
        Side("packnet", knobs=("prune_first", "prune"), candidates=SHARES),
        Side("PackNet", knobs=("prune_proportion",), candidates=SHARES),
    ),
)
