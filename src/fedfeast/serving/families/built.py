"""Networks of a user's own constructor: bundles carry a torch.export program, and nothing of the user's code."""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import Dim, ExportedProgram

from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks.built import BuiltNetwork, Member
from fedfeast.networks.built.pass_layers import BATCH_NORMS
from fedfeast.networks.normalisation import Statistics
from fedfeast.serving.families.program_check import require_plain_program
from fedfeast.serving.families.standalone import PROGRAM, Model, Program, load_program

KEPT_OF_NODES = ("val", "tensor_meta")  # the rest quotes the user's source and names this machine's files


class BuiltModel(Model):
    """A member as a plain module of the user's own classes: to be measured and exported, not to be carried away."""

    def program(self, takes_raw: bool = True) -> ExportedProgram:
        """Return it as a torch.export program for any batch, without a word of the source it came from."""
        example = torch.zeros(2, *self.input_shape, dtype=self.input_dtype)
        module, inputs = (self, example) if takes_raw else (self.network, self.normalise(example))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # torch.export's own, of torch's own classes
                program = torch.export.export(module, (inputs,), dynamic_shapes=({0: Dim("batch")},))
        except Exception as error:  # whatever a user's own forward makes of traced inputs
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InvalidInput(
                f"torch.export cannot take the network's forward ({type(error).__name__}: {reason}): write it without "
                "decisions by values, and for any size of batch."
            ) from error
        _forget_source(program)
        return program


@dataclass(frozen=True)
class BuiltFamily:
    """Networks of a builder, as trained and as served."""

    name: str = "built"
    trained: type = BuiltNetwork

    def describe(self, network: Any, architecture: Any) -> dict[str, Any]:
        """Return the manifest's table of a member."""
        assert isinstance(network, BuiltNetwork)
        builder = network.builder
        return {
            "family": self.name,
            "builder": builder.name,
            "builder_sha256": builder.sha256,
            "outputs": list(network.output_shape),
        }

    def describe_input(
        self, kind: str, shape: tuple[int, ...], dtype: torch.dtype, batch_norms: int = 0
    ) -> dict[str, Any]:
        """Return what the table says of one input, as it goes in, and of norms that were recalibrated for such."""
        taken = {"kind": kind, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
        return {"input": taken, "batch_norms": batch_norms}

    def tensors(self, deployed: Deployed, statistics: Statistics) -> dict[str, Tensor]:
        """Return what was learnt, under the module's own names, and the served statistics, in float32."""
        tensors = dict(deployed.layout.views(deployed.flat))
        for name, (mean, variance) in statistics.items():
            stem = f"{name}." if name else ""
            tensors |= {f"{stem}running_mean": mean, f"{stem}running_var": variance}
        return {name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()}

    def model(self, deployed: Deployed, statistics: Statistics, table: dict[str, Any]) -> BuiltModel:
        """Return the member with the deployed weights and the served statistics."""
        network, member = deployed.network, deployed.architecture
        assert isinstance(network, BuiltNetwork)
        assert isinstance(member, Member)
        module = network.module(member, self.tensors(deployed, {}))
        for name, norm in module.named_modules():
            if isinstance(norm, BATCH_NORMS) and (name in statistics or norm.running_mean is None):
                made_up = torch.zeros(norm.num_features), torch.ones(norm.num_features)
                mean, variance = statistics.get(name, made_up)
                norm.running_mean, norm.running_var = mean.cpu().float().clone(), variance.cpu().float().clone()
        return BuiltModel(module, table)

    def uncalibrated(self, deployed: Deployed) -> BuiltModel:
        """Return a network with made-up statistics that takes normalised numbers or token ids."""
        network = deployed.network
        assert isinstance(network, BuiltNetwork)
        table = self.describe(network, deployed.architecture)
        tokens = network.input_dtype == torch.int64
        table |= self.describe_input("tokens" if tokens else "numbers", network.input_shape, network.input_dtype)
        if not tokens:
            channels = network.input_shape[0]
            table |= {"mean": [0.0] * channels, "deviation": [1.0] * channels}
        return self.model(deployed, {}, table)

    def write(self, folder: Path, model: Model) -> list[str]:
        """Write the program, unless an export has, and return its file's name."""
        assert isinstance(model, BuiltModel)
        if not (folder / PROGRAM).is_file():
            content = io.BytesIO()
            torch.export.save(model.program(), content)
            # By us, since torch's own errors do not say that a disk is full.
            (folder / PROGRAM).write_bytes(content.getvalue())
        return [PROGRAM]

    def load(self, folder: Path, table: dict[str, Any]) -> Program:
        """Return a bundle's network; a file that holds more than tensors and torch's own operations is refused."""
        require_plain_program(folder / PROGRAM)
        return load_program(folder / PROGRAM, table)


def _forget_source(program: ExportedProgram) -> None:
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta = {key: value for key, value in node.meta.items() if key in KEPT_OF_NODES}
    # Guards are kept as code that loading would run, example inputs as a pickle; the model checks its inputs itself.
    program._guards_code = []
    program._example_inputs = None
