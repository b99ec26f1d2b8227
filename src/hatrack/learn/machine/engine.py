"""Engines: how the steps of an epoch are carried out.

eager     one operation after the other, as written
compiled  loss, backward, gradient edits, clip and plain SGD's update in one piece of generated code (see compiled.py);
          on a CUDA device the step around it is a CUDA graph as well
graph     the whole step as one CUDA graph: gather, forward, loss, backward, edits, lock, clip, optimiser, clamp,
          running statistics, and the clock that s is taken from, which the graph itself advances

All three do the same arithmetic. What an engine cannot do falls back to the next simpler one, with one line of why.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from hatrack.data.feed import Batch, Feed
from hatrack.errors import EngineWarning, HatrackError, unknown
from hatrack.learn.machine.compiled import Compiled
from hatrack.learn.machine.parallel import process_group
from hatrack.learn.step import Stepper, evaluates, plain
from hatrack.learn.training_state import StepState, training_state

ENGINES = ("auto", "eager", "compiled", "graph")
PAUSE = 32  # steps at a time: enough to keep a device busy while other runs have their turn
WARM = 3  # steps done one by one first: they bring to life what is made lazily (optimiser state, kernels' choices)


def resolve_engine(name: str, device: torch.device) -> str:
    """Return the engine for a name and a device; "auto": graph on CUDA, else eager."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "auto":
        return "graph" if device.type == "cuda" and process_group() is None else "eager"
    if name == "graph" and device.type != "cuda":
        raise HatrackError(f"engine 'graph' needs a CUDA device, got {device}; use 'auto', 'eager' or 'compiled'.")
    return name


