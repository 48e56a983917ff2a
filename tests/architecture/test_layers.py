"""The data flow one way: a folder imports only from folders before it."""

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "fedfeast"
TESTS = Path(__file__).parents[1]
LAYERS = (
    "population",
    "data",
    "networks",
    "variants",
    "routing",
    "federation",
    "methods",
    "evaluation",
    "engines",
    "recipes",
    "planning",
    "runs",
    "presentation",
    "serving",
    "flower",
    "studies",
    "server",
    "app",
)
# What several floors share; each may import those before it.
FOUNDATION = (
    *("errors", "randomness", "units", "version", "machine", "stopwatch", "locks", "whole_files", "own_code"),
    *("unpacking", "frames", "hashed_bits"),
)
MOST_MODULES = 15  # of one folder
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if len(path.relative_to(SOURCE).parts) > 1)


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names below fedfeast that a file imports anywhere, functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # A name of a package may be one of its modules.
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("fedfeast.") for name in names if name.startswith("fedfeast.")}


def imported_parts(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported_modules(path)}


def test_every_folder_has_its_place() -> None:
    folders = {path.parts[0] for path in MODULES}
    assert folders == set(LAYERS)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_backwards(module: Path) -> None:
    allowed = {*LAYERS[: LAYERS.index(module.parts[0]) + 1], *FOUNDATION}
    assert imported_parts(SOURCE / module) <= allowed


@pytest.mark.parametrize("position", range(len(FOUNDATION)), ids=FOUNDATION)
def test_the_foundation_rests_on_itself(position: int) -> None:
    assert imported_parts(SOURCE / f"{FOUNDATION[position]}.py") <= set(FOUNDATION[:position])


def test_no_two_modules_import_each_other() -> None:
    known = {".".join(module.with_suffix("").parts): module for module in MODULES if module.name != "__init__.py"}
    pairs = {
        (name, other)
        for name, module in known.items()
        for other in imported_modules(SOURCE / module) & known.keys()
        if name != other
    }
    assert {(name, other) for name, other in pairs if (other, name) in pairs} == set()


def test_no_folder_is_crowded() -> None:
    crowds = Counter(module.parent for module in MODULES)
    assert {str(folder): count for folder, count in crowds.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize("folder", sorted({module.parent for module in MODULES}), ids=str)
def test_every_folder_has_its_tests(folder: Path) -> None:
    assert any((TESTS / folder).glob("**/test_*.py"))


def test_flower_alone_imports_flwr() -> None:
    importing = {
        module.parts[0]
        for module in MODULES
        for node in ast.walk(ast.parse((SOURCE / module).read_text()))
        if (isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "flwr")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "flwr" for alias in node.names))
    }
    assert importing == {"flower"}
