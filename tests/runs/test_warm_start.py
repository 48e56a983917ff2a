"""Training begins where other weights stand: those of a run, a bundle or a plain state dict."""

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from own_networks import built_cnn
from safetensors.torch import save_file
from tiny import TINY
from torch import Tensor, nn

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.networks import ElasticNetwork
from fedfeast.networks.built import BuiltNetwork, elastic
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble
from fedfeast.runs.warm_start import read_weights, warm_start

SHORT = {**TINY, "training.rounds": 1, "training.clients_per_round": 1, "evaluation.every_rounds": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", tmp_path_factory.mktemp("runs") / "run", SHORT)


def start_from(source: Path | str, **settings: Any) -> Tensor:
    recipe = load_recipe("digits", {**SHORT, "network.weights": str(source), **settings})
    return assemble(recipe).initial_weights()


def drawn(network: ElasticNetwork) -> Tensor:
    return network.initial_weights(named_generator(7, "others"))


def test_a_run_folder_gives_its_best_weights(run: fedfeast.Run) -> None:
    assert torch.equal(start_from(run.folder.path), run.best().flat)
    assert not torch.equal(
        start_from(run.folder.path, seed=3), assemble(load_recipe("digits", SHORT)).initial_weights()
    )


def test_training_goes_on_from_them(run: fedfeast.Run, tmp_path: Path) -> None:
    settings = {**SHORT, "network.weights": str(run.folder.path), "training.learning_rate": 1e-9}
    after = fedfeast.train("digits", tmp_path / "run", {**settings, "training.weight_decay": 0.0})
    assert torch.allclose(after.best().flat, run.best().flat, atol=1e-6)


def test_a_bundle_starts_the_slice_that_it_is(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=200e3))
    method = run.federation.method
    point = next(point for point in method.operating_points() if point.macs == manifest["macs"])
    started, best = start_from(tmp_path / "bundle", seed=3), run.best().flat
    shapes = method.network.shapes(point.architecture)
    for name, view in method.network.layout.views(started, shapes).items():
        assert torch.equal(view, method.network.layout.views(best, shapes)[name]), name
    assert not torch.equal(started, best)


@pytest.mark.parametrize("form", [".pt", ".safetensors"])
def test_a_plain_state_dict_starts_a_network_of_ones_own(form: str, tmp_path: Path) -> None:
    network = built_cnn()
    other = network.layout.views(drawn(network))
    state = {name: tensor.clone().contiguous() for name, tensor in other.items()}
    state["norm.running_mean"] = torch.zeros(4)  # a module's statistics are measured anew
    (save_file if form == ".safetensors" else torch.save)(state, tmp_path / f"weights{form}")
    flat = network.initial_weights(named_generator(0))
    warm_start(flat, network, str(tmp_path / f"weights{form}"))
    for name, view in network.layout.views(flat).items():
        assert torch.equal(view, other[name]), name


def test_a_smaller_state_dict_starts_leading_slices(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = built_cnn()
    torch.save({"stem.weight": torch.ones(2, 1, 3, 3)}, tmp_path / "part.pt")
    flat = network.initial_weights(named_generator(0))
    before = network.layout.views(flat.clone())
    with caplog.at_level(logging.INFO, "fedfeast"):
        warm_start(flat, network, str(tmp_path / "part.pt"))
    after = network.layout.views(flat)
    assert bool((after["stem.weight"][:2] == 1).all())
    assert torch.equal(after["stem.weight"][2:], before["stem.weight"][2:])
    assert torch.equal(after["head.weight"], before["head.weight"])
    assert f"18 of {network.layout.num_parameters} weights come from" in caplog.text


@elastic(width=[2, 4], frozen=["body.*"])
def tied(width: int) -> nn.Module:
    return Tied(width)


class Tied(nn.Module):
    """A parameter under two names, one that is frozen, and a buffer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, width), nn.Linear(width, 5, bias=False)
        self.head.weight = self.table.weight
        self.body = nn.Linear(5, 5)
        self.register_buffer("places", torch.arange(3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.body(self.head(self.table(tokens)))
        return logits


def test_a_module_s_own_state_dict_starts_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = BuiltNetwork(tied, {}, (3,), torch.int64)
    torch.save(
        {**Tied(4).state_dict(), "table.weight": torch.ones(5, 4), "head.weight": torch.ones(5, 4)}, tmp_path / "s.pt"
    )
    flat = network.initial_weights(named_generator(0))
    with caplog.at_level(logging.INFO, "fedfeast"):
        warm_start(flat, network, str(tmp_path / "s.pt"))
    assert bool((network.layout.views(flat)["table.weight"] == 1).all())
    assert f"20 of {network.layout.num_parameters} weights" in caplog.text
    assert f"3 tensors of {tmp_path / 's.pt'} do not learn and were left out" in caplog.text


class Harmful:
    """What a careless reader would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("harm", "w"))


def test_what_cannot_start_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = built_cnn()
    torch.save({"body.weight": torch.ones(2)}, "other.pt")
    torch.save({"stem.weight": torch.ones(9, 1, 3, 3)}, "larger.pt")
    torch.save({"stem.weight": torch.ones(4)}, "flat.pt")
    torch.save({"norm.num_batches_tracked": torch.tensor(3)}, "statistics.pt")
    torch.save([torch.ones(2)], "list.pt")
    torch.save({"rounds": 3}, "numbers.pt")
    Path("text.pt").write_text("no weights")
    Path("cut.safetensors").write_bytes(b"no weights")
    Path("harmful.pt").write_bytes(pickle.dumps(Harmful()))
    sentences = {
        "other.pt": "holds 'body.weight', which the network does not have (it has stem.weight",
        "larger.pt": "holds stem.weight of shape (9, 1, 3, 3), and the network's is (4, 1, 3, 3)",
        "flat.pt": "holds stem.weight of shape (4,), and the network's is (4, 1, 3, 3)",
        "statistics.pt": "holds no weights of this network: give another file",
        "list.pt": "cannot be read (it holds list and not tensors by name)",
        "numbers.pt": "cannot be read (it holds dict and not tensors by name)",
        "text.pt": "cannot be read (",
        "cut.safetensors": "cannot be read (",
        "harmful.pt": "cannot be read (",
        "nowhere.pt": "is neither a run folder nor a bundle nor a file: give one of these",
    }
    for file, words in sentences.items():
        with pytest.raises(InvalidInput) as caught:
            warm_start(network.initial_weights(named_generator(0)), network, file)
        assert words in str(caught.value), file
        assert str(caught.value).startswith(f"network.weights = '{file}'")
    assert not Path("harm").exists(), "nothing that is read runs"


def test_a_run_without_a_checkpoint_says_how_to_go_on(tmp_path: Path) -> None:
    fedfeast.Run.create("digits", tmp_path / "run", SHORT)
    with pytest.raises(InvalidInput, match=r"is a run without a checkpoint: train on with fedfeast train"):
        read_weights(tmp_path / "run")
