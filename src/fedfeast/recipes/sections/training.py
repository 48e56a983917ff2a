"""How a recipe's clients train, and how the server merges and protects what they send."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fedfeast.data.batches import LastBatch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Aggregation, ServerOptimiser, Wire
from fedfeast.federation.local_sgd import Unreached
from fedfeast.federation.server_step import Optimiser
from fedfeast.federation.wire.formats import Format
from fedfeast.recipes.sections.section import Numbers, Section


class TrainingSection(Section):
    """Rounds, cohorts and the clients' optimiser."""

    rounds: int = Field(4000, ge=1)  # of training
    clients_per_round: int = Field(10, ge=1)  # that are drawn for a round; poisson cohorts have so many on average
    cohort: Literal["named", "authors", "poisson"] = "named"  # by the seed; by the round alone; each client by itself
    local_epochs: int = Field(1, ge=1)  # over its data that a client trains in a round
    batch_size: int = Field(64, ge=2)  # batch statistics need two examples
    learning_rate: float = Field(0.1, gt=0, allow_inf_nan=False)  # of the clients' optimiser, at its highest
    schedule: Literal["cosine", "constant"] = "cosine"  # of the rate over the rounds: falling to nothing, or as it is
    warmup_rounds: int = Field(0, ge=0)  # in which the rate rises from a tenth of the schedule's to all of it
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)  # of every position that a client was sent
    clip_norm: float = Field(10.0, gt=0)  # inf: nothing is clipped
    momentum: float = Field(0.0, ge=0, lt=1)  # of the clients' optimiser, new in every round
    unreached: Unreached = "decay"  # tensors that no pass of a step goes through: decayed, or kept as they are
    class_prior: float = Field(0.0, ge=0, le=100)  # times the log of a client's class frequencies, added to its logits
    last_batch: LastBatch = "topped-up"  # of an epoch: filled up from fresh permutations, or only what is left
    least_distinct: int = Field(1, ge=1)  # examples that a batch has to choose from; with fewer it is left out

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse batches that could never hold as many examples as they must."""
        if self.least_distinct > self.batch_size:
            raise InvalidInput(
                f"training.least_distinct = {self.least_distinct} is more than a batch holds (training.batch_size = "
                f"{self.batch_size}): lower the one or raise the other."
            )
        if self.warmup_rounds and self.warmup_rounds >= self.rounds:
            raise InvalidInput(
                f"training.warmup_rounds = {self.warmup_rounds} leaves nothing of training.rounds = {self.rounds}: "
                "give fewer than there are rounds."
            )
        return self


class AugmentationSection(Section):
    """What happens to an input and a mini-batch before training; what is no image goes through nothing by default."""

    crop_padding: int = Field(4, ge=0)  # pixels by which an image may be moved either way
    crop_fill: Literal["black", "reflect"] = "black"  # beyond the edge: nothing, or the image mirrored
    flip: bool = True  # whether images are mirrored, half of them
    randaugment: Annotated[tuple[int, int], Field(strict=False)] = (
        2,
        6,
    )  # operations, magnitude; 0, 0 is none
    mixing: Literal["alternate", "coin", "off"] = "alternate"  # Mixup and CutMix by turns, or a coin for each batch
    mixup_beta: float = Field(1.0, gt=0)  # of the Beta distribution that Mixup draws from
    cutmix_beta: float = Field(1.0, gt=0)  # and of the one that CutMix draws from
    mixing_until: float = Field(1.0, gt=0, le=1)  # share of the rounds after which images are no longer mixed
    # Of sequences, along their last axis (docs/data.md): places by which one may be moved either way.
    time_shift: int = Field(0, ge=0)
    noise: float = Field(0.0, ge=0)  # deviation of what is added to normalised numbers
    mask_share: float = Field(0.0, ge=0, lt=1)  # of the last axis: one span at its mean; of token ids single ones


class AggregationSection(Section):
    """How answers are merged, and which are refused; multiples are of the usual norm of a client's change."""

    # Position by position, over the clients that were sent it.
    rule: Literal["mean", "clipped-mean", "trimmed-mean", "median"] = "mean"
    clip_multiple: float = Field(1.5, gt=0)  # of clipped-mean: longer changes are shortened to it
    trim_share: float = Field(0.2, gt=0, lt=0.5)  # at either end
    refuse_multiple: float | None = Field(None, gt=0)  # without it no norm is too large
    weigh: Literal["method", "alike"] = "method"  # what an answer weighs: as the method says, or all the same
    weight_cap: float | None = Field(None, ge=1)  # times the cohort's median weight: no answer weighs more
    # Whether an answer counts at a position by the share of the client's steps that activated it; else fully.
    activated_share: bool = False

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse what no aggregation can be."""
        Aggregation(**self.model_dump())
        return self


class ServerSection(Section):
    """What the server does with a merged round; by default the merged vector is the next global one."""

    optimiser: Annotated[Optimiser, BeforeValidator(lambda value: value or "none")] = "none"  # unset: none
    learning_rate: float | None = Field(None, gt=0)  # of momentum and adam; without it 1 and 0.01
    momentum: float = Field(0.9, ge=0, lt=1)  # of momentum
    betas: Numbers = (0.9, 0.99)  # of adam's means of changes and of their squares
    epsilon: float = Field(1e-3, gt=0)  # of adam
    lookahead: float = Field(0.0, ge=0, lt=1)  # of its last move, by which what is sent lies ahead of the global vector
    average: float = Field(0.0, ge=0, lt=1)  # what a round leaves of the running average; 0: none is kept

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the chosen optimiser would silently ignore."""
        used = {"none": (), "momentum": ("learning_rate", "momentum"), "adam": ("learning_rate", "betas", "epsilon")}
        for name in ("learning_rate", "momentum", "betas", "epsilon"):
            given = getattr(self, name)
            if name not in used[self.optimiser] and given != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"server.{name} = {list(given) if name == 'betas' else given} has no effect with server.optimiser "
                    f"= {self.optimiser!r}: leave it out, or choose the optimiser that uses it."
                )
        ServerOptimiser(**self.model_dump())
        return self


