import ast
import sys
from pathlib import Path

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.onnx.packages import import_onnx, import_onnxruntime

SOURCE = Path(fedfeast.__file__).parent


def test_the_packages_are_here() -> None:
    assert import_onnx().helper
    assert import_onnxruntime().InferenceSession


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InvalidInput, match=r"needs the onnx package: pip install 'fedfeast\[export\]'"):
        import_onnx()
    with pytest.raises(InvalidInput, match=r"needs the onnxruntime package: pip install 'fedfeast\[export\]'"):
        import_onnxruntime()


def test_nothing_imports_them_at_the_top_of_a_file() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {"onnx", "onnxruntime"} & {name.split(".")[0] for name in names}, path
