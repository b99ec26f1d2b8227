"""Hats under torch's own DistributedDataParallel, in two processes; a sharded network is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.learn.machine.test_parallel import launch

PROGRAM = """
import os, sys
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
import hatrack
from hatrack.learn.machine.parallel import join, leave
from hatrack.processes import several
from hatrack.targets import Classification

out = sys.argv[1]
several_here = several()
rank, ranks = (int(os.environ["RANK"]), 2) if several_here else (0, 1)
if several_here:
    join(cuda=False)
torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU())
net[1].momentum = 0.0  # its running statistics are of what each process sees
net[1].eval()
hats = hatrack.Hats(net, hatrack.HAT(s_max=50.0, norm="frozen"))
random = torch.Generator().manual_seed(1)
held = []
for name in ("a", "b"):
    hats.begin(name, Classification(3), steps=6)
    optimizer = hats.guard(torch.optim.AdamW(hats.trainable(), lr=0.01, weight_decay=0.1))
    module = DistributedDataParallel(hats, find_unused_parameters=True) if several_here else hats
    for _ in range(18):
        x, y = torch.randn(32, 12, generator=random), torch.randint(0, 3, (32,), generator=random)
        net[1].eval()
        optimizer.zero_grad()
        (cross_entropy(module(x[rank::ranks]), y[rank::ranks]) + hats.penalty()).backward()
        torch.nn.utils.clip_grad_norm_(hats.trainable(), 1.0)
        optimizer.step()
    hats.end()
    probe = torch.randn(9, 12, generator=torch.Generator().manual_seed(7))
    held.append(hats.wear("a")(probe))
assert torch.equal(*held)
assert hats.verify().ok
hats.save(f"{out}/saved-{rank}-{ranks}") if rank == 0 else None
save_file({n: t.contiguous() for n, t in hats.net.state_dict().items()} | {"answers": held[0]}, f"{out}/{rank}-{ranks}")
if several_here:
    from torch.distributed.fsdp import fully_shard
    try:
        sharded = nn.Sequential(nn.Linear(12, 40), nn.ReLU())
        fully_shard(sharded)
        hatrack.Hats(sharded)
    except hatrack.HatrackError as error:
        print("refused:", error, flush=True)
    leave()
    os._exit(0)
"""


def test_two_processes_in_a_loop_of_ones_own_learn_what_one_does(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = launch([str(program), str(tmp_path)], tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert "refused: 0.weight is sharded over processes (fully_shard)" in done.stdout
    alone = [sys.executable, str(program), str(tmp_path)]
    subprocess.run(alone, check=True, cwd=tmp_path, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    first, second, single = (load_file(tmp_path / name) for name in ("0-2", "1-2", "0-1"))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
        torch.testing.assert_close(tensor, single[name], rtol=1e-4, atol=1e-5)
