"""The loader that goes into a bundle, against the network it was taken from."""

import ast
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from fedfeast.data import Normalisation
from fedfeast.federation import Deployed
from fedfeast.networks import Architecture, ElasticResNet, Layout, SearchSpace
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.randomness import named_generator
from fedfeast.serving import standalone
from fedfeast.serving.bundle import describe_network, state_dict_of

SPACE = SearchSpace(image_size=9, classes=7)
ARCHITECTURE = Architecture((1, 0, 2, 0), (0.25, 0.1, 0.22, 0.1), (3, 1, 2, 0, 1))
NORMALISATION = Normalisation((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


def test_the_module_gives_the_same_logits() -> None:
    network = ElasticResNet(SPACE)
    layout = Layout.of(network.shapes(ARCHITECTURE))
    generator = named_generator(0, "standalone")
    flat = torch.from_numpy(generator.normal(size=layout.size) * 0.1).float()
    norms = [name.removesuffix(".scale") for name in layout.shapes if name.endswith(".scale")]
    statistics = {
        name: tuple(
            torch.from_numpy(generator.uniform(0.1, 1, layout.shapes[f"{name}.scale"])).float() for _ in range(2)
        )
        for name in norms
    }
    deployed = Deployed(network, ARCHITECTURE, layout, flat, 1, 1)
    model = standalone.Model(describe_network(SPACE, ARCHITECTURE, NORMALISATION)).eval()
    tensors = {name: tensor.contiguous() for name, tensor in state_dict_of(deployed, statistics).items()}  # type: ignore[arg-type]
    loaded = model.load_state_dict(tensors, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in loaded.missing_keys)
    assert loaded.unexpected_keys == []
    pixels = torch.from_numpy(generator.integers(0, 256, (4, 3, 9, 9)).astype(np.uint8))
    scaled = (pixels.float() / 255 - torch.tensor(NORMALISATION.mean)[:, None, None]) / torch.tensor(
        NORMALISATION.deviation
    )[:, None, None]
    torch.testing.assert_close(model(pixels), deployed(scaled, ByStatistics(statistics)))  # type: ignore[arg-type]


def test_weights_are_read_without_the_safetensors_package(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.5], dtype=torch.bfloat16)}
    save_file(tensors, tmp_path / "weights.safetensors", {"note": "text"})
    read = standalone.read_weights(tmp_path / "weights.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_the_file_imports_torch_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(standalone.__file__).read_text())
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    assert roots == {"json", "math", "pathlib", "typing", "torch"}
