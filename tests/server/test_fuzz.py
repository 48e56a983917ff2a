"""Schemathesis makes requests up from the server's own description: none of them may be too much for it."""

from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection

CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]
EXAMPLES = 25  # of each operation


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_is_too_much(trained: Path, mode: GenerationMode) -> None:
    collection = Collection([trained])
    variants = list(collection.runs["digits"].seen.variants)
    schema = schemathesis.openapi.from_asgi("/openapi.json", build_app(collection))
    asked: list[int] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(data=hypothesis.strategies.data(), position=hypothesis.strategies.integers(0, 9))
    def attempt(data: Any, position: int) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if "id" in case.path_parameters and position < 2:
            case.path_parameters["id"] = variants[position]["id"]  # which a made-up id never is
        asked.append(case.call_and_validate(checks=CHECKS).status_code)

    operations = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    assert len(operations) == 11
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.path_parameters):
            continue  # there is nothing to get wrong
        attempt()
    assert {200, 404, 422} <= set(asked)
    assert max(asked) < 500
    assert len(asked) > 100
