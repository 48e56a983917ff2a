"""The data flow one way: a folder imports only from folders before it."""

import ast
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
    "runs",
    "serving",
    "studies",
    "app",
)
FOUNDATION = {"errors", "randomness"}
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if len(path.relative_to(SOURCE).parts) > 1)


def imported_parts(path: Path) -> set[str]:
    """Return the parts of fedfeast that a file imports anywhere, functions included."""
    parts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "fedfeast" else str(node.module) for alias in node.names
            ]
        parts |= {name.split(".")[1] for name in names if name.startswith("fedfeast.")}
    return parts


def test_every_folder_has_its_place() -> None:
    folders = {path.parts[0] for path in MODULES}
    assert folders == set(LAYERS)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_backwards(module: Path) -> None:
    allowed = set(LAYERS[: LAYERS.index(module.parts[0]) + 1]) | FOUNDATION
    assert imported_parts(SOURCE / module) <= allowed


@pytest.mark.parametrize("module", sorted(FOUNDATION))
def test_the_foundation_imports_nothing_of_ours(module: str) -> None:
    assert imported_parts(SOURCE / f"{module}.py") == set()


@pytest.mark.parametrize("module", [module for module in MODULES if module.name != "__init__.py"], ids=str)
def test_every_module_has_its_test_file(module: Path) -> None:
    assert (TESTS / module.parent / f"test_{module.name}").is_file()
