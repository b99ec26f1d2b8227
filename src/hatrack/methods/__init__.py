"""All methods by the name that `--method` takes."""

from __future__ import annotations

import dataclasses
from typing import Any

from hatrack.errors import HatrackError, one_line
from hatrack.methods.agem import AGEM
from hatrack.methods.base import Method
from hatrack.methods.cat import CAT
from hatrack.methods.den import DEN
from hatrack.methods.derpp import DERPP
from hatrack.methods.ewc import EWC
from hatrack.methods.ewc_gi import EWCGI
from hatrack.methods.finetune_copy import FinetuneCopy
from hatrack.methods.fisher_mask import FisherMask
from hatrack.methods.fisher_mask_ewc import FisherMaskEWC
from hatrack.methods.hat import HAT
from hatrack.methods.hpg import HPG
from hatrack.methods.hyper import hyperparameters
from hatrack.methods.imm_mean import IMMMean
from hatrack.methods.imm_mode import IMMMode
from hatrack.methods.joint import Joint
from hatrack.methods.lfl import LFL
from hatrack.methods.lwf import LWF
from hatrack.methods.one import One
from hatrack.methods.online_ewc import OnlineEWC
from hatrack.methods.packnet import PackNet
from hatrack.methods.pathnet import PathNet
from hatrack.methods.pmask import PMask
from hatrack.methods.pnn import PNN
from hatrack.methods.random import Random
from hatrack.methods.replay import Replay
from hatrack.methods.replay_all import ReplayAll
from hatrack.methods.sgd import SGD
from hatrack.methods.sgd_frozen import SGDFrozen
from hatrack.methods.sgd_restart import SGDRestart
from hatrack.methods.si import SI
from hatrack.methods.spg import SPG
from hatrack.methods.spg_fi import SPGFisher
from hatrack.methods.supsup import SupSup
from hatrack.methods.tag import TAG
from hatrack.methods.ucl import UCL
from hatrack.methods.wsn import WSN
from hatrack.registry import Registry

_FACTS = ("name", "family", "source", "summary", "stores")


def _method(found: Any, name: str, where: str) -> type[Method]:
    """Return a class that fits: a Method that says what it is, has a name of its own and can be made."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise HatrackError(f"{where} must be a class that subclasses hatrack.methods.base.Method, got {found!r:.99}.")
    for fact in _FACTS:
        if not isinstance(getattr(found, fact, None), str):
            raise HatrackError(f"{where} does not say its {fact}; write {fact}: ClassVar[str] = … in the class.")
    if ":" not in name and found.name != name:
        raise HatrackError(f"{where} calls itself {found.name!r}; offer it under the name that the class has.")
    if found.name in METHODS.own:
        raise HatrackError(f"{where} calls itself {found.name!r}, which is hatrack's own; give the class another name.")
    for key, value in vars(found).items():
        if isinstance(value, dataclasses.Field):
            raise HatrackError(f"{where}: {key!r} is a setting only of a dataclass; write @dataclass above the class.")
    try:
        for key, setting in hyperparameters(found).items():
            if not isinstance(setting.type, type):
                raise HatrackError(f"setting {key!r} must be of one type, such as float, got {setting.type}.")
        found()
    except Exception as error:
        raise HatrackError(f"{where} cannot be made with its defaults ({one_line(error)}).") from error
    return found


METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        m.name: m
        for m in (
            AGEM,
            CAT,
            DEN,
            DERPP,
            EWC,
            EWCGI,
            FinetuneCopy,
            FisherMask,
            FisherMaskEWC,
            HAT,
            HPG,
            IMMMean,
            IMMMode,
            Joint,
            LFL,
            LWF,
            One,
            OnlineEWC,
            PackNet,
            PathNet,
            PMask,
            PNN,
            Random,
            Replay,
            ReplayAll,
            SGD,
            SGDFrozen,
            SGDRestart,
            SI,
            SPG,
            SPGFisher,
            SupSup,
            TAG,
            UCL,
            WSN,
        )
    },
    _method,
)
