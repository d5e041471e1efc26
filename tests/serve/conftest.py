from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chromium_samples import Open, browser, opening
from playwright.sync_api import Browser, Page
from samples import confidence_weights
from serve_samples import Running, asking, make_captioner, make_translator, running

from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import save_model
from captioner.serve.service import Service
from captioner.translate.folder import save_translator

__all__ = ["browser"]


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """Asks a server of the tiny captioner and translator."""
    with asking(Service(make_captioner(), {"de": make_translator()}, batch_size=8)) as client:
        yield client


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the tiny captioner and of the tiny translator."""
    folder = tmp_path_factory.mktemp("models")
    captioner = make_captioner()
    weights = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
    words = WordWeights(intercept=2, probability=3, caption=0.5, both=0.1)
    captioner.confidence = Confidence(weights=weights, words=words)
    save_model(captioner, folder / "captioner")
    save_translator(make_translator(), folder / "translator")
    return folder / "captioner", folder / "translator"


@pytest.fixture(scope="session")
def server(saved_models: tuple[Path, Path]) -> Iterator[Running]:
    """A server of its own process, with both models."""
    captioner, translator = saved_models
    with running(captioner, "--translator", f"de={translator}") as server:
        yield server


@pytest.fixture
def open_page(browser: Browser, server: Running) -> Iterator[Open]:
    """Opens the page."""
    with opening(browser) as opened:

        def open_page(address: str = server.address, **how: Any) -> Page:
            page = opened(address, **how)
            page.wait_for_selector("html[data-ready]")
            return page

        yield open_page
