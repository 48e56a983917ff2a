import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfeast.data.tasks import task_named
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe import Recipe
from fedfeast.runs.folder import RunFolder

from .conftest import write_grey

RECIPE = load_recipe("digits")


def round_row(number: int) -> dict[str, Any]:
    return {"round": number, "losses": {}, "clients": [0], "payload_parameters": 1, "seconds": 0.5}


def clients_table(names: list[str], budgets: list[float]) -> dict[str, Any]:
    others = ("num_examples", "target_share", "realized_share")
    return {"name": names, "budget_macs": budgets, **{column: [1] * len(names) for column in others}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", RECIPE, threads=1, device="cpu")


def test_a_new_run_describes_itself(folder: RunFolder) -> None:
    assert folder.recipe() == RECIPE
    environment = folder.environment()
    assert environment["threads"] == 1
    assert environment["libraries"]["torch"]
    assert environment["processor"]


def test_the_same_recipe_reopens_the_run_and_keeps_its_environment(folder: RunFolder) -> None:
    again = RunFolder.create(folder.path, RECIPE, threads=2, device="cpu")
    assert again.environment()["threads"] == 1


def test_another_number_of_processes_brings_its_own_threads(folder: RunFolder) -> None:
    versions = folder.environment()["libraries"]
    for processes, threads in ((4, 2), (4, 9), (1, 8)):
        RunFolder.create(folder.path, RECIPE, threads, "cpu", processes)
        environment = folder.environment()
        assert environment["processes"] == processes
        assert environment["threads"] == (8 if processes == 1 else 2)
    assert environment["libraries"] == versions


def test_a_run_without_a_finished_round_gives_way_to_another_recipe(folder: RunFolder) -> None:
    other = load_recipe("digits", {"training.rounds": 3})
    assert RunFolder.create(folder.path, other, threads=2, device="cpu").recipe() == other
    assert folder.environment()["threads"] == 2


def test_data_may_move_to_another_folder(folder: RunFolder) -> None:
    folder.append_metrics(round_row(1))
    moved = load_recipe("digits", {"data.folder": "/elsewhere"})
    assert RunFolder.create(folder.path, moved, threads=1, device="cpu").recipe().data.folder == "/elsewhere"


def test_named_files_are_copied_and_a_change_is_refused(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("budget_macs\n2e5\n")
    recipe = load_recipe("digits", {"population.source": "file", "population.file": str(fleet)})
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    folder.append_metrics({"round": 1})
    fleet.write_text("budget_macs\n9e9\n")
    copy = Path(str(folder.recipe().population.file))
    assert copy.read_text() == "budget_macs\n2e5\n"
    with pytest.raises(InvalidInput, match=r"fleet.csv has changed since the run in .* began"):
        RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    fleet.unlink()
    assert RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu").recipe().population.file == str(copy)


def test_files_of_indices_are_copied_as_they_are(tmp_path: Path) -> None:
    shards, split = tmp_path / "shards.npz", tmp_path / "split.csv"
    np.savez(shards, indices=[0, 1], offsets=[0, 1, 2])
    split.write_text("part,index\nvalidation,3\ncalibration,5\ncalibration,6\n")
    content = shards.read_bytes()
    settings = {"population.num_clients": 2, "partition.unused": "leave"}
    recipe = load_recipe("digits", {**settings, "partition.file": str(shards), "data.split_file": str(split)})
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    folder.append_metrics({"round": 1})
    shards.unlink()
    kept = folder.recipe()
    assert Path(str(kept.partition.file)).read_bytes() == content
    assert Path(str(kept.data.split_file)).read_text() == split.read_text()
    split.write_text("part,index\nvalidation,4\ncalibration,5\ncalibration,6\n")
    with pytest.raises(InvalidInput, match=r"split.csv has changed since the run in .* began"):
        RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")


BAD_FILES = {
    "population.file": ("name,budget_macs\na,much\n", "{} line 2 has the budget_macs 'much'"),
    "variants.cache": ("junk\n", "variant cache '{}' lacks the column macs"),
    "partition.file": ("junk\n", "{} has the columns ['junk']: name them client and index"),
    "data.split_file": ("junk\n", "{} has the columns ['junk']: name them part and index"),
}


@pytest.mark.parametrize("setting", BAD_FILES)
def test_a_bad_file_is_refused_by_its_own_name_and_leaves_no_folder(setting: str, tmp_path: Path) -> None:
    file, (content, sentence) = tmp_path / "mine.csv", BAD_FILES[setting]
    file.write_text(content)
    source = {"population.source": "file"} if setting == "population.file" else {}
    recipe = load_recipe("digits", {**source, setting: str(file)})
    with pytest.raises(InvalidInput, match=re.escape(sentence.format(file))):
        RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_budget_below_the_smallest_network_names_its_file(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("name,budget_macs\na,2e5\nb,1e3\n")
    recipe = load_recipe("digits", {"population.source": "file", "population.file": str(fleet)})
    with pytest.raises(InvalidInput, match=f"client b has a budget of 1000 MACs.* raise the budgets of {fleet}"):
        RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_file_may_be_corrected_before_the_first_round(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("budget_macs\n2e5\n")
    recipe = load_recipe("digits", {"population.source": "file", "population.file": str(fleet)})
    RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    fleet.write_text("budget_macs\n3e5\n")
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    assert Path(str(folder.recipe().population.file)).read_text() == "budget_macs\n3e5\n"


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("environment.json", "{", lambda folder: folder.environment()),
        ("environment.json", "{}", lambda folder: folder.environment()),
        ("environment.json", '{"threads": "two", "libraries": {}}', lambda folder: folder.environment()),
        ("summary.json", "{}", lambda folder: folder.summary()),
        ("summary.json", "\x00", lambda folder: folder.curve()),
        ("clients.csv", "x", lambda folder: folder.budgets_macs()),
        ("clients.csv", "budget_macs\nmany\n", lambda folder: folder.budgets_macs()),
        ("metrics.jsonl", "{\n", lambda folder: folder.metrics()),
    ],
)
def test_a_damaged_file_is_named_with_its_remedy(folder: RunFolder, name: str, content: str, read: Any) -> None:
    (folder.path / name).write_text(content)
    with pytest.raises(InvalidInput, match=name):
        read(folder)


def test_metrics_shorter_than_the_checkpoint_are_refused(folder: RunFolder) -> None:
    size = folder.append_metrics(round_row(1))
    with pytest.raises(InvalidInput, match=r"metrics.jsonl is shorter than its checkpoint says"):
        folder.cut_metrics(size + 1)
    assert len(folder.metrics()) == 1


def test_another_recipe_is_refused_and_nothing_is_lost(folder: RunFolder) -> None:
    folder.append_metrics(round_row(1))
    before = (folder.path / "recipe.toml").read_text()
    other = load_recipe("digits", {"training.rounds": 3})
    with pytest.raises(InvalidInput, match=r"holds another run .*training.rounds is 60 there and 3 here"):
        RunFolder.create(folder.path, other, threads=1, device="cpu")
    assert (folder.path / "recipe.toml").read_text() == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match="holds other files and no run"):
        RunFolder.create(tmp_path, RECIPE, threads=1, device="cpu")
    with pytest.raises(InvalidInput, match="is a file"):
        RunFolder.create(tmp_path / "letter.txt", RECIPE, threads=1, device="cpu")
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_start_that_was_killed_does_not_block_the_next(folder: RunFolder) -> None:
    (folder.path / "environment.json").unlink()
    RunFolder.create(folder.path, RECIPE, threads=3, device="cpu")
    assert folder.environment()["threads"] == 3
    (folder.path / "environment.json").unlink()
    (folder.path / "recipe.toml").rename(folder.path / ".recipe.toml.partial")
    assert RunFolder.create(folder.path, RECIPE, threads=1, device="cpu").recipe() == RECIPE


def test_opening_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no run folder"):
        RunFolder.open(tmp_path)


def test_metrics_are_cut_back_to_a_checkpoint(folder: RunFolder) -> None:
    folder.cut_metrics(0)
    size = folder.append_metrics(round_row(1))
    folder.append_metrics(round_row(2))
    assert [row["round"] for row in folder.metrics()] == [1, 2]
    folder.cut_metrics(size)
    assert [row["round"] for row in folder.metrics()] == [1]


def test_two_trainings_in_one_folder_are_refused(folder: RunFolder) -> None:
    with (
        folder.locked(),
        pytest.raises(InvalidInput, match="another process is training"),
        RunFolder.open(folder.path).locked(),
    ):
        pass


def test_summary_and_curve(folder: RunFolder) -> None:
    with pytest.raises(InvalidInput, match="has no summary yet"):
        folder.summary()
    points = (CurvePoint("1k", 1000, 10, 0.5, {"accuracy": 0.5}), CurvePoint("2k", 2000, 20, 0.75, {"accuracy": 0.75}))
    curve = Curve(points)
    folder.write_summary({"population_score": 0.6, "finished_rounds": 3}, curve)
    assert folder.summarised_rounds() == 3
    assert folder.curve() == curve
    assert json.loads((folder.path / "summary.json").read_text())["population_score"] == 0.6
    assert (folder.path / "curve.csv").read_text().splitlines()[1] == "1k,1000,10,0.5"


def test_clients_table(folder: RunFolder) -> None:
    folder.write_clients(clients_table(["a", "b"], [1.5, 2e9]))
    assert folder.budgets_macs().tolist() == [1.5, 2e9]


def test_a_fleets_clients_are_those_that_joined(tmp_path: Path) -> None:
    recipe = load_recipe("digits", {"population.source": "fleet"})
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    assert folder.recipe().population.file is None
    folder.write_clients(clients_table(["a"], [2e6]))
    folder.write_clients(clients_table(["a", "b"], [2e6, 3e6]), again=True)
    assert folder.recipe().population.file == str(tmp_path / "run" / "clients.csv")
    assert folder.budgets_macs().tolist() == [2e6, 3e6]
    patient = load_recipe("digits", {"population.source": "fleet", "fleet.deadline_seconds": 5})
    assert folder.holds(patient)


def test_a_run_says_which_engines_trained_it(tmp_path: Path) -> None:
    recipe = load_recipe("digits", {})
    parts = {"path": tmp_path / "run", "recipe": recipe, "threads": 1, "device": "cpu"}
    folder = RunFolder.create(**parts, engine="graphs, bfloat16")  # type: ignore[arg-type]
    assert folder.environment()["engine"] == "graphs, bfloat16"
    again = RunFolder.create(**parts, engine="eager, float32").environment()  # type: ignore[arg-type]
    assert again["engine"] == "eager, float32"
    assert again["earlier"] == [{"engine": "graphs, bfloat16", "device": "cpu"}]


def prepare_own(data: Path, level: int) -> Recipe:
    """Prepare a data set of grey images of one level; return a recipe on it."""
    write_grey(data, level, 200)
    return load_recipe("digits", {"data.name": "mine", "data.folder": str(data)})


def test_a_run_can_be_read_without_its_data(tmp_path: Path) -> None:
    recipe = prepare_own(tmp_path / "data", 1)
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    folder.append_metrics(round_row(1))
    (tmp_path / "data").rename(tmp_path / "moved")
    assert RunFolder.open(folder.path).recipe() == recipe
    moved = load_recipe("digits", {"data.name": "mine", "data.folder": str(tmp_path / "moved")})
    assert RunFolder.create(folder.path, moved, threads=1, device="cpu").recipe() == moved


def test_a_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", prepare_own(tmp_path / "data", 1), threads=1, device="cpu")
    other = prepare_own(tmp_path / "data", 2)
    RunFolder.create(folder.path, other, threads=1, device="cpu")  # no round was finished
    folder.append_metrics(round_row(1))
    RunFolder.create(folder.path, other, threads=1, device="cpu")
    again = prepare_own(tmp_path / "data", 3)
    with pytest.raises(InvalidInput, match=r"data 'mine' have changed since the run in .*run began"):
        RunFolder.create(folder.path, again, threads=1, device="cpu")


def test_a_folder_from_elsewhere_runs_no_code(tmp_path: Path) -> None:
    run, theirs = tmp_path / "run", tmp_path / "theirs.py"
    RunFolder.create(run, RECIPE, threads=1, device="cpu")
    theirs.write_text("raise AssertionError('imported')\n")
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace('name = "feast"', f'name = "{theirs}:Theirs"'))
    for open_it in (RunFolder.open(run).recipe, RunFolder.open(run).how_to_go_on, lambda: RunFolder(run).holds(RECIPE)):
        with pytest.raises(InvalidInput, match=r"recipe\.toml names code to run, .* was not trusted"):
            open_it()


