"""ONNX files at work: sessions of onnxruntime, and the opsets that it knows."""

from pathlib import Path

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.machine import usable_cores
from fedfeast.serving.onnx.graph import DEFAULT_OPSET
from fedfeast.serving.onnx.packages import import_onnx, import_onnxruntime

LEAST_OPSET = 13  # quantisation by channel begins here
INPUT_TYPES = {
    "tensor(uint8)": torch.uint8,
    "tensor(int16)": torch.int16,
    "tensor(int64)": torch.int64,
    "tensor(float)": torch.float32,
}


class Session:
    """An ONNX network ready to predict on the CPU."""

    def __init__(self, model: bytes | Path, threads: int | None = None) -> None:
        runtime = import_onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or usable_cores()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        content = model if isinstance(model, bytes) else str(model)
        try:
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own types have no common ancestor
            reason = str(error).splitlines()[0][:200]
            raise InvalidInput(f"onnxruntime {runtime.__version__} cannot load the network: {reason}.") from error
        (entry,) = self._session.get_inputs()
        self._input = entry.name
        self.input_shape = tuple(entry.shape[1:])
        self.input_dtype = INPUT_TYPES[entry.type]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the outputs, e.g. logits (batch, classes), of inputs as the network takes them."""
        if tuple(inputs.shape[1:]) != self.input_shape:
            what, expected = self._input, ", ".join(map(str, self.input_shape))
            raise InvalidInput(f"{what} have the shape {tuple(inputs.shape)}: this network takes (batch, {expected}).")
        (outputs,) = self._session.run(None, {self._input: inputs.cpu().to(self.input_dtype).numpy()})
        return torch.from_numpy(outputs)


def require_opset(opset: int, least: int = LEAST_OPSET, default: int = DEFAULT_OPSET) -> None:
    """Refuse an opset that we cannot write or onnxruntime cannot run."""
    version = import_onnxruntime().__version__
    if opset >= least and _is_known(opset):
        return
    newest = import_onnx().defs.onnx_opset_version()
    greatest = next(one for one in range(newest, least - 1, -1) if _is_known(one))
    whose = "fedfeast" if least == LEAST_OPSET else "torch.onnx, which exports own networks,"
    raise InvalidInput(
        f"--opset {opset}: onnxruntime {version} and {whose} know {least} to {greatest} ({default} without the option)."
    )


def _is_known(opset: int) -> bool:
    """Ask onnxruntime itself, with a graph of one node."""
    helper, runtime = import_onnx().helper, import_onnxruntime()
    if opset > import_onnx().defs.onnx_opset_version():
        return False
    value = [helper.make_tensor_value_info(name, 1, ["batch"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", value[:1], value[1:])
    opsets = [helper.make_opsetid("", opset)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # whatever its type, this opset is of no use
        return False
    return True
