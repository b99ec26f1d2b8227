"""One network, many hats: teach a PyTorch network a growing list of tasks and prove that no old one changed."""

from hatrack.data.benchmarks import tasks
from hatrack.data.task import Inputs, Task
from hatrack.errors import HatrackError
from hatrack.learn.learner import Learner
from hatrack.learn.state import load
from hatrack.methods.hat import HAT

__version__ = "0.1.0"
__all__ = ["HAT", "HatrackError", "Inputs", "Learner", "Task", "load", "tasks"]