def test_curves_on_several_test_sets(folder: RunFolder) -> None:
    bits = task_named("next-token").metric
    known, held_out = (
        Curve((CurvePoint("1k", 1000, 10, value, {"bits": value}, 0.1),), bits, 6.0) for value in (2.0, 3.0)
    )
    sets = {name: {"clients": 5, "curve": one.rows()} for name, one in (("known", known), ("held out", held_out))}
    folder.write_summary({"finished_rounds": 3, "test_sets": sets}, held_out)
    assert folder.test_sets() == {"known": known, "held out": held_out}
    assert folder.curve() == held_out
    assert (folder.path / "curve.csv").read_text() == "name,macs,parameters,bits,standard_error\n1k,1000,10,3.0,0.1\n"
    folder.write_summary({"finished_rounds": 3}, held_out)
    assert folder.test_sets() == {}


def test_values_by_client_are_read_back(folder: RunFolder) -> None:
    file = folder.path / "test_clients.csv"
    file.write_text('test_set,client,1k,2k\nheld out,"Hamlet, Prince",0.5,\nheld out,b,0.25,1\nknown,c,1,1\n')
    values = folder.client_values()
    assert list(values) == ["held out", "known"]
    first, missing = values["held out"]["Hamlet, Prince"]
    assert first == 0.5
    assert missing != missing, "a client that measured nothing has no number"
    assert values["held out"]["b"] == (0.25, 1.0)
    for damage in ("test_set,client,1k\nheld out,b,much\n", "test_set,client,1k\nheld out\n", ""):
        file.write_text(damage)
        with pytest.raises(InvalidInput, match=r"test_clients.csv is missing or damaged: run fedfeast evaluate"):
            folder.client_values()
    file.unlink()
    with pytest.raises(InvalidInput, match="is missing or damaged"):
        folder.client_values()