class Engine:
    """Carries out epochs of one phase; `name` is eager, compiled or graph.

    `each`: to be called after every step, by which rates change that no recorded step but plain SGD's would know of.
    """

    def __init__(
        self, name: str, stepper: Stepper, feed: Feed, size: int, each: Callable[[], None] | None = None
    ) -> None:
        self.stepper, self.feed, self.size, self._each = stepper, feed, size, each
        self.steps = self.done = self.samples = 0  # of the epoch
        self._batches: Iterator[Batch] | None = None  # of an epoch that is begun eagerly
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._compiled: dict[int, Compiled] = {}
        self._ready: dict[int, Batch] = {}  # where a step that is recorded finds a batch that is not made on the device
        self._done: Counter[int] = Counter()  # steps so far, by batch size
        self._held, self._settings = self._holding(), self._numbers()
        self.name = name
        cuda = stepper.method.model.device.type == "cuda"
        found = [unfit(optimizer, feed, cuda) for optimizer in stepper.optimizers] if name != "eager" else []
        why = next((why for why in found if why is not None), None)
        if why is not None:
            self._fall_back("eager", why)
        self._recorded = cuda and self.name != "eager"
        if self._recorded and each is not None:
            self._follow_steps()
        if self.name != "eager":
            self._lay_out(cuda)

    def _lay_out(self, cuda: bool) -> None:
        """Make the tensors that every epoch is read from."""
        device = self.stepper.method.model.device
        self._order = torch.zeros(len(self.feed), dtype=torch.long, device=device)
        self._within = torch.arange(self.size, device=device)
        # The default stream cannot be recorded; one of several learners has its own already (see side_by_side.py).
        default = cuda and torch.cuda.current_stream(device) == torch.cuda.default_stream(device)
        self._stream = torch.cuda.Stream(device) if default else None
        for group in [group for optimizer in self.stepper.optimizers for group in optimizer.param_groups]:
            if "capturable" in group and cuda:
                group["capturable"] = True  # its step count must live on the device

    def begin_epoch(self, generator: torch.Generator) -> None:
        """Get ready for an epoch in the order that the generator gives."""
        order = self.feed.order(generator)
        self.done, self.samples, self.steps = 0, len(order), self.stepper.begin_epoch(order, self.size)
        if order.rows is not None and self.name != "eager" and len(order) != len(self._order):  # a sampler's choice
            self._order, self._held = torch.zeros_like(order.rows, device=self._order.device), ()
        if self._held != self._holding():  # what was recorded holds on to the old ones
            self._held = self._holding()
            self._graphs.clear()
            self._compiled.clear()
            self._done.clear()
        if self._settings != self._numbers():  # graphs hold rates and momenta as numbers
            self._settings = self._numbers()
            self._graphs.clear()
        self._batches = self.feed.epoch(order, self.size) if self.name == "eager" else None
        if self._batches is None:
            assert order.rows is not None
            self._order.copy_(order.rows)

    def advance(self) -> bool:
        """Carry out the next few steps of the epoch; return whether there were any left."""
        some = range(self.done, min(self.done + PAUSE, self.steps))
        self.done = some.stop
        turn = self.stepper.method.model.turn
        if self._batches is not None:
            for _, batch in zip(some, self._batches, strict=False):
                with turn:
                    self.stepper.step(batch)
                    self.stepper.method.clock.advance()
                    if self._each is not None:
                        self._each()
        else:
            with turn, _On(self._stream):
                for step in some:
                    self._one(min(self.size, self.samples - step * self.size))
        return len(some) > 0

    def _holding(self) -> tuple[object, ...]:
        """Return the lock, and where in memory the tensors are that a step moves: somebody may put others there."""
        method = self.stepper.method
        return method.lock, *(tensor.data_ptr() for tensor in training_state(method).values())

    def _numbers(self) -> list[object]:
        """Return the optimisers' settings, a rate in a tensor as its number."""
        groups = [group for optimizer in self.stepper.optimizers for group in optimizer.param_groups]
        values = [value for group in groups for key, value in group.items() if key != "params"]
        return [float(value) if isinstance(value, Tensor) else value for value in values]

    def _follow_steps(self) -> None:
        """Make steps follow a rate that changes with each of them: plain SGD's can read it from a tensor."""
        if plain(self.stepper.optimizer) and self.stepper.gates is None:
            self.stepper.by_tensor = True
            return
        self._recorded = False
        if self.name == "graph":
            name = type(self.stepper.optimizer).__name__
            self._fall_back("eager", f"the schedule changes the rate with every step, which {name} has as a number")

    def forget_optimizer(self) -> None:
        """Let the optimisers begin anew; recorded steps hold on to what they kept."""
        for optimizer in self.stepper.optimizers:
            optimizer.state.clear()
        self._graphs.clear()
        self._done.clear()

    # ---- one step

    def _one(self, count: int) -> None:
        if not self.feed.recordable:
            self._lay_ready(count)
        graph = self._graphs.get(count)
        if graph is None and self._recorded and self._done[count] >= WARM + (self.name == "compiled"):
            graph = self._record(count)
        if graph is not None:
            graph.replay()
        else:
            self._step(count)
        self._done[count] += 1
        if self._each is not None:
            self._each()

    def _step(self, count: int) -> None:
        if self.name != "compiled" or count < self.size or self._done[count] < WARM - 1:
            self.stepper.step(self._batch(count))
        else:
            self._compiled_step(count)
        self.stepper.method.clock.advance()

    def _batch(self, count: int) -> Batch:
        """Return the batch that the clock points at: gathered, or what lies ready."""
        return self._ready[count] if count in self._ready else self._gathered(count)

    def _gathered(self, count: int) -> Batch:
        rows = self.stepper.method.clock.step * self.size + self._within[:count]
        return self.feed.gather(self._order.index_select(0, rows), training=True)

    def _lay_ready(self, count: int) -> None:
        """Make a batch that cannot be made within a recording, and put it where the recorded step looks for it."""
        batch, place = self._gathered(count), self._ready.get(count)
        given, known = batch.tensors(), () if place is None else place.tensors()
        if [t.shape for t in given] == [t.shape for t in known]:
            for new, old in zip(given, known, strict=True):
                old.copy_(new)
            return
        self._ready[count] = batch
        if place is not None:  # of another shape: what was recorded reads the old one
            self._graphs.pop(count, None)
            self._compiled.pop(count, None)
            self._done[count] = 0

    def _compiled_step(self, count: int) -> None:
        known = self._compiled.get(count)
        before = StepState(self.stepper.method) if known is None else None
        try:
            if known is None:
                known, loss = Compiled.trace(self.stepper, lambda: self._batch(count))
                self._compiled[count] = known
            else:
                loss = known()
        except torch.OutOfMemoryError:  # another way of doing the step would find no more room
            raise
        except Exception as error:  # whatever the compiler stumbles over, the step can be done without it
            why = f"its step cannot be compiled ({type(error).__name__}: {_line(error)})"
            self._fall_back("graph" if self._recorded else "eager", why)
            if before is not None:  # tracing does the step for real, and got to who knows where
                before.restore()
            self.stepper.step(self._batch(count))
        else:
            known.finish(loss)

    def _record(self, count: int, again: bool = False) -> torch.cuda.CUDAGraph | None:
        """Record a step on the current stream without running it."""
        device = self.stepper.method.model.device
        _make_room(device)
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        try:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._step(count)
            except Exception:
                with suppress(Exception):  # a recording that has become invalid cannot be ended in order
                    graph.capture_end()
                raise
            graph.capture_end()
        except torch.OutOfMemoryError:  # while recording, nothing is given back to make room
            _abandon(device, pool)
            if again:
                raise
            torch.cuda.empty_cache()
            return self._record(count, again=True)
        except Exception as error:
            _abandon(device, pool)
            self._recorded = False
            self._say(f"{self.stepper.method.name}'s step cannot be recorded as a CUDA graph ({_line(error)})", "eager")
            return None
        self._graphs[count] = graph
        return graph

    # ---- when an engine cannot do it

    def _fall_back(self, name: str, why: str) -> None:
        self._say(f"engine {self.name!r} cannot be used for {self.stepper.method.name}: {why}", name)
        self.name = name

    def _say(self, what: str, instead: str) -> None:
        warnings.warn(f"{what}; going on with {instead!r}.", EngineWarning, stacklevel=2)


