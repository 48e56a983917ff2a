"""Which torch.export files are opened: tensors and a graph of torch's own operations, nothing that loading would run.

torch.export.load takes a file's own word for it: payloads marked so and example inputs are unpickled, expressions of
sizes are evaluated by sympy as Python, guards are executed, and targets may be anything that torch has by a name.
"""

import ast
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fedfeast.errors import InvalidInput

RECORDS = re.compile(
    r"archive_format|archive_version|byteorder|\.data/(version|serialization_id)|\.format_version|\.storage_alignment"
    r"|models/model\.json|data/(weights/weight|constants/tensor)_\d+"
    r"|data/(weights/model_weights|constants/model_constants)_config\.json|data/sample_inputs/model\.pt"
)
TARGETS = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+(\.\w+)?|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|getitem)"
    r"|math\.(ceil|floor|trunc|sqrt|pow)|torch\.sym_\w+"
)
FUNCTIONS = re.compile(r"Symbol|Integer|Max|Min|Mod|PythonMod|FloorDiv|CeilDiv|CleanDiv|IntTrueDiv|Eq|Ne|Lt|Le|Gt|Ge")
SYMBOL = re.compile(r"[su]\d+")
EXPRESSIONS = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.keyword, ast.Constant, ast.Name, ast.Load),
    *(ast.operator, ast.unaryop, ast.cmpop),
)


def require_plain_program(path: Path) -> None:
    """Refuse a file whose loading could run what the file says."""
    found = next(_found_in(path), None)
    if found is not None:
        raise InvalidInput(
            f"{path} holds {found}, which opening it could run as code: open none but programs that fedfeast wrote."
        )


def _found_in(path: Path) -> Iterator[str]:
    """Yield what a plain program has not."""
    try:
        # The reader with which torch.export.load itself opens the file, so that both see the same.
        with zipfile.ZipFile(path) as listed:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in listed.infolist()):
                raise ValueError("a record is compressed, which torch never does")
        archive = torch._C.PyTorchFileReader(str(path))
        names = list(archive.get_all_records())
        configs = [name for name in names if name.endswith("_config.json")]
        payloads = [entry for name in configs for entry in json.loads(archive.get_record(name))["config"].values()]
        graph = json.loads(archive.get_record("models/model.json"))
        examples = archive.get_record("data/sample_inputs/model.pt")
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{path} is no torch.export program of this version of torch: extract it again.") from error
    yield from (f"the record {name}" for name in names if not RECORDS.fullmatch(name))
    yield from (f"the pickle {entry['path_name']}" for entry in payloads if entry["use_pickle"])
    if examples:
        yield "example inputs as a pickle"
    yield from _found_in_graph(graph)


def _found_in_graph(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _found_in_graph(one)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in ("target", "as_operator") and isinstance(inner, str) and not TARGETS.fullmatch(inner):
            yield f"the operation {inner[:60]!r}"
        elif key == "expr_str" and not _is_arithmetic(inner):
            yield f"the expression {str(inner)[:60]!r}"
        elif key in ("guards_code", "metadata", "as_custom_obj") and inner:
            yield key
        else:
            yield from _found_in_graph(inner)


def _is_arithmetic(expression: Any) -> bool:
    """Return whether an expression is of sizes, numbers and a few functions alone."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, TypeError, RecursionError):
        return False
    called = {id(node.func): node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return all(
        isinstance(node, EXPRESSIONS)
        and (not isinstance(node, ast.Call) or isinstance(node.func, ast.Name))
        and (not isinstance(node, ast.Name) or bool((FUNCTIONS if id(node) in called else SYMBOL).fullmatch(node.id)))
        and (
            not isinstance(node, ast.Constant) or not isinstance(node.value, str) or bool(SYMBOL.fullmatch(node.value))
        )
        for node in ast.walk(tree)
    )
