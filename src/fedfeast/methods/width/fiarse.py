"""FIARSE: single weights, kept by their size, as many as a client affords (Wu et al., 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Literal, Self
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, Deployed, LocalSgd, OperatingPoint, Parts, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.tiers import Weighting, weight_of
from fedfeast.methods.width.importance import Importance, count_macs, rank_positions
from fedfeast.networks import Initialisation, ResNet
from fedfeast.routing import MaskedPositions
from fedfeast.units import name_by_macs

LEAST_PARAMETERS = 1 / 256  # the share that everyone keeps where shares of the parameters count


@dataclass(frozen=True)
class Fiarse(OnePassMethod):
    """Every client trains the weights above a threshold that makes the masked network as costly as its budget."""

    suits: ClassVar = (
        "Runtimes that make use of single zeros: networks are masked, and files and dense runtimes are not smaller."
    )

    paper: ClassVar = "Wu et al., FIARSE: Model-Heterogeneous FL via Importance-Aware Submodel Extraction, 2024"
    changes_weights: ClassVar = True
    cost_follows_weights: ClassVar = True
    presets: ClassVar = {
        "authors": {
            "threshold": "parameters",
            "nominal_macs": 555e6,
            "least_share": 0.0449,  # 24.92M, below the least budget of their draw
            "layerwise": False,
            "gradient": "released",
            "membership": "delta",
            "weighting": "samples",
            "learning_rate": 0.05,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "clip_norm": inf,
            "initialisation": "he-normal",
        },
        "released": {
            "threshold": "macs",  # its code has shares of parameters alone, and no budgets
            "gradient": "released",
            "membership": "delta",
            "weighting": "count",
            "learning_rate": 0.1,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "clip_norm": inf,
        },
    }
    former_defaults: ClassVar = {"weighting": "count"}
    network: ResNet  # trained whole: scattered zeros save no training compute
    layerwise: bool = False  # the same share of each stage, instead of one threshold for all
    gradient: Literal["intended", "released"] = "intended"  # by the paper, or as the authors' code computes it
    membership: Literal["mask", "delta"] = "mask"  # who has a say: whoever was sent a weight, or whoever changed it
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    weight_decay: float = 0.0  # of the clients' optimiser
    # Of the clients' optimiser, where FIARSE has one of its own; None: as all methods. The authors' is .05, 0 and inf.
    learning_rate: float | None = None
    momentum: float | None = None  # of the same
    clip_norm: float | None = None  # of the same; inf: nothing is clipped
    num_points: int = 57  # of the grid that is measured, evenly spaced
    least_share: float = 0.045  # of the whole network's MACs, where the grid starts: 25M of ResNet-18's 555M
    # What of a budget decides: its MACs, or its share of the nominal MACs, taken as a share of the parameters.
    threshold: Literal["macs", "parameters"] = "macs"
    nominal_macs: float | None = None  # of the whole network, for shares of the parameters; without it its own
    initialisation: Initialisation = "torch"  # of the weights that training begins with

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FIARSE on a post-activation ResNet."""
        initialisation = options.get("initialisation", cls.initialisation)
        return cls(replace(parts.resnet_for("fiarse"), initialisation=initialisation), **options)

    def __post_init__(self) -> None:
        if self.membership == "delta" and self.weight_decay:
            raise InvalidInput(
                f'method.weight_decay = {self.weight_decay} with method.membership = "delta": decay changes every '
                "weight, so all would count as trained; set the decay to 0 or the membership to mask."
            )
        try:
            self.optimiser(LocalSgd())
        except InvalidInput as error:
            raise InvalidInput(f"method.{error}") from None
        if not 0 < self.least_share < 1 or self.num_points < 2:
            raise InvalidInput(
                f"method.least_share = {self.least_share} and method.num_points = {self.num_points}: "
                "give a share above 0 and below 1, and at least 2 points."
            )
        if self.nominal_macs is not None and (self.threshold == "macs" or not self.nominal_macs > 0):
            raise InvalidInput(
                f'method.nominal_macs = {self.nominal_macs} with method.threshold = "{self.threshold}": '
                'give MACs above 0 beside the threshold "parameters", or leave them out.'
            )

    def optimiser(self, common: LocalSgd) -> LocalSgd:
        """Return the common optimiser with what FIARSE has of its own, its weight decay always."""
        own = {"learning_rate": self.learning_rate, "momentum": self.momentum, "clip_norm": self.clip_norm}
        given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
        return replace(common, weight_decay=self.weight_decay, **given)

    @property
    def keeps_budgets(self) -> bool:
        """Whether MACs decide: a share of the parameters costs a larger one of the MACs."""
        return self.threshold == "macs"

    @property
    def least_macs(self) -> int:
        """The grid's first; by parameters everyone keeps some."""
        return super().least_macs if self.keeps_budgets else 0

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Send every client its largest weights; one sort of all weights serves the whole cohort."""
        ranked = self._rank(flat)
        assignments = []
        for client in cohort:
            thresholds = self._thresholds(ranked, client.budget_macs)
            slices = MaskedPositions.of(self.network.layout, flat.abs() >= thresholds)
            weight = weight_of(client, self.weighting)
            assignments.append(Assignment(client, slices, (self.network.whole,), weight, {"thresholds": thresholds}))
        return assignments, state

    def weights(self, weights: Tensor, constants: Constants) -> Tensor:
        """Return the weights at or above their threshold; one that falls below it is out for the round."""
        return torch.where(weights.abs() >= constants["thresholds"], weights, 0)

    def weight_gradient(self, gradient: Tensor, weights: Tensor, constants: Constants) -> Tensor:
        """Return the masked gradient, enlarged near the threshold: by 1.5 at it, by 1 far above."""
        size, threshold = weights.abs(), constants["thresholds"]
        masked = torch.where(size >= threshold, gradient, 0)
        if self.gradient == "released":
            return masked
        return masked * (1 + (2 * threshold * size / (size + threshold) ** 2).nan_to_num(0.0))

    def served_macs(self, assignment: Assignment) -> int:
        """Return the cost of the weights that the client was sent."""
        assert isinstance(assignment.slice_map, MaskedPositions)
        return count_macs(self.network, assignment.slice_map.mask)

    @property
    def counts_in_part(self) -> bool:
        """Whether only changed weights count."""
        return self.membership == "delta"

    def counted(self, assignment: Assignment, sent: Tensor, returned: Tensor) -> Tensor | None:
        """Return where the client changed a weight, if that decides who has a say."""
        return returned != sent if self.membership == "delta" else None

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return the grid: budgets that a masked network keeps below, the last the whole network.

        By parameters they are prices: what such a network costs is known once it is taken out.
        """
        level, parameters = self.network.whole, self.network.parameters(self.network.whole)
        grid = np.linspace(self.least_share * self._whole_macs, self._whole_macs, self.num_points).astype(int).tolist()
        listed = [None if self.keeps_budgets else macs for macs in grid]
        named = zip(name_by_macs(tuple(grid)), grid, listed, strict=True)
        return tuple(OperatingPoint(name, macs, parameters, level, price) for name, macs, price in named)

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        """Take the weights out that a budget of the point's MACs affords; only they count as cost."""
        ranked = self._rank(flat)
        kept = flat.abs() >= self._thresholds(ranked, point.price)
        local = torch.where(kept, flat, 0)
        layout, level = self.network.layout, self.network.whole
        return Deployed(self.network, level, layout, local, count_macs(self.network, kept), int(kept.sum()))

    @property
    def _whole_macs(self) -> float:
        return self.network.macs(self.network.whole) if self.nominal_macs is None else self.nominal_macs

    def _thresholds(self, ranked: Importance, budget_macs: float) -> Tensor:
        """Return the least size to keep at each position for a budget."""
        if self.threshold == "macs":
            return ranked.thresholds(budget_macs)
        return ranked.thresholds_by_share(min(max(budget_macs / self._whole_macs, LEAST_PARAMETERS), 1.0))

    def _rank(self, flat: Tensor) -> Importance:
        """Return the weights by size; the last vector's is kept, since a whole grid is taken from one."""
        known, version, ranked = self._last or (None, 0, None)
        if ranked is None or known is None or known() is not flat or version != flat._version:
            ranked = rank_positions(self.network, flat, self.layerwise)
            self._last[:] = [ref(flat), flat._version, ranked]
        return ranked

    @cached_property
    def _last(self) -> list[Any]:
        return []
