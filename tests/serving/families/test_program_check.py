import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from own_networks import built_cnn

from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks import Layout
from fedfeast.serving.families.built import BuiltFamily
from fedfeast.serving.families.program_check import require_plain_program
from fedfeast.serving.families.standalone import PROGRAM

Change = Callable[[dict[str, bytes]], None]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network, folder = built_cnn(), tmp_path_factory.mktemp("program")
    layout = Layout.of(network.shapes(network.smallest))
    deployed = Deployed(network, network.smallest, layout, torch.zeros(layout.size), 1, 1)
    family = BuiltFamily()
    family.write(folder, family.uncalibrated(deployed))
    return folder / PROGRAM


def in_graph(change: Callable[[Any], None]) -> Change:
    def apply(records: dict[str, bytes]) -> None:
        content = json.loads(records["models/model.json"])
        change(content)
        records["models/model.json"] = json.dumps(content).encode()

    return apply


def first_node(content: Any) -> Any:
    return content["graph_module"]["graph"]["nodes"][0]


def mark_pickled(records: dict[str, bytes]) -> None:
    name = "data/weights/model_weights_config.json"
    content = json.loads(records[name])
    next(iter(content["config"].values()))["use_pickle"] = True
    records[name] = json.dumps(content).encode()


def set_size(content: Any) -> None:
    value = next(iter(content["graph_module"]["graph"]["tensor_values"].values()))
    value["sizes"][0] = {"as_expr": {"expr_str": "__import__('os').getpid()", "hint": None}}


def changed(program: Path, path: Path, change: Change) -> Path:
    """Write the program again with other records."""
    with zipfile.ZipFile(program) as archive:
        stem = archive.namelist()[0].partition("/")[0]
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(f"{stem}/{name}", content)
    return path


def test_what_we_wrote_is_opened(program: Path, tmp_path: Path) -> None:
    require_plain_program(program)
    again = changed(program, tmp_path / PROGRAM, lambda records: None)
    require_plain_program(again)
    assert torch.export.load(again) is not None


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (mark_pickled, "the pickle weight_"),
        (lambda records: records.update({"data/sample_inputs/model.pt": pickle.dumps(1)}), "example inputs"),
        (lambda records: records.update({"data/weights/model.pt": b"x"}), "the record data/weights/model.pt"),
        (lambda records: records.update({"data/aotinductor/model/x.so": b"x"}), "the record data/aotinductor"),
        (in_graph(lambda content: first_node(content).update(target="torch.os.system")), "operation 'torch.os.system'"),
        (in_graph(lambda content: content.update(guards_code=["print(1)"])), "guards_code"),
        (in_graph(set_size), "the expression"),
        (in_graph(lambda content: first_node(content).update(metadata={"source_fn_stack": "a,b"})), "metadata"),
    ],
)
def test_what_could_run_is_refused(program: Path, tmp_path: Path, change: Change, found: str) -> None:
    with pytest.raises(InvalidInput, match=f"holds .*{found}.* opening it could run as code"):
        require_plain_program(changed(program, tmp_path / PROGRAM, change))


@pytest.mark.parametrize(
    "expression",
    ["s77.__class__", "eval('1')", "Symbol('os')", "lambda: 1", "[s77]", "s77 if s77 else 1", "(", "x1", "Symbol", 5],
)
def test_expressions_of_sizes_are_arithmetic(program: Path, tmp_path: Path, expression: Any) -> None:
    def change(content: Any) -> None:
        value = next(iter(content["graph_module"]["graph"]["tensor_values"].values()))
        value["sizes"][0] = {"as_expr": {"expr_str": expression}}

    with pytest.raises(InvalidInput, match="the expression"):
        require_plain_program(changed(program, tmp_path / PROGRAM, in_graph(change)))


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    (tmp_path / PROGRAM).write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"is no torch.export program of this version of torch"):
        require_plain_program(tmp_path / PROGRAM)