class AdversarySection(Section):
    """Clients that lie, for tests and studies: they send their change inverted and enlarged."""

    share: float = Field(0.0, ge=0, lt=1)  # of the clients that take part
    enlargement: float = Field(10.0, gt=0)  # by which their change is multiplied
    claimed_multiple: float = Field(1.0, ge=1)  # of the examples they have: what they say they have


class PrivacySection(Section):
    """Clipping and Gaussian noise, on every client's update or once on their sum; off without a clip_norm."""

    mechanism: Literal["local", "central"] = "local"  # the clients add noise, or a server that they trust
    clip_norm: float | None = Field(None, gt=0)  # of a client's change, before noise is added
    noise_multiplier: float = Field(1.0, gt=0)  # deviation over sensitivity: 2 x clip_norm; central most_weight x it
    delta: float = Field(1e-5, gt=0, lt=1)  # of (epsilon, delta)
    usual_examples: float | None = Field(None, gt=0)  # central: who has so many weighs 1; without it all weigh 1
    most_weight: float = Field(1.0, gt=0)  # central: of any client, with usual_examples
    least_holders: float = Field(1.0, gt=0)  # central: what a position's sum is divided by at least


class WireSection(Section):
    """In how many bytes weights go to clients and their changes come back; by default every bit arrives."""

    down: Format = "lossless"  # what the server sends: as the weights are, or in fewer bits
    up: Format = "lossless"  # what a client returns: its weights as they are, or their change in fewer bits
    up_topk: float | None = Field(None, gt=0, lt=1)  # share of a change's values that are returned, the largest
    error_feedback: bool = True  # whether a client adds to its next change what rounding left out of its last
    down_deltas: bool = False  # whether a client that still holds its last weights is sent the difference to them
    state_gib: float = Field(4.0, gt=0)  # for what is remembered of clients; beyond it the longest unused is forgotten

    @model_validator(mode="after")
    def _refuse_impossible(self) -> Self:
        """Refuse what no wire can be."""
        Wire(**self.model_dump())
        return self
