"""HAT's mixture: eight image sets as eight tasks, in an order shuffled by the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hatrack.data.image_set import load
from hatrack.data.locate import Folder
from hatrack.data.rows import hold_out_as_hat, shuffled
from hatrack.data.sets import SETS
from hatrack.data.split import tasks_of
from hatrack.data.task import Task
from hatrack.errors import HatrackError, unknown

# The published numbering, on which the order of a seed rests.
MEMBERS = ("cifar10", "cifar100", "mnist", "svhn", "fashion_mnist", "gtsrb", "facescrub", "notmnist")
SIDE = 32
VALID = 0.15


def mixture(
    seed: int,
    data: Folder = None,
    without: str | Sequence[str] = (),
    replace: str | Mapping[str, str] | None = None,
) -> list[Task]:
    """Return the eight sets as 32×32×3 tasks; 28×28 grey pictures are zero-padded by 2 and repeated thrice.

    `without` leaves members out ("facescrub,svhn" or a list); `replace` puts another set in a member's place
    ("facescrub=yale_faces" or a mapping), unless that member is left out. The other members keep their order, and every
    task's notes say what was changed.
    """
    left_out = names_in(without)
    stand_ins = _pairs(replace)
    for member in (*left_out, *stand_ins):
        if member not in MEMBERS:
            raise unknown("member of mixture", member, MEMBERS)
    for stand_in in stand_ins.values():
        if stand_in not in SETS:
            raise unknown("set", stand_in, SETS)
    kept = [MEMBERS[position] for position in shuffled(len(MEMBERS), seed) if MEMBERS[position] not in left_out]
    used = [stand_ins.get(member, member) for member in kept]
    if not used or len(set(used)) < len(used):
        raise HatrackError(f"mixture needs at least one set and no set twice, got {', '.join(used) or 'none'}.")
    notes = [f"mixture without {member}" for member in left_out]
    notes += [f"mixture with {stand_in} in place of {m}" for m, stand_in in stand_ins.items() if m in kept]
    return [_task(member, stand_ins.get(member), seed, data, notes) for member in kept]


def _task(member: str, stand_in: str | None, seed: int, data: Folder, notes: Sequence[str]) -> Task:
    try:
        pictures = load(stand_in or member, data, side=SIDE).rgb()
    except HatrackError as error:
        raise HatrackError(
            f"{error} Or leave it out (without={member}), or put another set in its place "
            f"(replace={member}=yale_faces)."
        ) from error
    name = member if stand_in is None else f"{stand_in} (for {member})"
    classes = range(len(pictures.names))
    return tasks_of(pictures, [classes], [name], lambda rows, _: hold_out_as_hat(rows, VALID, seed), notes)[0]


def names_in(given: str | Sequence[str]) -> list[str]:
    """Return the names in a list, or in a text where commas part them."""
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else list(given)


def _pairs(given: str | Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(given, str):
        return dict(given or {})
    pairs = {}
    for item in names_in(given):
        member, sign, stand_in = (part.strip() for part in item.partition("="))
        if not (member and sign and stand_in):
            raise HatrackError(f"replace takes member=set, such as facescrub=yale_faces, got {item!r}.")
        pairs[member] = stand_in
    return pairs
