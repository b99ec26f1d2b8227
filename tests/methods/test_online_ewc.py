"""Online EWC: the decaying sum of Fishers, and its penalty, by hand."""

from __future__ import annotations

from tiny import arrays, as_arrays, batch, begin, close, feed, fisher, gradient, held, samples
from tiny import model as new_model

from hatrack.methods.online_ewc import OnlineEWC


def test_fisher_decays_and_adds_up() -> None:
    method, model = OnlineEWC(lam=40.0, gamma=0.8), new_model(heads=(3, 3, 3))
    method.attach(model)
    running: dict = {}
    for task in range(3):
        x, y = samples(task, n=45)
        begin(method, task, x, y).step(batch(x[:8], y[:8]))
        method.end_task(feed(x, y, task))
        new = fisher(arrays(model, task), x, y)
        running = {n: 0.8 * running[n] + f for n, f in new.items()} if running else new
        close(as_arrays(method.anchor.weights), running)


def test_the_penalty_weighs_the_old_fisher_by_gamma() -> None:
    method, model = OnlineEWC(lam=40.0, gamma=0.8, lr=0.05), new_model(heads=(3, 3))
    method.attach(model)
    x, y = samples(0)
    begin(method, 0, x, y)
    method.end_task(feed(x, y))
    anchor, fish = arrays(model), as_arrays(method.anchor.weights)
    stepper, p = begin(method, 1, *samples(1)), arrays(model, 1)
    x, y = samples(2, n=8)
    for _ in range(4):
        stepper.step(batch(x, y))
        g = gradient(p, x, y)
        for name, f in fish.items():
            g[name] = held(g[name], 40.0 * 0.8 * f, p[name] - anchor[name], 0.05)
        p = {name: v - 0.05 * g[name] for name, v in p.items()}
    close(arrays(model, 1), p, rtol=1e-8)