FORMER = {  # what run folders of the first releases have as their method, without options that came later
    "heterofl": """name = "heterofl"
widths = [1.0, 0.5, 0.25, 0.125, 0.0625]
weighting = "count"
label_masked_loss = false
label_row_merging = false
""",
    "scalefl": """name = "scalefl"
levels = [[1, 0.4], [2, 0.5], [3, 0.6], [4, 1.0]]
weighting = "count"
distillation = 0.05
temperature = 3.0
warm_up = 0.25
""",
    "fiarse": """name = "fiarse"
layerwise = false
gradient = "intended"
membership = "mask"
weighting = "count"
weight_decay = 0.0
num_points = 57
least_share = 0.045
""",
    "superfednas": """name = "superfednas"
constrained = true
first_weight = 0.9
annealed_share = 0.8
""",
}


def former_run(path: Path, method: str) -> RunFolder:
    """A run that an earlier version began."""
    folder = RunFolder.create(path / method, load_recipe("digits", {"method.name": method}), threads=1, device="cpu")
    text = (folder.path / "recipe.toml").read_text()
    begin, end = text.index("[method]\n") + len("[method]\n"), text.index("\n[training]")
    (folder.path / "recipe.toml").write_text(text[:begin] + FORMER[method] + text[end:])
    folder.append_metrics(round_row(1))
    return folder