def unfit(optimizer: Optimizer, feed: Feed, cuda: bool) -> str | None:
    """Say why steps with this optimiser on these data cannot be recorded, or None."""
    if process_group() is not None:
        return "several processes work on it"
    if not feed.resident:
        return "its samples come from a Dataset, batch by batch"
    if evaluates(optimizer):
        return f"{type(optimizer).__name__} evaluates the loss as often as it likes"
    if not cuda or type(optimizer) is SGD or all("capturable" in group for group in optimizer.param_groups):
        return None
    return f"{type(optimizer).__name__} keeps numbers on the host"


class _On:
    """Work on `stream` behind what is under way on the current one, and hand back to it; nothing without one."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        if self._stream is not None:
            self._device = torch.cuda.current_device()  # setting a stream changes it
            self._outer = torch.cuda.current_stream(self._stream.device)
            self._stream.wait_stream(self._outer)
            torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            torch.cuda.set_stream(self._outer)
            self._outer.wait_stream(self._stream)
            torch.cuda.set_device(self._device)


def _make_room(device: torch.device) -> None:
    """Give back what dropped recordings held, once it is a quarter of the device: it is of use to nobody else."""
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if idle > torch.cuda.get_device_properties(device).total_memory / 4:
        torch.cuda.empty_cache()


def _abandon(device: torch.device, pool: tuple[int, int]) -> None:
    """Undo what a recording that was broken off has left switched on.

    Up to torch 2.11 the allocator then still serves the recording, and random numbers refuse to be drawn outside it.
    """
    index = device.index if device.index is not None else torch.cuda.current_device()
    with suppress(Exception):  # it had been switched off in order
        torch._C._cuda_endAllocateToPool(index, pool)
    numbers = torch.cuda.default_generators[index]
    numbers.graphsafe_set_state(numbers.clone_state())


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
