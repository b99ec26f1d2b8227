"""All methods by the name that `--method` takes."""

from __future__ import annotations

from hatrack.methods.agem import AGEM
from hatrack.methods.base import Method
from hatrack.methods.cat import CAT
from hatrack.methods.den import DEN
from hatrack.methods.ewc import EWC
from hatrack.methods.ewc_gi import EWCGI
from hatrack.methods.finetune_copy import FinetuneCopy
from hatrack.methods.fisher_mask import FisherMask
from hatrack.methods.fisher_mask_ewc import FisherMaskEWC
from hatrack.methods.hat import HAT
from hatrack.methods.hpg import HPG
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

METHODS: dict[str, type[Method]] = {
    m.name: m
    for m in (
        AGEM,
        CAT,
        DEN,
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
}
