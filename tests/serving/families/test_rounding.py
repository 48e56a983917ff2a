from pathlib import Path

import pytest
import tiny
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.families.rounding import round_deployed, round_tensors
from fedfeast.serving.families.standalone import read_weights

FLOAT16 = fedfeast.BundleOptions(float16=True)


def test_what_float16_does_not_have_is_refused_by_its_tensors_name() -> None:
    tensors = {"stem.conv.weight": torch.tensor([0.1, -65504.0]), "stem.norm.running_var": torch.tensor([1.0, 7e4])}
    sentence = r"--float16: the tensor stem.norm.running_var holds 70000, which is beyond float16 \(at most 65504\)"
    with pytest.raises(InvalidInput, match=sentence):
        round_tensors(tensors)
    with pytest.raises(InvalidInput, match="the tensor head holds nan"):
        round_tensors({"head": torch.tensor([[torch.nan]])})
    rounded = round_tensors({"stem.conv.weight": tensors["stem.conv.weight"]})["stem.conv.weight"]
    assert (rounded.dtype, rounded[0].item(), rounded[1].item()) == (torch.float16, 0.0999755859375, -65504)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rounded_network_keeps_its_precision(dtype: torch.dtype) -> None:
    deployed = tiny.deployed()
    statistics = {"stem.norm": (torch.tensor([0.1], dtype=dtype), torch.tensor([1 / 3], dtype=dtype))}
    rounded, served = round_deployed(deployed, statistics)
    mean, variance = served["stem.norm"]
    assert (mean.dtype, mean.item(), variance.item()) == (dtype, 0.0999755859375, 0.333251953125)
    assert rounded.flat.dtype == deployed.flat.dtype
    assert torch.equal(rounded.flat, deployed.flat.half().float())
    assert not torch.equal(rounded.flat, deployed.flat)


@pytest.mark.parametrize("method", ["heterofl", "fiarse"])
def test_other_families_and_masked_networks_are_rounded_too(method: str, tmp_path: Path) -> None:
    settings = {**tiny.TINY, "training.rounds": 1, "training.clients_per_round": 2, "method.name": method}
    run = fedfeast.train("digits", out=tmp_path / "run", settings=settings)
    plain = fedfeast.extract(run, tmp_path / "plain", fedfeast.Limits(max_macs=1e9))
    manifest = fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9), options=FLOAT16)
    assert manifest["masked"] == plain["masked"]
    assert manifest["bytes"] < 0.6 * plain["bytes"]
    before, after = (read_weights(tmp_path / name / "weights.safetensors") for name in ("plain", "bundle"))
    assert all(torch.equal(after[name], before[name].half()) for name in before)
    assert fedfeast.verify(tmp_path / "bundle")[0]["largest_differences"] == {"torch": 0.0}


def test_a_run_with_weights_beyond_float16_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    settings = {**tiny.TINY, "training.rounds": 1, "training.clients_per_round": 2, "network.branch_scale": 1e6}
    run = fedfeast.train("digits", out=tmp_path / "run", settings=settings)
    with pytest.raises(InvalidInput, match=r"stage1.block0.norm2.weight holds \S+, which is beyond float16"):
        fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9), options=FLOAT16)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_another_training_may_start_from_rounded_weights(tmp_path: Path) -> None:
    settings = {**tiny.TINY, "training.rounds": 1, "training.clients_per_round": 2}
    run = fedfeast.train("digits", out=tmp_path / "run", settings=settings)
    fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9), options=FLOAT16)
    start = {"network.weights": str(tmp_path / "bundle")}
    again = fedfeast.train("digits", out=tmp_path / "again", settings={**settings, **start})
    assert again.best().flat.dtype == torch.float32
