"""Which ONNX files of others are run: networks that compute forward once, from what is in the file alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.serving.onnx.packages import import_onnx

DOMAINS = ("", "ai.onnx", "com.microsoft")  # of quantised networks the last


def require_plain_network(path: Path) -> None:
    """Refuse a file that could loop for ever, or read other files."""
    onnx = import_onnx()
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own, of bytes that are none
        raise InvalidInput(f"{path} is no ONNX file: export it again.") from error
    external = onnx.TensorProto.EXTERNAL
    found = next(_found_in(model.graph, external), "functions of its own" if model.functions else None)
    if found is not None:
        raise InvalidInput(f"{path} holds {found}, which no network that fedfeast wrote has: do not use it.")


def _found_in(graph: Any, external: int) -> Iterator[str]:
    yield from (f"weights of another file ({one.name})" for one in graph.initializer if one.data_location == external)
    for node in graph.node:
        if node.domain not in DOMAINS:
            yield f"the operation {node.domain}.{node.op_type}"
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                yield f"a branch or a loop ({node.op_type})"
            if attribute.HasField("t") and attribute.t.data_location == external:
                yield f"weights of another file ({node.name})"
