"""The loader that goes into a bundle."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fedfeast
from fedfeast.serving.families import standalone


def test_weights_are_read_without_the_safetensors_package(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(6.0).reshape(2, 3),
        "b": torch.tensor([1.5], dtype=torch.bfloat16),
        "c": torch.tensor([[1, 255]], dtype=torch.uint8),
        "d": torch.tensor([-3, 1 << 40]),
    }
    save_file(tensors, tmp_path / "weights.safetensors", {"note": "text"})
    read = standalone.read_weights(tmp_path / "weights.safetensors")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_the_file_imports_torch_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(standalone.__file__).read_text())
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    assert roots == {"importlib", "json", "math", "pathlib", "typing", "torch"}


def test_a_bundle_loads_with_torch_alone(run: fedfeast.Run, bundle: Path, tmp_path: Path) -> None:
    images = run.federation.test.test.inputs[:50]
    save_file({"images": images}, tmp_path / "images.safetensors")
    code = (
        "import sys\n"
        "for name in ('fedfeast', 'safetensors', 'numpy', 'pydantic', 'sklearn', 'onnx'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(bundle)!r})\n"
        "import torch, json, pathlib\n"
        "from model import load, read_weights\n"
        f"model = load({str(bundle)!r})\n"
        f"images = read_weights(pathlib.Path({str(tmp_path / 'images.safetensors')!r}))['images']\n"
        "with torch.no_grad(): logits = model(images)\n"
        "print(json.dumps(logits.argmax(1).tolist()))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = fedfeast.load_bundle(bundle)(images).argmax(1).tolist()
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("shape", [(1, 1, 9, 8), (1, 3, 8, 8), (1, 8, 8), (8, 8)])
def test_an_image_of_the_wrong_size_is_refused(bundle: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"images have the shape .*: this network takes \(batch, 1, 8, 8\)"):
        standalone.load(bundle)(torch.zeros(shape, dtype=torch.uint8))


def test_weights_of_another_network_are_refused(bundle: Path) -> None:
    save_file({"other": torch.zeros(1)}, bundle / "weights.safetensors")
    with pytest.raises(ValueError, match="the weights do not fit the network"):
        standalone.load(bundle)
