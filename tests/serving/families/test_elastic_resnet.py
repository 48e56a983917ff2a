"""The elastic ResNet that goes into bundles, against the one that is trained."""

import ast
from pathlib import Path

import torch

from fedfeast.federation import Deployed
from fedfeast.networks import Architecture, ElasticResNet, Layout, SearchSpace
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.randomness import named_generator
from fedfeast.serving.families import elastic_resnet
from fedfeast.serving.families.registry import state_dict_of

NETWORK = ElasticResNet(SearchSpace(image_size=9, classes=7))
ARCHITECTURE = Architecture((1, 0, 2, 0), (0.25, 0.1, 0.22, 0.1), (3, 1, 2, 0, 1))


def test_the_module_gives_the_same_logits() -> None:
    layout = Layout.of(NETWORK.shapes(ARCHITECTURE))
    generator = named_generator(0, "standalone")
    flat = torch.from_numpy(generator.normal(size=layout.size) * 0.1).float()
    statistics = {}
    for name, shape in layout.shapes.items():
        if name.endswith(".scale"):
            mean, variance = (torch.from_numpy(generator.uniform(0.1, 1, shape)).float() for _ in range(2))
            statistics[name.removesuffix(".scale")] = (mean, variance)
    deployed = Deployed(NETWORK, ARCHITECTURE, layout, flat, 1, 1)
    module = elastic_resnet.Network(elastic_resnet.describe(NETWORK, ARCHITECTURE)).eval()
    loaded = module.load_state_dict(state_dict_of(deployed, statistics), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in loaded.missing_keys)
    assert loaded.unexpected_keys == []
    images = torch.from_numpy(generator.normal(size=(4, 3, 9, 9))).float()
    torch.testing.assert_close(module(images), deployed(images, ByStatistics(statistics)))


def test_the_module_has_the_counted_parameters() -> None:
    module = elastic_resnet.Network(elastic_resnet.describe(NETWORK, ARCHITECTURE))
    assert sum(parameter.numel() for parameter in module.parameters()) == NETWORK.parameters(ARCHITECTURE)


def test_the_file_needs_torch_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(elastic_resnet.__file__).read_text())
    roots = set()
    for node in tree.body:  # what is imported for type checking alone is never run
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    assert roots == {"typing", "torch"}