@pytest.mark.parametrize("method", FORMER)
def test_a_run_goes_on_with_the_defaults_that_it_began_with(tmp_path: Path, method: str) -> None:
    folder = former_run(tmp_path, method)
    kept = folder.recipe().method.model_dump()
    assert kept["weighting"] == "count"
    assert kept.get("levels") == (((1, 0.4), (2, 0.5), (3, 0.6), (4, 1.0)) if method == "scalefl" else None)
    for recipe in (load_recipe("digits", {"method.name": method}), load_recipe(str(folder.path / "recipe.toml"))):
        again = RunFolder.create(folder.path, recipe, threads=1, device="cpu").recipe()
        assert again.method.model_dump() == kept
    given = load_recipe("digits", {"method.name": method, "method.weighting": "samples"})
    with pytest.raises(InvalidInput, match=r"method.weighting is 'count' there and 'samples' here"):
        RunFolder.create(folder.path, given, threads=1, device="cpu")


@pytest.mark.parametrize("method", FORMER)
def test_a_new_run_keeps_the_defaults_of_today(tmp_path: Path, method: str) -> None:
    recipe = load_recipe("digits", {"method.name": method})
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    assert folder.recipe() == recipe
    assert recipe.method.model_dump()["weighting"] == "samples"
    folder.append_metrics(round_row(1))
    assert RunFolder.create(folder.path, recipe, threads=1, device="cpu").recipe() == recipe


