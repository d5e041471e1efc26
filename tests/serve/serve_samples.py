"""Small models, photos as they are sent, requests with checks of their answers, real servers."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import samples
import torch
import uvicorn
from PIL import Image
from samples import photo_bytes
from translation_samples import CONFIGS

from captioner.backends.torch_translations import TorchTranslations, make_model
from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.decoding.options import TranslationSearch
from captioner.serve import Limits
from captioner.serve.app import make_app
from captioner.serve.server import configuration, listen
from captioner.serve.service import Service
from captioner.text import SubwordVocabulary, WordVocabulary
from captioner.translate.translator import Translator

ROOT = Path(__file__).resolve().parents[2]

SENTENCES = ["A man runs.", "The dog sees a man, and runs.", "Dogs run!"]


def make_captioner() -> Captioner:
    """A captioner of random weights whose maps are narrow and move from word to word."""
    captioner = samples.make_captioner()
    with torch.no_grad():
        for parameter in captioner.backend.decoder.attention.parameters():
            parameter.mul_(4)
    return captioner


def make_translator(attends: bool = True) -> Translator:
    """A translator of random weights, from subwords to words."""
    config = CONFIGS["dot" if attends else "gru"]
    source = SubwordVocabulary.learn(SENTENCES, 300)
    target = WordVocabulary.learn(["Ein Mann läuft.", "Der Hund, er sieht <b>ihn</b>"], 1)
    torch.manual_seed(1)
    model = make_model(config, len(source), len(target))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    search = TranslationSearch(beam=3, minimum_length=2, maximum_length=7)
    return Translator(TorchTranslations(config, model, source, target), 30, search)


@contextmanager
def asking(service: Service, *options: Any, **named: Any) -> Iterator[httpx.Client]:
    """A client, without a timeout, of `make_app` served by a thread of this process."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(configuration(make_app(service, *options, **named), Limits()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.socket]})
    thread.start()
    try:
        with httpx.Client(base_url=listener.address, timeout=None) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


class Running(NamedTuple):
    """A server in a process of its own. address: of its page, with a slash at its end."""

    process: subprocess.Popen[str]
    address: str
    port: int


@contextmanager
def running(model: Path, *arguments: str) -> Iterator[Running]:
    """`captioner serve` with these arguments, on any port.

    In float32, in which a photo's numbers do not depend on those it shares a batch with.
    """
    options = ["--model", str(model), "--port", "0", "--device", "cpu", "--precision", "float32"]
    command = [sys.executable, "-m", "captioner", "serve", *options, *arguments]
    with started(command, {**os.environ, "PYTHONPATH": str(ROOT)}) as server:
        yield server


@contextmanager
def started(
    command: list[str], environment: dict[str, str], folder: Path | None = None
) -> Iterator[Running]:
    """The server that a command starts; it is killed if it has not ended."""
    output = subprocess.PIPE
    process = subprocess.Popen(
        command, stdout=output, stderr=output, text=True, env=environment, cwd=folder
    )
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"captioner: (http://\S+:(\d+)/) is open; Ctrl-C ends it\n", line)
        if not found:
            process.kill()
            raise AssertionError(f"{line!r} {process.communicate()[1]}")
        yield Running(process, found[1], int(found[2]))
    finally:
        process.kill()
        process.communicate()


Files = list[tuple[str, tuple[str, bytes]]]


def files(*seeds: int) -> Files:
    return [("photo", (f"{seed}.png", photo_bytes(seed))) for seed in seeds]


def caption(client: httpx.Client, sent: Files, **fields: str) -> Any:
    answer = client.post("/api/caption", files=sent, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["photos"]


def problem(answer: httpx.Response, status: int) -> str:
    """The sentence of a refusal, which reveals nothing about this machine."""
    assert answer.status_code == status, answer.text
    value = answer.json()
    assert list(value) == ["error"]
    sentence = str(value["error"])
    assert "\n" not in sentence
    assert "/" not in sentence.replace("application/json", "")
    return sentence


def as_directly(photo: dict[str, Any], expected: Caption) -> None:
    found = photo["captions"][0]
    assert found["caption"] == expected.text
    assert found["words"] == list(expected.words)
    assert found["log_probability"] == pytest.approx(expected.log_probability, abs=1e-3)
    np.testing.assert_allclose(found["maps"], expected.attention, atol=2e-4)


def far(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures, scaled to one size, in steps of 256."""
    values = [np.asarray(each.convert("RGB"), float) for each in (one, other.resize(one.size))]
    return float(np.abs(values[0] - values[1]).mean())
