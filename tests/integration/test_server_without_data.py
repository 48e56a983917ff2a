"""A fleet's server that holds no example: facts and normalisation from its recipe, all figures from its clients."""

from pathlib import Path

import pytest
import torch
from flwr.supercore.task_identity import TaskIdentity
from local_grid import SMALL, LocalGrid
from natural_data import NUMBERS_NET, SETTINGS, TOKENS_NET, write_numbers, write_tokens
from safetensors.torch import load_file

import fedfeast
from fedfeast.data import OFFICIAL, Normalisation, load_dataset, measure_normalisation
from fedfeast.errors import InvalidInput
from fedfeast.flower import fleet as fleet_module
from fedfeast.flower.server import serve_run
from fedfeast.presentation.report import write_report
from fedfeast.presentation.tables import describe_run
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import split_data
from fedfeast.server.answers import describe_run as describe_for_page
from fedfeast.server.shown.watched_run import WatchedRun
from fedfeast.serving.bundle import describe_bundle, extract
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import ExportOptions, export
from fedfeast.serving.extraction import BundleOptions, Extractor
from fedfeast.serving.verification import verify

KEPT_BACK = "examples that clients kept back"
NODE = """
from pathlib import Path
from fedfeast.data import load_dataset
def examples_of(client):
    data = load_dataset({name!r}, {folder!r})
    mine = data.clients.train == client
    return data.train.inputs[mine].numpy(), data.train.labels[mine].numpy()
def first(): return examples_of(0)
def second(): return examples_of(1)
def third(): return examples_of(2)
"""
DIGITS = """
from fedfeast.data import load_dataset
def half(start):
    train = load_dataset("digits").train
    return train.inputs[start:300:2].numpy(), train.labels[start:300:2].numpy()
def even(): return half(0)
def odd(): return half(1)
"""
DESCRIBED = {
    "moves": 'data.description={classes = 3, kind = "numbers", shape = [2, 8]}',
    "letters": 'data.description={classes = 5, kind = "tokens", shape = [6], task = "next-token"}',
}
NETWORKS = {"moves": (write_numbers, NUMBERS_NET), "letters": (write_tokens, TOKENS_NET)}


@pytest.fixture(autouse=True)
def inside_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can be made only inside a Flower task; pretend to be in one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(fleet_module, "POLL_SECONDS", 0.01)


def serve(folder: Path, name: str, data: Path, *settings: str) -> Run:
    """Train over three nodes with data of their own; the server looks for the data set in a folder of its own."""
    builder, source = f"{folder / name}_net.py:net", folder / "nodes.py"
    (folder / f"{name}_net.py").write_text(NETWORKS[name][1])
    source.write_text(NODE.format(name=name, folder=str(folder / "clients")))
    (folder / "recipe.toml").write_text(f'name = "{name}"\n[data]\nname = "{name}"\nfolder = "{data}"\n')
    nodes = {
        10 + index: {"name": who, "budget-macs": budget, "data": f"{source}:{who}", "builder": builder}
        for index, (who, budget) in enumerate((("first", 150), ("second", 250), ("third", 250)))
    }
    given = [one for one in SETTINGS if not one.startswith("population.source")]
    given += ["evaluation.by=clients", "evaluation.client_share=0.2", "fleet.least_clients=3"]
    out = folder / ("here" if (data / name).is_dir() else "away")
    return serve_run(
        LocalGrid(nodes), str(folder / "recipe.toml"), [*given, f"network.builder={builder}", *settings], out
    )


@pytest.fixture
def normalised(tmp_path: Path) -> tuple[str, str]:
    """Write the clients' data; return the settings that stand for what the server would measure."""
    (tmp_path / "clients").mkdir()
    write_numbers(tmp_path / "clients")
    measured = measure_normalisation(load_dataset("moves", str(tmp_path / "clients")).train.inputs)
    return f"data.mean={list(measured.mean)}", f"data.deviation={list(measured.deviation)}"


