"""What a task predicts: its head, its loss, its score, and how an answer is read."""

from hatrack.targets.base import Gathered, Score, Target
from hatrack.targets.classification import Classification
from hatrack.targets.dense import Dense
from hatrack.targets.multilabel import MultiLabel
from hatrack.targets.regression import Regression

__all__ = ["Classification", "Dense", "Gathered", "MultiLabel", "Regression", "Score", "Target"]
