from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from samples import make_captioner
from serve_samples import Running, in_thread, make_translator, running

from captioner.caption import save_model
from captioner.serve.app import make_app
from captioner.serve.service import Service
from captioner.translate import save_translator


@pytest.fixture
def service() -> Service:
    """The tiny captioner and translator; whoever takes it closes it, as the client does."""
    return Service(make_captioner(), make_translator(), batch_size=8)


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with in_thread(make_app(service)) as address, httpx.Client(base_url=address) as client:
        yield client


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the tiny captioner and of the tiny translator."""
    folder = tmp_path_factory.mktemp("models")
    save_model(make_captioner(), folder / "captioner")
    save_translator(make_translator(), folder / "translator")
    return folder / "captioner", folder / "translator"


@pytest.fixture(scope="session")
def server(saved_models: tuple[Path, Path]) -> Iterator[Running]:
    """A server of its own process, with both models."""
    captioner, translator = saved_models
    with running("--model", str(captioner), "--translator", str(translator)) as server:
        yield server
