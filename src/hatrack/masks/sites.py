"""From the books of the walk to the unit map: units numbered site by site, and everything in those numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from hatrack.masks.placement import Placement
from hatrack.masks.recorder import UNUSED, Recorder
from hatrack.masks.union_find import ALWAYS_ON, UnionFind, compact
from hatrack.masks.unitmap import OFF, ON, Read, Site, UnitMap, Use


def unit_map(recorder: Recorder, placement: Placement, features: Tensor) -> UnitMap:
    parameter_gates = recorder.settle()
    unions = recorder.unions
    number, sites = _number(unions, placement.readers)

    def renumber(ids: Tensor) -> Tensor:
        return number[unions.roots(ids)]

    reads: list[Read] = []
    for module, calls in placement.gated_modules().items():
        found = [Read(compact(renumber(ids)), module) for ids in calls]
        reads += found if any(bool((read.units != ON).any()) for read in found) else []  # all of its calls, or none
    for name, gates in parameter_gates.items():
        patterns = [compact(renumber(ids)) for ids in gates]
        reads += [Read(units, parameter=name) for units in patterns if bool((units != ON).any())]
    uses = {
        name: [
            Use(tuple(torch.where(ids == UNUSED, OFF, renumber(ids.clamp_min(ALWAYS_ON))) for ids in use.units))
            for use in found
        ]
        for name, found in recorder.uses.items()
    }
    return UnitMap(
        size=sum(site.size for site in sites),
        sites=sites,
        uses=uses,
        shapes=recorder.shapes,
        reads=reads,
        features=renumber(features),
        norms=recorder.norms,
        statistics={layer: renumber(ids) for layer, ids in recorder.statistics.items()},
        notes=list(dict.fromkeys(recorder.notes)),
    )


def _number(unions: UnionFind, readers: list[tuple[Tensor, str]]) -> tuple[Tensor, list[Site]]:
    """Number the units site by site; a site is a connected set of births (layers whose units became one)."""
    births = unions.births
    roots = unions.roots(unions.everything())
    total = len(roots)
    of_birth = torch.zeros(total, dtype=torch.long)
    for i, (_, first, count) in enumerate(births, start=1):
        of_birth[first : first + count] = i
    live = roots != ALWAYS_ON
    joined = UnionFind()
    joined.fresh("", len(births))
    joined.merge(of_birth[live], of_birth[roots[live]])
    group = joined.roots(of_birth)
    number = torch.full((total,), ON)
    read = [(unions.live(ids), name) for ids, name in readers]
    sites: list[Site] = []
    size = 0
    for g in group[live].unique().tolist():
        units = (roots[live & (group == g)]).unique()
        number[units] = torch.arange(size, size + len(units))
        writers = tuple(dict.fromkeys(births[i - 1][0] for i in of_birth[live & (group == g)].unique().tolist()))
        read_by = tuple(dict.fromkeys(name for ids, name in read if bool(torch.isin(ids, units).any())))
        taken = sum(site.name.partition("#")[0] == writers[0] for site in sites)  # by a layer that is called twice
        name = f"{writers[0]}#{taken + 1}" if taken else writers[0]
        sites.append(Site(name, size, len(units), writers, read_by))
        size += len(units)
    return number, sites
