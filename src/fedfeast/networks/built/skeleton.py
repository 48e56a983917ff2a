"""A member's module without weights of its own: every pass lends it views of a flat vector."""

import copy
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built.construction import Tensors
from fedfeast.networks.built.pass_layers import CurrentPass, PassDropout, with_pass_layers
from fedfeast.networks.layers import Layers, Weights

Owned = dict[str, Any]  # one module's own parameters; in a pass any tensor stands there


class Skeleton:
    """A copy of a module whose learning parameters are lent and whose other tensors lie on one device."""

    def __init__(
        self,
        module: nn.Module,
        tensors: Tensors,
        frozen: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self._current, self._lock, self._is_training = CurrentPass(), threading.RLock(), False
        # A builder may hand out one module twice, so a copy is changed; its parameters are not copied for that.
        parameters = dict(module.named_parameters())
        empty = {name: nn.Parameter(torch.empty_like(one, device="meta")) for name, one in parameters.items()}
        names = {id(one): name for name, one in empty.items()}
        try:
            copied = copy.deepcopy(module, {id(one): empty[name] for name, one in parameters.items()})
        except TypeError as error:
            raise InvalidInput(
                f"the network cannot be copied ({error}): keep no files, locks or streams in it."
            ) from error
        self.module = with_pass_layers(copied, self._current, frozenset(tensors.frozen)).eval()
        self._places: list[tuple[Owned, str, str]] = []  # where a parameter is lent to, and its full name
        for owned in (one._parameters for one in self.module.modules()):
            for own_name, parameter in owned.items():
                name = names.get(id(parameter), "")
                if name in tensors.learning:
                    self._places.append((owned, own_name, name))
                elif parameter is not None:
                    owned[own_name] = nn.Parameter(_moved(frozen[name], dtype, device), requires_grad=False)
        for buffers in (one._buffers for one in self.module.modules()):
            for own_name, buffer in buffers.items():
                buffers[own_name] = None if buffer is None else _moved(buffer, dtype, device)
        self._kept = [(owned, own_name, owned[own_name]) for owned, own_name, _ in self._places]
        # In torch's own order: a processor convolves so faster than from a flat vector's channels-last layout, and
        # images would come out of a convolution in that layout, where view() would refuse them.
        self._repacked = {name for name, shape in tensors.learning.items() if len(shape) == 4}
        self._recurrent = [one for one in self.module.modules() if isinstance(one, nn.RNNBase)]

    @property
    def draws(self) -> bool:
        """Whether some layer drops a share of its input."""
        return any(isinstance(one, PassDropout) and one.share > 0 for one in self.module.modules())

    def __call__(self, weights: Weights, inputs: Tensor, layers: Layers) -> Tensor:
        """Return the module's output with these weights."""
        # What torch.func.functional_call does, without its checks: those cost as much as a small layer, per tensor.
        with self._lock:
            if self._is_training != layers.training:
                self._is_training = layers.training
                self.module.train(layers.training)
            self._current.begin(layers)
            for owned, own_name, name in self._places:
                lent = weights[name]
                owned[own_name] = lent.reshape(-1).view(lent.shape) if name in self._repacked else lent
            self._refresh_recurrent()
            try:
                output = self.module(inputs)
            finally:
                for owned, own_name, parameter in self._kept:
                    owned[own_name] = parameter
        if not isinstance(output, Tensor):
            raise InvalidInput(
                f"the network's forward returned {type(output).__name__}: return one tensor, (batch, ...)."
            )
        return output

    def _refresh_recurrent(self) -> None:
        for one in self._recurrent:  # these keep a list of their parameters beside the parameters
            one._flat_weights = [one._parameters[name] for name in one._flat_weights_names]


def _moved(tensor: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return a tensor that does not learn as passes need it."""
    return tensor.detach().to(device, dtype if tensor.is_floating_point() else tensor.dtype)
