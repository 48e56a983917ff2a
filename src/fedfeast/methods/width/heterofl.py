"""HeteroFL: nested widths of one network, averaged where they overlap (Diao et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, Parts, mixed_cross_entropy
from fedfeast.methods.tiers import Backbone, Sliced, Tier, TieredMethod, Weighting, narrowed, sliced_network
from fedfeast.networks import Initialisation, ResNet


@dataclass(frozen=True)
class HeteroFL(TieredMethod):
    """Every client trains the widest leading slice of one network that it affords.

    Its static batch normalisation, batch statistics in training and measured afresh for serving, is what all
    methods here do; its scaler cancels in a norm by batch statistics, unless it is put behind the rectifiers.
    """

    suits: ClassVar = (
        "A few sizes of a plain ResNet with little compute: one pass a step, of the widest slice that fits."
    )

    paper: ClassVar = "Diao et al., HeteroFL: Computation and Communication Efficient Federated Learning, 2021"
    presets: ClassVar = {
        "authors": {
            "activation": "after",
            "scaler": "after-activation",
            "initialisation": "he-normal",
            "nominal_macs": 550e6,
            "weighting": "samples",
            "label_masked_loss": False,
            "label_row_merging": False,
        },
        "released": {
            "activation": "before",
            "scaler": "none",
            "initialisation": "torch",
            "weighting": "count",
            "label_masked_loss": True,
            "label_row_merging": True,
        },
    }
    former_defaults: ClassVar = {"weighting": "count"}
    network: Sliced
    widths: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)  # shares of the network's channels
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    # Choice: both off, since no other method tells the server which classes a client holds.
    label_masked_loss: bool = False  # logits of classes that the client does not hold are zero in training
    label_row_merging: bool = False  # a client has no say in the classifier's rows of classes it does not hold
    backbone: Backbone = "resnet"  # what is sliced: the ResNet, or the elastic network
    # Of the ResNet: where its norms and rectifiers stand.
    activation: Literal["before", "after"] = "before"
    scaler: Literal["none", "after-activation"] = "none"  # what divides rectified features by the width
    initialisation: Initialisation = "torch"  # of the weights that training begins with
    nominal_macs: float | None = None  # stated for the whole network: a width is priced at its square of it

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return the method on a ResNet, in pre-activation order unless asked, or on a variant of the elastic one."""
        network = sliced_network(
            parts, cls.__name__.lower(), options.get("backbone", cls.backbone), options.get("widths", cls.widths)
        )
        if isinstance(network, ResNet):
            own = {name: options.get(name, getattr(cls, name)) for name in ("activation", "initialisation")}
            network = replace(network, **own)
        return cls(network, **options)

    def __post_init__(self) -> None:
        if self.nominal_macs is not None and not self.nominal_macs > 0:
            raise InvalidInput(f"method.nominal_macs = {self.nominal_macs}: give MACs above 0.")
        if self.scaler != "none" and self.activation == "before":
            raise InvalidInput(
                f'method.scaler = "{self.scaler}" with method.activation = "before", where a norm undoes it: '
                "set method.activation=after, or the scaler to none."
            )
        for name in ("activation", "scaler", "initialisation"):
            if self.backbone == "elastic" and getattr(self, name) != getattr(type(self), name):
                raise InvalidInput(
                    f'method.{name} = "{getattr(self, name)}" is the ResNet\'s, and method.backbone = "elastic": '
                    "leave one of them out."
                )

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per width; the scaler divides by the width."""
        tiers = narrowed(self.network, self.widths)
        if self.scaler == "none":
            return tiers
        levels = [replace(tier.trained, divisor=width) for tier, width in zip(tiers, self.widths, strict=True)]
        return [Tier(level, level) for level in levels]

    def listed_prices(self) -> Sequence[int | None]:
        """Return the square of each width times the nominal MACs, where there are any."""
        if self.nominal_macs is None:
            return super().listed_prices()
        return [int(self.nominal_macs * width**2) for width in sorted(self.widths)]

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
