"""Static int8 quantisation of an ONNX network, its ranges measured on the server-held examples."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfeast.data import Examples
from fedfeast.serving.onnx.packages import import_onnx, import_onnxruntime

CALIBRATED_AT_ONCE = 50  # examples


def quantise(network: bytes, path: Path, calibration: Examples, prepare: Callable[[Tensor], Tensor]) -> None:
    """Write a serialised ONNX network in int8; ``prepare`` makes its input of those that the data have."""
    onnx = import_onnx()
    proto = onnx.load_from_string(network)
    (entry,) = proto.graph.input
    import_onnxruntime()
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # the package has no types
        """Hands out the calibration examples in batches."""

        def __init__(self) -> None:
            self._batches: Iterator[Tensor] = iter(torch.split(calibration.inputs, CALIBRATED_AT_ONCE))

        def get_next(self) -> dict[str, Any] | None:
            """Return the next batch by input name, None at the end."""
            images = next(self._batches, None)
            return None if images is None else {entry.name: prepare(images).cpu().numpy()}

    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises to pre-process, which folding the norms has done
    try:
        quantization.quantize_static(
            proto,
            path,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            # Choice: seven bits of the weights: CPUs without VNNI add pairs of products in 16 bits (decision 018).
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        logging.getLogger().setLevel(level)
