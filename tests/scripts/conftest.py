import pytest
from scripts_samples import ROOT


@pytest.fixture(autouse=True)
def import_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests import what lies in `scripts/` and `scripts/default_model/`."""
    for folder in ("scripts/default_model", "scripts"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
