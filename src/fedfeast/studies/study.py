"""What a study is: a question, the runs that answer it, and what their numbers become."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedfeast.recipes import Recipe
from fedfeast.studies.arms import Arm
from fedfeast.studies.plots import Plot, Scatter
from fedfeast.studies.results import Results
from fedfeast.studies.tables import Table

# The recipes that studies start from, by data set.
LETTER = "cifar100-authors"  # CIFAR-100 once more, by what the paper's authors ran
IMAGES = {
    "cifar100": "cifar100-paper",
    LETTER: "cifar100-authors",
    "cinic10": "cinic10-paper",
    "tinyimagenet": "tinyimagenet-paper",
    "digits": "digits",
}
WITH_CLIENTS = {"audiomnist": "speech", "motionsense": "motion", "shakespeare": "text"}  # of their own
RECIPES = {**IMAGES, **WITH_CLIENTS}

Resolve = Callable[[Mapping[str, Any]], Recipe]  # the study's recipe with an arm's settings


@dataclass(frozen=True)
class Findings:
    """What a study found."""

    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    scatters: tuple[Scatter, ...] = ()  # pictures that come before the curves
    facts: Mapping[str, Any] = field(default_factory=dict)  # what else programs are told
    reference: str | None = None  # the arm that all are compared with; FEAST, or the first, unless said

    @property
    def pictures(self) -> tuple[Plot | Scatter, ...]:
        """All pictures in the order of the page."""
        return (*self.scatters, *self.plots)


@dataclass(frozen=True)
class Study:
    """A set of runs under one protocol and the way they are compared."""

    name: str
    title: str
    question: str
    arms: Callable[[Resolve], Sequence[Arm]]
    conclude: Callable[[Results], Findings]
    varied: tuple[str, ...] = ()  # settings in which arms differ on purpose, beside their method
    datasets: tuple[str, ...] = tuple(IMAGES)  # the first by default; of any recipe: none
    trains: bool = True  # False: plans alone answer it
    alone: bool = False  # whether clients are also trained each by itself
    separable: bool = False  # whether some of its arms can be run without the others
