"""The interface is held to its own description, by requests that are made from it."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_samples import Running

pytestmark = pytest.mark.slow

SETTINGS = settings(
    max_examples=60, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
ADDRESSES = {
    *(("/api/caption", "POST"), ("/api/overlay", "POST"), ("/api/translate", "POST")),
    *(("/api/health", "GET"), ("/api/model", "GET")),
}


@pytest.fixture(scope="module")
def described(server: Running) -> Any:
    return schemathesis.openapi.from_url(f"{server.address}api/openapi.json")


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        (path, method, mode)
        for path, method in sorted(ADDRESSES)
        for mode in GenerationMode
        if method == "POST" or not mode.is_negative  # Nothing to be wrong in.
    ],
)
def test_answers_are_as_described(
    described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    """Valid and invalid requests get only answers that the description has, and no status 500.

    A valid request may be refused: that a file is no photo is not in the description.
    """
    paths = described.raw_schema["paths"]
    assert {(each, name.upper()) for each, names in paths.items() for name in names} == ADDRESSES

    @SETTINGS
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    run()
