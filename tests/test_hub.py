"""Models of a hub, on a hub of this machine."""

import io
import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from hub_server import TOKEN, HubServer, serving_hub
from samples import Output, Patch, Refused
from transformers_samples import save_tiny

import captioner
from captioner.cli.main import main
from captioner.model_folders import DEMO_PHOTO, model_folder

pytest.importorskip("huggingface_hub", reason="huggingface_hub is missing")

Connect = Callable[..., None]  # The fixture `connect`.


@pytest.fixture
def connect(monkeypatch: Patch) -> Connect:
    """Sets environment variables, which huggingface_hub reads again."""

    def connect(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for name in [each for each in sys.modules if each.partition(".")[0] == "huggingface_hub"]:
            monkeypatch.delitem(sys.modules, name)

    return connect


@pytest.fixture
def hub(tmp_path: Path, connect: Connect) -> Iterator[HubServer]:
    """An empty hub and an empty cache; its user `ada` is logged in."""
    switches = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_TOKEN": TOKEN}
    with serving_hub() as server:
        connect(HF_ENDPOINT=server.url, HF_HOME=str(tmp_path / "home"), **switches)
        yield server


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_only_the_files_of_a_model_are_downloaded_once(hub: HubServer, tiny_model: Path) -> None:
    files = files_of(tiny_model)
    commit = hub.add("bob/dogs", {**files, "code.py": b"print()", "model.pkl": b"pickle"})
    folder = model_folder("hf://bob/dogs")
    assert folder.name == commit
    assert {path.name for path in folder.iterdir()} == files.keys()
    hub.requests.clear()
    expected = captioner.load(tiny_model).caption(DEMO_PHOTO)
    for name in (f"hf://bob/dogs@{commit}", "hf://bob/dogs", Path("hf://bob/dogs")):
        caption = captioner.load(name).caption(DEMO_PHOTO)
        assert caption.text == expected.text
        torch.testing.assert_close(caption.attention, expected.attention, rtol=0, atol=0)
    assert [request for request in hub.requests if "resolve" in request] == []


def test_a_revision_stays_and_the_plain_address_is_the_newest(
    hub: HubServer, tiny_model: Path, capsys: Output
) -> None:
    first = f"hf://ada/tiny@{hub.add('ada/tiny', files_of(tiny_model))}"
    (tiny_model / "README.md").write_text("# Another card\x1b[2J")
    second = f"hf://ada/tiny@{hub.add('ada/tiny', files_of(tiny_model))}"
    assert captioner.load(first).card == "# A model of random weights"
    assert captioner.load("hf://ada/tiny").card == captioner.load(second).card
    for name, revision in ((first, first), ("hf://ada/tiny", second)):
        assert main(["info", name]) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith(f"revision       {revision}\nmodel folder ")
        assert printed.err == ""
        assert "\x1b" not in printed.out


def test_a_private_model_needs_its_owner(
    hub: HubServer, tiny_model: Path, refused: Refused, connect: Connect
) -> None:
    hub.add("ada/secret", files_of(tiny_model))
    hub.private.add("ada/secret")
    connect(HF_TOKEN="hf_of_bob")
    sentence = refused(["info", "hf://ada/secret"])
    assert "hf://ada/secret does not exist or is not yours" in sentence
    assert "hf auth login or HF_TOKEN" in sentence


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf://bob", "is not of the form hf://user/name"),
        ("hf://bob/dogs@../../x", "is not of the form"),
        ("hf://bob/do--gs", "Cannot have -- or .. in repo_id"),
        ("hf://bob/dogs@v7", "hf://bob/dogs@v7 does not exist"),
        (
            "hf://bob/bert",
            "is no captioner of transformers, which are: blip, vision-encoder-decoder",
        ),
        ("hf://bob/nothing", "is no captioner or translator: it has no config.json of one"),
        ("hf://bob/broken", "is not valid JSON"),
        ("hf://bob/colours", "needs the backend 'colours' of another package"),
    ],
)
def test_a_folder_without_a_captioner_is_refused_before_its_weights(
    hub: HubServer, tiny_model: Path, refused: Refused, name: str, said: str
) -> None:
    files = files_of(tiny_model)
    hub.add("bob/dogs", files)
    hub.add("bob/bert", {**files, "config.json": b'{"model_type": "bert"}'})
    hub.add("bob/nothing", {**files, "config.json": b"{}"})
    hub.add("bob/broken", {**files, "config.json": b"{"})
    hub.add("bob/colours", {**files, "config.json": b'{"backend": "colours"}'})
    assert said in refused(["info", name])
    assert [request for request in hub.requests if "model.safetensors" in request] == []


def test_of_a_backend_of_another_package_all_files_are_fetched(
    hub: HubServer, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("captioner.model_folders.other_backends", lambda: {"colours": None})
    hub.add("bob/colours", {"config.json": b'{"backend": "colours"}', "palette.txt": b"red"})
    assert (model_folder("hf://bob/colours") / "palette.txt").read_text() == "red"


def test_without_network_the_cache_is_used(
    hub: HubServer, tiny_model: Path, refused: Refused, connect: Connect
) -> None:
    address = f"hf://ada/tiny@{hub.add('ada/tiny', files_of(tiny_model))}"
    folder = model_folder("hf://ada/tiny")
    hub.requests.clear()
    for variables in ({"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}):
        connect(**variables)
        for name in ("hf://ada/tiny", address):
            assert model_folder(name) == folder
        sentence = refused(["info", "hf://ada/other"])
        assert "hf://ada/other cannot be had: " in sentence
    assert hub.requests == []


def test_of_transformers_only_listed_files_are_fetched_and_nothing_is_sent(
    hub: HubServer, tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    save_tiny("blip", tmp_path / "blip")
    files = files_of(tmp_path / "blip")
    pickles = {"pytorch_model.bin": b"pickle", "code.py": b"print()"}
    commit = hub.add("ada/blip", {**files, **pickles})
    connected = Mock(wraps=socket.create_connection)
    monkeypatch.setattr(socket, "create_connection", connected)
    table = tmp_path / "captions.jsonl"
    assert main(["caption", "--demo", "--model", "hf://ada/blip", "--jsonl", str(table)]) == 0
    record = json.loads(table.read_text())
    assert (record["model"], record["digest"]) == (f"hf://ada/blip@{commit}", commit)
    assert {each.split("/")[-1] for each in hub.requests if "resolve" in each} == files.keys()
    assert {each.split()[0] for each in hub.requests} == {"GET", "HEAD"}
    assert {each.args[0] for each in connected.mock_calls} == {("127.0.0.1", hub.server_port)}
    weights = safetensors.torch.load(files.pop("model.safetensors"))
    torch.save(weights, content := io.BytesIO())
    hub.add("ada/old", {**files, **pickles, "pytorch_model.bin": content.getvalue()})
    assert "captioner convert hf://ada/old --out FOLDER" in refused(["info", "hf://ada/old"])
    assert "bin" not in "".join(hub.requests)
    hub.requests.clear()
    assert main(["convert", "hf://ada/old", "--out", str(tmp_path / "new")]) == 0
    fetched = {each.split("/")[-1] for each in hub.requests if "resolve" in each}
    assert fetched <= {*files, "pytorch_model.bin"}
    found = captioner.load(tmp_path / "new").caption(DEMO_PHOTO)
    assert found.text == record["caption"]
