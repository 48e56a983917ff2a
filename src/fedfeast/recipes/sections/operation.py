"""How a recipe's run is validated, saved and carried out."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fedfeast.errors import InvalidInput
from fedfeast.recipes.sections.section import Numbers, Section


def _read_sizes(value: Any) -> Any:
    """Return which sizes are validated, an unset field's as none; refuse what is neither a word for it nor a number."""
    value = "none" if value is None else value
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not is_count and value not in ("auto", "all", "none"):
        raise InvalidInput(f"evaluation.sizes = {value!r}: give auto, all, none, or a number of sizes from 1 on.")
    return value


class EvaluationSection(Section):
    """How often the served variants are validated, by whom, and by which figure."""

    every_rounds: int = Field(50, ge=1)  # and after the last
    by: Literal["server", "clients"] = "server"  # on the server's examples, or on those that clients keep back
    client_share: float = Field(0.1, gt=0, lt=1)  # of its training examples that a client keeps back for it
    metric: str | None = None  # one of the task's; without it the task's first
    # By what the served round is chosen: the population score, the mean of some networks, or the largest alone.
    selection: Literal["population-score", "anchors", "largest"] = "population-score"
    anchors: Numbers | None = None  # of that mean: rows of the served networks, counted from 0, or MACs
    # What a client counts for in the population score that chooses: the largest network it affords, or the best.
    score: Literal["largest", "best"] = "largest"
    # Of which sizes a validation keeps the values: auto takes all where that costs little of training, else a few.
    sizes: Annotated[Literal["auto", "all", "none"] | int, BeforeValidator(_read_sizes)] = "auto"
    calibration_augmented: bool = False  # whether served statistics are measured on images as training sees them
    calibration_batch: int | None = Field(None, ge=2)  # without it batches as equal as can be, of at most 250

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse a setting that the others make idle."""
        if self.selection == "anchors" and not self.anchors:
            raise InvalidInput(
                "evaluation.selection = 'anchors' needs evaluation.anchors: give rows of the served networks, or MACs."
            )
        if self.anchors is not None and min(self.anchors, default=0) < 0:
            raise InvalidInput(f"evaluation.anchors = {list(self.anchors)}: give rows from 0 on, or MACs.")
        idle = {
            "anchors": self.selection != "anchors" and self.anchors is not None,
            "score": self.selection != "population-score" and self.score != "largest",
        }
        for name in (name for name, has_no_effect in idle.items() if has_no_effect):
            raise InvalidInput(
                f"evaluation.{name} = {getattr(self, name)!r} has no effect with evaluation.selection = "
                f"{self.selection!r}: leave it out, or choose the selection that uses it."
            )
        of_server = {"selection": "population-score", "calibration_augmented": False, "calibration_batch": None}
        for name, usual in of_server.items():
            if self.by == "clients" and getattr(self, name) != usual:
                raise InvalidInput(
                    f"evaluation.{name} = {getattr(self, name)!r} needs the server's examples, and evaluation.by = "
                    "'clients' has none: leave it out, or set evaluation.by=server."
                )
        if self.by == "clients" and self.sizes not in ("auto", "none"):
            raise InvalidInput(
                f"evaluation.sizes = {self.sizes!r} needs the server's examples: with evaluation.by = 'clients' it is "
                "auto, the sizes that clients are asked for anyway, or none."
            )
        return self


class CheckpointSection(Section):
    """How often the run is saved."""

    every_rounds: int = Field(10, ge=1)  # and after the last


class FleetSection(Section):
    """How long a fleet's rounds wait, for how many, and in which precision slices travel."""

    mode: Literal["synchronous", "buffered"] = "synchronous"  # a merge takes the answers of all, or the first ones
    buffer: int | None = Field(None, ge=1)  # answers of a buffered merge; without it half of clients_per_round
    staleness_exponent: float = Field(0.5, ge=0)  # p: what left a merges ago counts for 1 / (1 + a)^p
    deadline_seconds: float = Field(600.0, gt=0)  # of a round, from the last slice sent; buffered: of an answer
    least_answers: int = Field(1, ge=1)  # that a round needs before its deadline
    least_clients: int = Field(1, ge=1)  # that must be there before a round begins
    most_examples: int = Field(10**9, ge=1)  # that a client may declare, since its answer weighs by them
    wire: Literal["lossless", "float32", "bfloat16", "float16"] = "lossless"  # lossless: as the weights are

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse settings of buffered merges where rounds are synchronous."""
        for name in ("buffer", "staleness_exponent"):
            if self.mode == "synchronous" and getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"fleet.{name} = {getattr(self, name)} has no effect with fleet.mode = 'synchronous': leave it "
                    "out, or set fleet.mode=buffered."
                )
        return self


class SimulationSection(Section):
    """How fast simulated clients are; without speeds nobody looks at a clock."""

    speeds: str | None = None  # equal, pareto, or a CSV file with the columns name and macs_per_second
    macs_per_second: float = Field(1e9, gt=0)  # of all, or of the fastest
    tail: float = Field(1.5, gt=0)  # of pareto: a share of x^-tail is x times slower than the fastest, or more

    @model_validator(mode="after")
    def _refuse_idle_settings(self) -> Self:
        """Refuse settings that the chosen speeds would silently ignore."""
        idle = {"tail": self.speeds != "pareto", "macs_per_second": self.names_file}
        for name in (name for name, has_no_effect in idle.items() if has_no_effect):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InvalidInput(
                    f"simulation.{name} = {getattr(self, name):g} has no effect with simulation.speeds = "
                    f"{self.speeds or 'none'}: leave it out, or choose the speeds that use it."
                )
        return self

    @property
    def names_file(self) -> bool:
        """Whether the speeds are those of a file."""
        return self.speeds not in (None, "equal", "pareto")


class EngineSection(Section):
    """Where and in which precision rounds run."""

    name: Literal["auto", "eager", "graphs"] = "auto"  # auto: graphs on a CUDA device
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a CUDA device where there is one
    # Of weights; bfloat16 is float32 with activations in bfloat16. auto: bfloat16 on graphs, float32 on eager.
    precision: Literal["auto", "bfloat16", "float32", "float64"] = "auto"
    threads: int | None = Field(None, ge=1, le=1024)  # of a CPU; without it all cores
    memory_gib: float | None = Field(None, gt=0)  # of a CUDA device that this run may take; None: all of it
