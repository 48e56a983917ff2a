from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedfeast.networks import Architecture, ElasticResNet, Level, ResNet, SearchSpace
from fedfeast.networks.ensemble import Bases, Ensemble
from fedfeast.serving.families.registry import Family, family_of
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.onnx.graph import build_onnx
from fedfeast.serving.onnx.session import Session

NORMALISATION = {"mean": [0.5, 0.4, 0.3], "deviation": [0.2, 0.25, 0.3]}


def made_up(network: nn.Module, size: int) -> Model:
    """Return a network with statistics that matter, as a model of pixels."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                channels = torch.arange(1.0, module.num_features + 1) / module.num_features
                for tensor, value in ((module.weight, channels), (module.bias, channels - 0.5)):
                    tensor.copy_(value)
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.copy_(0.3 * channels)
                module.running_var.copy_(0.5 + channels)
    return Model(network, {"image_channels": 3, "image_size": size, **NORMALISATION}).eval()


@pytest.fixture
def elastic() -> Model:
    network = ElasticResNet(SearchSpace(image_size=9, classes=7))  # odd: pooling has incomplete windows
    architecture = Architecture((1, 0, 2, 0), (0.25, 0.1, 0.22, 0.1), (3, 1, 2, 0, 1))
    family = family_of(network)
    assert isinstance(family, Family)
    return made_up(family.build(family.describe(network, architecture)), 9)


def pixels(number: int, size: int) -> Tensor:
    return (torch.arange(number * 3 * size * size) * 37 % 256).to(torch.uint8).reshape(number, 3, size, size)


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("number", [1, 5])
def test_any_number_of_pixels_gives_torchs_logits(elastic: Model, opset: int, number: int) -> None:
    session = Session(build_onnx(elastic, opset, takes_pixels=True).SerializeToString())
    assert session.input_dtype == torch.uint8
    with torch.no_grad():
        torch.testing.assert_close(session(pixels(number, 9)), elastic(pixels(number, 9)), rtol=1e-4, atol=1e-5)


RESNET = ResNet((4, 6), (1, 1), (1, 2), image_size=8, classes=5, early_exits=True, averages_exits=True)


@pytest.mark.parametrize(
    ("network", "architecture"),
    [
        pytest.param(RESNET, RESNET.whole, id="the mean of exits"),
        pytest.param(replace(RESNET, averages_exits=False), Level((4, 6), (2,), divisor=0.5), id="divided"),
        pytest.param(Ensemble(RESNET, 3), Bases((0, 2)), id="an ensemble"),
    ],
)
def test_means_and_quotients_have_a_form(network: Any, architecture: Any) -> None:
    family = family_of(network)
    assert isinstance(family, Family)
    model = made_up(family.build(family.describe(network, architecture)), 8)
    session = Session(build_onnx(model, 17, takes_pixels=True).SerializeToString())
    with torch.no_grad():
        torch.testing.assert_close(session(pixels(3, 8)), model(pixels(3, 8)), rtol=1e-4, atol=1e-5)


def test_normalised_images_go_in_as_an_option(elastic: Model) -> None:
    session = Session(build_onnx(elastic, 17, takes_pixels=False).SerializeToString())
    assert session.input_dtype == torch.float32
    images = elastic.normalise(pixels(3, 9))
    with torch.no_grad():
        torch.testing.assert_close(session(images), elastic(pixels(3, 9)), rtol=1e-4, atol=1e-5)


def test_norms_are_folded_and_the_bytes_are_the_same_each_time(elastic: Model) -> None:
    proto = build_onnx(elastic, 17, True, {"macs": "5"})
    kinds = [node.op_type for node in proto.graph.node]
    assert "BatchNormalization" not in kinds
    assert kinds.count("Conv") == 1 + 2 * 7 + 4
    assert {entry.key: entry.value for entry in proto.metadata_props} == {"macs": "5"}
    assert proto.SerializeToString() == build_onnx(elastic, 17, True, {"macs": "5"}).SerializeToString()
    assert any(isinstance(module, nn.BatchNorm2d) for module in elastic.modules()), "the model itself stays as it is"


class PreActivated(nn.Module):
    """What other families have: norms before convolutions, a convolution with two readers, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 8, 1, bias=False)
        self.head = nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Any:
        features = self.conv(images)
        hidden = self.conv1(F.relu(self.norm1(features)))
        features = hidden + self.conv2(F.avg_pool2d(features, 2))
        return self.head(F.relu(self.norm2(features)).mean(dim=(2, 3)))


def test_a_norm_that_cannot_be_folded_stays() -> None:
    model = made_up(PreActivated(), 8)
    proto = build_onnx(model, 17, takes_pixels=True)
    assert [node.op_type for node in proto.graph.node].count("BatchNormalization") == 2
    with torch.no_grad():
        expected = model(pixels(2, 8))
    torch.testing.assert_close(Session(proto.SerializeToString())(pixels(2, 8)), expected, rtol=1e-4, atol=1e-5)


class Strange(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, images: Tensor) -> Any:
        return torch.tanh(self.layer(images))


@pytest.mark.parametrize(("layer", "name"), [(nn.PReLU(), "PReLU"), (nn.Conv2d(3, 3, 1), "tanh")])
def test_what_has_no_form_is_named(layer: nn.Module, name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{name}.* has no ONNX form"):
        build_onnx(made_up(Strange(layer), 8), 17, takes_pixels=True)


def test_the_file_is_valid(elastic: Model, tmp_path: Path) -> None:
    import onnx

    proto = build_onnx(elastic, 17, takes_pixels=True)
    onnx.checker.check_model(proto, full_check=True)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    assert Session(tmp_path / "model.onnx").input_shape == (3, 9, 9)
