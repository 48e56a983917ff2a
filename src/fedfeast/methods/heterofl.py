"""HeteroFL: nested widths of one network, averaged where they overlap (Diao et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import Assignment, Client, Constants, Parts, mixed_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting, narrowed
from fedfeast.networks import ResNet


@dataclass(frozen=True)
class HeteroFL(TieredMethod):
    """Every client trains the widest leading slice of one network that it affords.

    Its static batch normalisation, batch statistics in training and measured afresh for serving, is what all
    methods here do; its scaler cancels in a norm by batch statistics.
    """

    paper: ClassVar = "Diao et al., HeteroFL: Computation and Communication Efficient Federated Learning, 2021"
    network: ResNet
    widths: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    weighting: Weighting = "count"
    # Choice: both off, since no other method tells the server which classes a client holds.
    label_masked_loss: bool = False  # logits of classes that the client does not hold are zero in training
    label_row_merging: bool = False  # a client has no say in the classifier's rows of classes it does not hold

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return the method on a pre-activation ResNet."""
        return cls(replace(parts.resnet_for(cls.__name__.lower()), activation="before"), **options)

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per width."""
        return narrowed(self.network, self.widths)

    def constants_of(self, client: Client, round_index: int) -> Constants:
        """Return which classes the client holds, where the loss asks."""
        return {"held": self._held(client)} if self.label_masked_loss else {}

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the supervised loss; a masked logit is 0, not minus infinity, as in the authors' code."""
        logits = torch.where(constants["held"], outputs[-1], 0) if self.label_masked_loss else outputs[-1]
        return mixed_cross_entropy(logits, batch), None

    @property
    def needs_held_classes(self) -> bool:
        """Whether one of the options by label is on."""
        return self.label_masked_loss or self.label_row_merging

    @property
    def counts_in_part(self) -> bool:
        """Whether an answer may not count everywhere."""
        return self.label_row_merging

    def counted(self, assignment: Assignment, sent: Tensor, returned: Tensor) -> Tensor | None:
        """Return all but the classifier's rows of classes that the client does not hold."""
        if not self.label_row_merging:
            return None
        counted = torch.ones_like(returned, dtype=torch.bool)
        absent = ~self._held(assignment.client).to(returned.device)
        for name, view in assignment.slice_map.layout.views(counted).items():
            if name.startswith("head"):
                view[absent] = False
        return counted

    def _held(self, client: Client) -> Tensor:
        held = torch.zeros(self.network.classes, dtype=torch.bool)
        held[list(client.held_classes)] = True
        return held
