"""Where training begins instead of drawn weights: a run's best, a bundle's, or a plain state dict's."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks import Network
from fedfeast.networks.built import BuiltNetwork
from fedfeast.recipes.building import build_method
from fedfeast.runs.folder import RunFolder

NO_PARAMETERS = (".running_mean", ".running_var", ".num_batches_tracked")  # measured anew for serving


def warm_start(flat: Tensor, network: Network, source: str) -> None:
    """Write the weights of a run folder, a bundle or a state dict over the drawn ones, by name, as leading slices."""
    given = read_weights(Path(source).expanduser())
    filled, left_out, written = 0, 0, set[str]()
    layout = network.layout
    views = layout.views(flat)
    # A state dict has shared parameters under all their names, and what does not learn too.
    in_state = network.learning_names() if isinstance(network, BuiltNetwork) else {}
    for name, tensor in given.items():
        own = in_state.get(name) or next((own for own in _own_names(name) if own in views), None)
        if own is None:
            if name in in_state or name.endswith(NO_PARAMETERS):
                left_out += 1
                continue
            known = ", ".join(list(views)[:4])
            raise InvalidInput(
                f"network.weights = {source!r} holds {name!r}, which the network does not have (it has {known}, ...): "
                "give weights of the same network, or rename them."
            )
        full = views[own]
        if tensor.dim() != full.dim() or any(
            part > whole for part, whole in zip(tensor.shape, full.shape, strict=True)
        ):
            raise InvalidInput(
                f"network.weights = {source!r} holds {name} of shape {tuple(tensor.shape)}, and the network's is "
                f"{tuple(full.shape)}: a part of a network starts the whole, but not the other way round."
            )
        full[tuple(slice(0, length) for length in tensor.shape)] = tensor.to(full.dtype)
        if own not in written:
            filled += tensor.numel()
        written.add(own)
    if not filled:
        raise InvalidInput(f"network.weights = {source!r} holds no weights of this network: give another file.")
    log = logging.getLogger("fedfeast")
    log.info("%d of %d weights come from %s", filled, layout.num_parameters, source)
    if left_out:
        log.info("%d tensors of %s do not learn and were left out", left_out, source)


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Return tensors by name; nothing of what is read is run as code."""
    if (path / "recipe.toml").is_file():
        return _best_weights(path)
    file = path / "weights.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise InvalidInput(
            f"network.weights = {str(path)!r} is neither a run folder nor a bundle nor a file: give one of these."
        )
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, ValueError, RuntimeError, EOFError, KeyError) as error:
        raise _unreadable(file, str(error).splitlines()[0]) from error
    except Exception as error:  # torch.load raises pickle's own errors for what it will not run
        raise _unreadable(file, type(error).__name__) from error
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise _unreadable(file, f"it holds {type(found).__name__} and not tensors by name")
    return dict(found)


def _best_weights(path: Path) -> dict[str, Tensor]:
    folder = RunFolder.open(path)
    state, _ = folder.checkpoints.load_latest()
    if state is None:
        raise InvalidInput(f"network.weights = {str(path)!r} is a run without a checkpoint: {folder.how_to_go_on()}.")
    method, _ = build_method(folder.recipe())
    flat = state.flat if state.best is None else state.best.flat
    return method.network.layout.views(flat.cpu())


def _own_names(name: str) -> Iterator[str]:
    """Yield what our networks may call a tensor of a plain module."""
    yield name
    stem, _, ending = name.rpartition(".")
    if ending == "weight":
        yield stem
        yield f"{stem}.scale"
    if ending == "bias":
        yield f"{stem}.shift"


def _unreadable(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"network.weights = {str(file)!r} cannot be read ({why}): give a state dict saved by torch.save or safetensors."
    )
