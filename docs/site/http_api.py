"""The model server's HTTP API as Markdown, from the OpenAPI description that it hands out itself."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from field_comments import field_comments
from markup import cell, heading, table

from fedfeast.runs import Run
from fedfeast.server import answers
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection

BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}


def http_api() -> str:
    """Return every address with its parameters and answers, then what the answers hold."""
    description = openapi()
    parts: list[str] = []
    for path, verbs in description["paths"].items():
        for verb, operation in verbs.items():
            parts += _operation(f"{verb.upper()} {path}", operation)
    parts.append(heading(2, "What answers hold"))
    for name, schema in description["components"]["schemas"].items():
        parts += _schema(name, schema)
    return "\n\n".join(parts)


def openapi() -> dict[str, Any]:
    """Return the description of a server; it is the same for all runs, so that one which has not begun will do."""
    with TemporaryDirectory() as folder:
        run = Run.create("digits", Path(folder) / "run")
        described: dict[str, Any] = build_app(Collection([run.folder.path])).openapi()
        return described


def _operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield heading(2, f"`{title}`")
    yield cell(operation.get("description") or operation.get("summary", ""))
    parameters = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), cell(one.get("description", "")))
        for one in operation.get("parameters", [])
    ]
    if parameters:
        yield table(("parameter", "in", "type", "meaning"), parameters)
    codes = [
        (code, cell(answer["description"]), ", ".join(map(_content, answer.get("content", {}).items())))
        for code, answer in operation["responses"].items()
    ]
    yield table(("status", "meaning", "content"), codes)


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        return
    yield heading(3, name)
    yield cell(schema.get("description", ""))
    comments = field_comments(getattr(answers, name, object))
    rows = [(f"`{key}`", _type(one), cell(comments.get(key, ""))) for key, one in schema["properties"].items()]
    yield table(("field", "type", "meaning"), rows)


def _content(of_kind: tuple[str, Mapping[str, Any]]) -> str:
    kind, content = of_kind
    schema = content.get("schema")
    return _type(schema) if kind == "application/json" and schema else f"`{kind}`"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a JSON type in words; the name of a schema leads to its description."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [f"{words} {schema[key]:_.10g}" for key, words in BOUNDS.items() if key in schema]
    return " ".join([kind, *bounds])
