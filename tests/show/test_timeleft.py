from __future__ import annotations

from hatrack.show.timeleft import TimeLeft


def test_the_bound_by_hand() -> None:
    now = [0.0]
    left = TimeLeft(work=[100, 200], epochs=3, clock=lambda: now[0])
    now[0] = 2.0  # one epoch of 100 samples took 2 s: 0.02 s a sample; 2·100 + 3·200 = 800 samples are left
    assert left.after(0, 1) == 16.0
    now[0] = 3.0  # 200 samples in 3 s, 700 left
    assert left.after(0, 2) == 10.5
    now[0] = 5.0  # the first task stopped early: 400 samples in 5 s, 2·200 left
    assert left.after(1, 1) == 5.0
    assert left.elapsed() == 5.0
