import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks import ElasticResNet, Layout, SearchSpace
from fedfeast.serving.families import elastic_resnet
from fedfeast.serving.families.registry import FAMILIES, Family, family_named, family_of, state_dict_of


def test_a_family_is_found_by_its_network_and_by_its_name() -> None:
    network = ElasticResNet(SearchSpace())
    family = family_of(network)
    assert isinstance(family, Family)
    assert family is FAMILIES["elastic-resnet"]
    table = family.describe(network, network.space.smallest)
    assert family_named(table) is family
    assert isinstance(family.build(table), elastic_resnet.Network)
    assert "class Network" in family.source()


def test_what_has_no_family_is_traced_and_an_unknown_name_is_said() -> None:
    assert family_of("network") is FAMILIES["traced"]
    with pytest.raises(InvalidInput, match="network family 'other' is unknown"):
        family_named({"family": "other"})


def test_tensors_are_named_as_torch_layers_name_them() -> None:
    shapes = {
        "stem.conv": (2, 1, 3, 3),
        "stem.norm.scale": (2,),
        "stem.norm.shift": (2,),
        "head.weight": (5, 2),
        "head.bias": (5,),
    }
    layout = Layout.of(shapes)
    flat = torch.arange(layout.size, dtype=torch.float64)
    deployed = Deployed(ElasticResNet(SearchSpace()), None, layout, flat, 1, 1)
    tensors = state_dict_of(deployed, {"stem.norm": (torch.zeros(2), torch.ones(2))})
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "stem.conv.weight": (2, 1, 3, 3),
        "stem.norm.weight": (2,),
        "stem.norm.bias": (2,),
        "head.weight": (5, 2),
        "head.bias": (5,),
        "stem.norm.running_mean": (2,),
        "stem.norm.running_var": (2,),
    }
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    assert all(tensor.is_contiguous() for tensor in tensors.values())