def test_the_same_weights_come_out_as_with_data_on_the_server(tmp_path: Path, normalised: tuple[str, str]) -> None:
    here = serve(tmp_path, "moves", tmp_path / "clients", *normalised)
    away = serve(tmp_path, "moves", tmp_path / "nothing", DESCRIBED["moves"], *normalised)
    assert not (tmp_path / "nothing").exists()
    assert torch.equal(here.best().flat, away.best().flat)
    summary = away.summary
    assert summary["validation_curve"] == here.summary["validation_curve"] == summary["curve"]
    assert (summary["curve_from"], "curve_from" in here.summary) == (KEPT_BACK, False)
    assert [point.macs for point in away.curve.points] == [102, 204]  # what some client affords
    assert [point.macs for point in here.curve.points] == [102, 204, 408]
    assert away.population_score == away.curve.population_score(away.folder.budgets_macs()) > 0
    with pytest.raises(InvalidInput, match="client wins need the same examples"):
        away.client_wins(here)


def test_networks_leave_a_server_without_data(tmp_path: Path, normalised: tuple[str, str]) -> None:
    run = serve(tmp_path, "moves", tmp_path / "nothing", DESCRIBED["moves"], *normalised)
    opened = Run.open(run.folder.path)  # without its fleet
    assert opened.evaluate() == run.curve
    assert opened.summary["curve_from"] == KEPT_BACK
    manifest = extract(opened, tmp_path / "bundle", Limits(max_macs=1e6))
    assert manifest["macs"] == 204  # the largest that was measured
    assert manifest["test_accuracy"] == run.curve.points[-1].accuracy
    assert manifest["accuracy_from"]["test"] == KEPT_BACK
    assert manifest["calibration"]["by"] == "clients"
    assert manifest["samples_from"].startswith("inputs drawn at random")
    assert " accuracy" in describe_bundle(manifest)
    assert "test" not in describe_bundle(manifest)
    assert f"({KEPT_BACK})" in (tmp_path / "bundle/README.md").read_text()
    samples = load_file(tmp_path / "bundle/samples.safetensors")
    assert samples["images"].shape == (16, 2, 8)
    assert len(set(samples["images"].flatten().tolist())) > 200
    (checked,) = verify(tmp_path / "bundle")
    assert checked["largest_differences"] == {"torch": 0.0}
    assert extract(opened, tmp_path / "again", Limits(max_macs=1e6))["sha256"] == manifest["sha256"]
    rounded = extract(opened, tmp_path / "rounded", Limits(max_macs=1e6), options=BundleOptions(float16=True))
    assert rounded["test_accuracy"] == manifest["test_accuracy"]
    assert rounded["accuracy_from"]["test"] == f"{KEPT_BACK}, before rounding to float16"
    assert f"({KEPT_BACK}, before rounding to float16)" in (tmp_path / "rounded/README.md").read_text()
    assert "test" not in describe_bundle(rounded)
    limits, program = Limits(max_macs=150), ExportOptions(formats=("pt2",))
    assert export(opened, tmp_path / "small.pt2", limits, program)["macs"] == 102
    with pytest.raises(InvalidInput, match="no client has measured the network"):
        Extractor(opened).extract(opened.federation.method.operating_points()[-1])
    with pytest.raises(InvalidInput, match="int8 is calibrated and measured on examples"):
        export(opened, tmp_path / "int8.onnx", limits, ExportOptions(formats=("int8",)))


def test_tables_report_and_page_say_what_was_measured(tmp_path: Path, normalised: tuple[str, str]) -> None:
    run = serve(tmp_path, "moves", tmp_path / "nothing", DESCRIBED["moves"], *normalised)
    table, *lines = describe_run({**run.summary, "picture": ""}, run.folder.budgets_macs())
    assert f"measured on        {KEPT_BACK}" in lines
    assert [str(column.header) for column in table.columns][3] == "accuracy"  # type: ignore[union-attr]
    write_report([run], tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    assert f"Measured on {KEPT_BACK}: away." in report
    assert "Test accuracy" not in report
    told = describe_for_page(WatchedRun(run.folder.path, "away"), ["away"])
    assert (told.measured_on, told.note) == (KEPT_BACK, f"Finished and measured on {KEPT_BACK}.")


def test_tokens_need_no_normalisation(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    write_tokens(tmp_path / "clients")
    run = serve(tmp_path, "letters", tmp_path / "nothing", DESCRIBED["letters"])
    assert run.summary["metric"]["name"] == "bits"
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=1e6))
    assert (manifest["calibration"]["examples"], manifest["network"]["batch_norms"]) == (0, 0)
    assert manifest["figures_from"]["test"] == KEPT_BACK
    assert verify(tmp_path / "bundle")[0]["samples"] == 16


