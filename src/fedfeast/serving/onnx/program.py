"""A torch.export program as an ONNX graph, through torch.onnx: for networks of anybody's own layers."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch.export import ExportedProgram

from fedfeast.errors import InvalidInput
from fedfeast.serving.onnx.packages import REMEDY, import_onnx

LEAST_OPSET = 18  # what torch.onnx writes; its conversion to older ones fails for many layers


def program_to_onnx(
    program: ExportedProgram, opset: int, names: tuple[str, str], metadata: Mapping[str, str] | None = None
) -> Any:
    """Return the program as an onnx.ModelProto, its input and output by these names, for any batch."""
    onnx = import_onnx()
    if find_spec("onnxscript") is None:
        raise InvalidInput(f"exporting networks of one's own needs the onnxscript package: {REMEDY}.")
    given, made = names
    try:
        with _quietly():
            exported = torch.onnx.export(
                program, dynamo=True, opset_version=opset, verbose=False, input_names=[given], output_names=[made]
            )
    except Exception as error:  # whatever has no form in ONNX
        raise InvalidInput(
            f"torch.onnx has no ONNX form for the network ({_root_of(error)}): extract it, or export it as pt2."
        ) from error
    assert exported is not None
    proto = exported.model_proto
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del proto.graph.value_info[:]  # shapes by the names that torch gives to sizes
    for noted in (proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del noted.metadata_props[:]
        noted.doc_string = ""
    proto.producer_name, proto.producer_version = "fedfeast", ""
    onnx.helper.set_model_props(proto, dict(metadata or {}))
    return proto


def _root_of(error: BaseException) -> str:
    """Return the first line of what an error came from: torch.onnx wraps errors in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep to itself what torch.onnx says of packages that are not needed and of its own old names."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # operations of torchvision, which is not installed
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        registration.setLevel(level)