def test_two_first_starts_at_once_make_one_run(tmp_path: Path) -> None:
    recipe, together = load_recipe("digits", {"training.rounds": 3}), threading.Barrier(6)

    def start(place: Path) -> str:
        together.wait()
        try:
            RunFolder.create(place, recipe, threads=1, device="cpu")
        except InvalidInput as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(6) as pool:
        for number in range(15):
            place = tmp_path / str(number)
            said = list(pool.map(start, [place] * 6))
            assert "" in said
            assert {one for one in said if one} <= {
                f"another process is training in {place}: wait for it, or give another --out folder."
            }
            assert RunFolder.open(place).recipe() == recipe
            assert RunFolder.open(place).environment()["threads"] == 1
            assert sorted(file.name for file in place.iterdir()) == [".lock", "environment.json", "recipe.toml"]


def test_a_start_that_was_killed_before_its_recipe_goes_on(folder: RunFolder) -> None:
    (folder.path / "recipe.toml").unlink()
    assert RunFolder.create(folder.path, RECIPE, threads=2, device="cpu").environment()["threads"] == 2


def test_a_run_that_began_before_sizes_were_kept_goes_on_without(tmp_path: Path) -> None:
    recipe = load_recipe("digits")
    folder = RunFolder.create(tmp_path / "run", recipe, threads=1, device="cpu")
    text = (folder.path / "recipe.toml").read_text()
    assert 'sizes = "auto"\n' in text
    (folder.path / "recipe.toml").write_text(text.replace('sizes = "auto"\n', ""))
    folder.append_metrics(round_row(1))
    assert folder.recipe().evaluation.sizes == "none"
    for again in (recipe, load_recipe(str(folder.path / "recipe.toml")), recipe):  # once more when it is written down
        assert RunFolder.create(folder.path, again, threads=1, device="cpu").recipe().evaluation.sizes == "none"
    told = load_recipe("digits", {"evaluation.sizes": 3})
    assert RunFolder.create(folder.path, told, threads=1, device="cpu").recipe().evaluation.sizes == 3
    assert RunFolder.create(folder.path, recipe, threads=1, device="cpu").recipe().evaluation.sizes == 3