def test_images_of_the_elastic_resnet(tmp_path: Path) -> None:
    (tmp_path / "nodes.py").write_text(DIGITS)
    names = ("even", "odd")
    nodes = {
        n: {"name": who, "budget-macs": 1e9, "data": f"{tmp_path}/nodes.py:{who}"} for n, who in enumerate(names, 1)
    }
    settings = [*SMALL, "data.name=away", "data.description={classes = 10, shape = [1, 8, 8]}", "fleet.least_clients=2"]
    settings += ["data.mean=[0.3]", "data.deviation=[0.37]", "evaluation.by=clients", f"data.folder={tmp_path}"]
    run = serve_run(LocalGrid(nodes), "digits", settings, tmp_path / "run")
    assert len(run.curve.points) == len(run.federation.method.operating_points())
    manifest = extract(Run.open(run.folder.path), tmp_path / "bundle", Limits(max_macs=1e9))
    assert manifest["class_names"] == [str(number) for number in range(10)]
    images = load_file(tmp_path / "bundle/samples.safetensors")["images"]
    assert (images.dtype, int(images.max()) > 250) == (torch.uint8, True)
    assert verify(tmp_path / "bundle")[0]["samples"] == 16


def test_of_official_data_the_published_normalisation_is_enough(tmp_path: Path) -> None:
    away = ("population.source=fleet", "evaluation.by=clients", f"data.folder={tmp_path}")
    split = split_data(load_recipe("cifar100-short", away))
    assert split.normalisation == OFFICIAL["cifar100"].normalisation
    assert (split.pool.inputs.shape, split.pool.inputs.dtype, split.tests) == ((0, 3, 32, 32), torch.uint8, {})
    given = ("data.mean=[0, 0, 0]", "data.deviation=[1, 1, 1]")
    assert split_data(load_recipe("cifar100-short", [*away, *given])).normalisation == Normalisation((0,) * 3, (1,) * 3)


def test_a_test_curve_is_not_replaced_when_the_data_are_gone(tmp_path: Path, normalised: tuple[str, str]) -> None:
    run = serve(tmp_path, "moves", tmp_path / "clients", *normalised)
    (tmp_path / "clients").rename(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="was measured on a test set, and the data set 'moves' is not here"):
        Run.open(run.folder.path).evaluate()
    (run.folder.path / "summary.json").unlink()
    with pytest.raises(InvalidInput, match="neither its clients nor a test set are here: start the fleet's run again"):
        Run.open(run.folder.path).evaluate()


def test_what_a_server_without_data_must_be_told(tmp_path: Path, normalised: tuple[str, str]) -> None:
    nothing = tmp_path / "nothing"
    with pytest.raises(InvalidInput, match=r"data.name = 'moves' is no data set: .* data\.description"):
        serve(tmp_path, "moves", nothing)
    with pytest.raises(InvalidInput, match=r"set data\.mean and data\.deviation to 2 numbers each"):
        serve(tmp_path, "moves", nothing, DESCRIBED["moves"])
    with pytest.raises(InvalidInput, match=r"'moves' is no data set"):
        serve(tmp_path, "moves", nothing, DESCRIBED["moves"], *normalised, "evaluation.by=server")


@pytest.mark.parametrize("evaluation", ["evaluation.by=clients", "evaluation.by=server"])
def test_simulation_needs_the_data_all_the_same(tmp_path: Path, evaluation: str) -> None:
    described = [DESCRIBED["moves"], "data.mean=[0, 0]", "data.deviation=[1, 1]", "network.builder=conv1d"]
    (tmp_path / "recipe.toml").write_text(f'name = "away"\n[data]\nname = "moves"\nfolder = "{tmp_path}"\n')
    with pytest.raises(InvalidInput, match="'moves' is no data set"):
        fedfeast.train(tmp_path / "recipe.toml", tmp_path / "run", [*described, evaluation])
