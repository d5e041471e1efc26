"""The interface is held to its own description, by requests that are made from it."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_samples import Running

pytestmark = pytest.mark.slow

SETTINGS = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

ADDRESSES = [
    ("/api/caption", "POST"),
    ("/api/overlay", "POST"),
    ("/api/translate", "POST"),
    ("/api/health", "GET"),
    ("/api/model", "GET"),
]


@pytest.fixture(scope="module")
def described(server: Running) -> Any:
    return schemathesis.openapi.from_url(f"{server.address}api/openapi.json")


def test_every_address_is_described(described: Any) -> None:
    paths = described.raw_schema["paths"]
    found = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert found == set(ADDRESSES)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("path", "method"), ADDRESSES)
def test_answers_are_as_described(
    described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    """Valid and invalid requests get only answers that the description has, and no status 500.

    A valid request may be refused: that a file is no photo is not in the description.
    """
    operation = described[path][method]
    asked = 0

    @SETTINGS
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        nonlocal asked
        asked += 1
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    if mode.is_negative and method == "GET":
        with pytest.raises(Unsatisfiable):  # Nothing to be wrong in.
            run()
        return
    run()
    assert asked
