"""A served network as an ONNX graph: norms folded into convolutions, any number of images, the same bytes each time.

torch.onnx.export takes seven seconds for a network of 30 blocks; the plain layers that families are made of need but a
small table (docs/decisions/018). Whatever is built here is run against torch before it leaves.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fedfeast.serving.families.built import BuiltModel
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.onnx.packages import import_onnx
from fedfeast.serving.onnx.program import LEAST_OPSET, program_to_onnx

INPUT, OUTPUT = "images", "logits"
# Choice: known to onnxruntime since 1.12 and to most other runtimes; nothing newer is used.
DEFAULT_OPSET = 17


def default_opset(model: Model) -> int:
    """Return the opset of a network's file where none is asked for."""
    return LEAST_OPSET if isinstance(model, BuiltModel) else DEFAULT_OPSET


def build_onnx(model: Model, opset: int, takes_pixels: bool, metadata: Mapping[str, str] | None = None) -> Any:
    """Return the network as an onnx.ModelProto; with takes_pixels it takes raw inputs and normalises them itself."""
    if isinstance(model, BuiltModel):
        names = (INPUT, OUTPUT) if model.input_dtype == torch.uint8 else ("inputs", "outputs")
        return program_to_onnx(model.program(takes_pixels), opset, names, metadata)
    onnx = import_onnx()
    helper, types, graph = onnx.helper, onnx.TensorProto, _Graph()
    logits = _translate(graph, model.network, _normalise(graph, model) if takes_pixels else INPUT)
    assert list(graph.nodes[-1].output) == [logits], "the last layer gives the logits"
    graph.nodes[-1].output[0] = OUTPUT
    kind, shape = types.UINT8 if takes_pixels else types.FLOAT, ["batch", *model.input_shape]
    inputs = [helper.make_tensor_value_info(INPUT, kind, shape)]
    outputs = [helper.make_tensor_value_info(OUTPUT, types.FLOAT, ["batch", None])]
    made = helper.make_graph(graph.nodes, "network", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", opset)]
    # The oldest file format that has the opset, so that older runtimes read it, too.
    proto = helper.make_model(made, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
    proto.producer_name = "fedfeast"
    helper.set_model_props(proto, dict(metadata or {}))
    return proto


class _Graph:
    """Nodes and constants in the order they come."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operation: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node; return its output's name, which is the node's own."""
        self.nodes.append(self._onnx.helper.make_node(operation, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: Tensor) -> str:
        """Keep a constant in float32; return its name."""
        array = np.ascontiguousarray(values.detach().to(torch.float32).numpy())
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name


def _normalise(graph: _Graph, model: Model) -> str:
    assert model.mean is not None
    assert model.deviation is not None
    scale, offset = 1 / (255 * model.deviation.double()), model.mean.double() / model.deviation.double()
    pixels = graph.add("Cast", "pixels", [INPUT], to=import_onnx().TensorProto.FLOAT)
    scaled = graph.add("Mul", "scaled", [pixels, graph.constant("scale", scale)])
    return graph.add("Sub", "normalised", [scaled, graph.constant("offset", offset)])


def _translate(graph: _Graph, network: nn.Module, images: str) -> str:
    """Add a traced network's layers; return the name of the logits."""
    traced = fx.symbolic_trace(network)
    _fold_norms(traced)
    modules = dict(traced.named_modules())
    names: dict[fx.Node, str] = {}
    for node in traced.graph.nodes:
        inputs = [names[source] for source in node.all_input_nodes]
        if node.op == "placeholder":
            names[node] = images
        elif node.op == "call_module":
            names[node] = _layer(graph, str(node.target), modules[str(node.target)], inputs)
        elif node.op == "output":
            (logits,) = inputs
            return logits
        else:
            names[node] = _function(graph, node, inputs)
    raise AssertionError("a traced graph has an output")


def _fold_norms(traced: fx.GraphModule) -> None:
    """Put every batch norm that alone follows a convolution into its weights, in float64."""
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(norm, nn.BatchNorm2d):
            continue
        (source,) = node.all_input_nodes
        convolution = modules.get(str(source.target)) if source.op == "call_module" else None
        if isinstance(convolution, nn.Conv2d) and len(source.users) == 1:
            folded = fuse_conv_bn_eval(deepcopy(convolution).double(), deepcopy(norm).double())
            traced.set_submodule(str(source.target), folded)
            node.replace_all_uses_with(source)
            traced.graph.erase_node(node)


def _layer(graph: _Graph, name: str, module: nn.Module, inputs: list[str]) -> str:
    if type(module) not in LAYERS:
        raise NotImplementedError(f"{name} is a {type(module).__name__}, which has no ONNX form in {__name__} yet")
    return LAYERS[type(module)](graph, name, module, inputs)


def _convolution(graph: _Graph, name: str, module: nn.Conv2d, inputs: list[str]) -> str:
    assert module.padding_mode == "zeros"
    assert not isinstance(module.padding, str)
    constants = [graph.constant(f"{name}.weight", module.weight)]
    if module.bias is not None:
        constants.append(graph.constant(f"{name}.bias", module.bias))
    return graph.add(
        "Conv",
        name,
        [*inputs, *constants],
        kernel_shape=list(module.kernel_size),
        strides=list(module.stride),
        pads=[*module.padding, *module.padding],
        dilations=list(module.dilation),
        group=module.groups,
    )


def _norm(graph: _Graph, name: str, module: nn.BatchNorm2d, inputs: list[str]) -> str:
    assert module.running_mean is not None
    assert module.running_var is not None
    parts = {
        "weight": module.weight,
        "bias": module.bias,
        "mean": module.running_mean,
        "variance": module.running_var,
    }
    constants = [graph.constant(f"{name}.{part}", values) for part, values in parts.items()]
    return graph.add("BatchNormalization", name, [*inputs, *constants], epsilon=module.eps)


def _linear(graph: _Graph, name: str, module: nn.Linear, inputs: list[str]) -> str:
    constants = [graph.constant(f"{name}.weight", module.weight), graph.constant(f"{name}.bias", module.bias)]
    return graph.add("Gemm", name, [*inputs, *constants], transB=1)


LAYERS: dict[type, Callable[[_Graph, str, Any, list[str]], str]] = {
    nn.Conv2d: _convolution,
    nn.BatchNorm2d: _norm,
    nn.Linear: _linear,
}


def _function(graph: _Graph, node: fx.Node, inputs: list[str]) -> str:
    match node.target:
        case F.relu | torch.relu:
            return graph.add("Relu", node.name, inputs)
        case operator.add | torch.add:
            return graph.add("Add", node.name, inputs)
        case operator.truediv:
            _, divisor = node.args
            assert isinstance(divisor, int | float)
            by = graph.constant(f"{node.name}.divisor", torch.tensor(float(divisor)))
            return graph.add("Div", node.name, [*inputs, by])
        case F.avg_pool2d:
            _, size = node.args
            assert set(node.kwargs) <= {"ceil_mode"}, node.kwargs
            sizes, rounds_up = [size, size], int(bool(node.kwargs.get("ceil_mode")))
            return graph.add("AveragePool", node.name, inputs, kernel_shape=sizes, strides=sizes, ceil_mode=rounds_up)
        case "mean":
            assert node.kwargs == {"dim": (2, 3)}, "the mean over all pixels alone has a form"
            return graph.add("Flatten", node.name, [graph.add("GlobalAveragePool", f"{node.name}.pool", inputs)])
    raise NotImplementedError(f"{node.target} has no ONNX form in {__name__} yet")
