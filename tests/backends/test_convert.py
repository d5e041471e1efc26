"""Published checkpoints against their equations in NumPy; pickles that run nothing."""

import io
import json
import os
import pickle
import struct
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from convert_samples import (
    OTHER_MAP,
    TUTORIAL_MAP,
    Reference,
    TutorialDecoder,
    TutorialEncoder,
    other_state,
)
from samples import Output, Patch, assert_same_captions, photo, save_photo
from torchvision.models import vgg
from torchvision.transforms import v2

import captioner
from captioner.backends import convert
from captioner.caption.folder import export_model, load_model
from captioner.cli.main import main
from captioner.errors import UserError

Published = namedtuple("Published", "checkpoint network decoder numbers size")
"""A checkpoint, beside which is our model, and what is in it."""


def saved(path: Path, content: object, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def run_convert(checkpoint: Path, numbers: dict[str, int], *options: str) -> int:
    """Convert to the folder `model` beside a checkpoint."""
    words, out = checkpoint.with_name("words.json"), checkpoint.with_name("model")
    words.write_text(json.dumps(numbers))
    return main(["convert", f"{checkpoint}", "--word-map", f"{words}", "--out", f"{out}", *options])


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Whole modules, in the format from before torch 1.6, with their source."""
    torch.manual_seed(0)
    encoder, decoder = TutorialEncoder().eval(), TutorialDecoder(2048)
    content = {"epoch": 9, "bleu-4": np.float64(0.3), "encoder": encoder, "decoder": decoder}
    optimizer = torch.optim.Adam(decoder.parameters())
    decoder.fc.bias.grad = torch.zeros_like(decoder.fc.bias)
    optimizer.step()  # Its state has parameters as keys.
    content |= {"itself": content, "decoder_optimizer": optimizer}
    checkpoint = saved(tmp_path_factory.mktemp("tutorial") / "best.pth.tar", content, legacy=True)
    assert run_convert(checkpoint, TUTORIAL_MAP) == 0
    network = torch.nn.Sequential(encoder.resnet, encoder.adaptive_pool)
    return Published(checkpoint, network, decoder, TUTORIAL_MAP, 256)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """AaronCCWong's: a state dict of the decoder, and torchvision's VGG-19."""
    torch.manual_seed(0)
    network, decoder = vgg.make_layers(vgg.cfgs["E"])[:-1], TutorialDecoder(512)  # type: ignore[index]
    for weight in filter(lambda each: each.dim() > 1, network.parameters()):
        torch.nn.init.kaiming_normal_(weight)
    weights = {f"features.{name}": tensor for name, tensor in network.state_dict().items()}
    checkpoint = saved(tmp_path_factory.mktemp("other") / "model_10.pth", other_state(decoder))
    with pytest.MonkeyPatch.context() as patch:
        first = {("vgg19", "IMAGENET1K_V1"): weights}
        patch.setattr(convert, "torchvision_weights", lambda *names: first[names])
        assert run_convert(checkpoint, OTHER_MAP, "--encoder", "vgg19") == 0
    return Published(checkpoint, network, decoder, OTHER_MAP, 224)


@pytest.fixture(params=["tutorial", "other"])
def published(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@torch.no_grad()
def in_a_photo(published: Published) -> tuple[Reference, Any, Any]:
    """The equations for a photo, its vectors (1, L, D) by torchvision's modules, and our model."""
    model = load_model(published.checkpoint.with_name("model"))
    image, size = photo(0, (300, 200)), (published.size, published.size)
    pixels = v2.functional.pil_to_tensor(image.resize(size, 2)).float() / 255  # 2: bilinear.
    pixels = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(pixels)
    vectors = published.network(pixels[None]).flatten(2).mT  # (1, L, D)
    found = model.backend.encode(model.preprocessing.pixels(image)[None])
    torch.testing.assert_close(found, vectors, rtol=1e-4, atol=1e-5 * float(vectors.max()))
    reference = Reference(published.decoder, vectors[0].numpy(), published.size == 256)
    return reference, vectors, model


def test_maps_and_sentences_are_those_of_the_equations(published: Published) -> None:
    reference, vectors, model = in_a_photo(published)
    words, numbers, ours = ["two", "dog", "runs", "red"], published.numbers, model.backend
    logits, maps = reference.given([numbers[word] for word in ("<start>", *words)])
    tokens = torch.tensor([[[ours.vocabulary.start, *ours.vocabulary.encode(words)]]])
    order = [numbers.get(word, numbers.get("<eos>")) for word in ours.vocabulary.words]
    said = ours.decoder(ours.decoder.remember(vectors), tokens)
    np.testing.assert_allclose(said.logits[0, 0].detach(), logits[:, order], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(said.weights[0, 0].detach(), maps, atol=1e-5)
    assert maps.max() > 2 / 196
    sentences = set()
    for seed in range(3):
        vectors = 3 * torch.randn(vectors.shape, generator=torch.Generator().manual_seed(seed))
        reference.vectors = vectors[0].double().numpy()
        for beam in (1, 3, 5):
            search = model.search.override(beam=beam, maximum_length=8)
            (caption,) = model.caption_annotations(vectors, search)
            assert list(caption.words) == reference.search(numbers, beam, 8)
            sentences.add(caption.text)
    assert len(sentences) > 2


def test_state_dicts_convert_like_modules(tutorial: Published, tmp_path: Path) -> None:
    """Apart, behind prefixes, in both formats; an encoder from before batches were counted."""
    content = torch.load(tutorial.checkpoint, weights_only=False)
    encoder, decoder = content["encoder"].state_dict(), content["decoder"].state_dict()
    encoder = {name: encoder[name] for name in encoder if not name.endswith("tracked")}
    apart = saved(tmp_path / "encoder.pth", encoder, legacy=True)
    decoder["fc.weight"] = decoder["fc.weight"].t().contiguous().t()
    wrapped = {"state_dict": {f"module.{name}": decoder[name] for name in decoder}}
    checkpoint = saved(tmp_path / "decoder.pth", wrapped)
    assert run_convert(checkpoint, TUTORIAL_MAP, "--encoder", str(apart)) == 0
    files = [each.parent / "model/model.safetensors" for each in (checkpoint, tutorial.checkpoint)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_a_converted_model_trains_on_and_runs_as_graphs(
    tutorial: Published, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n}.png,a dog runs on water,{'train' if n < 2 else 'val'}" for n in range(4)]
    Path("photos.csv").write_text("\n".join(["image,caption,split", *rows]))
    for number in range(4):
        save_photo(tmp_path / f"{number}.png", number)
    model = tutorial.checkpoint.with_name("model")
    given = ["--start-from", f"{model}", "--out", "run", "--set=training.epochs=1"]
    assert main(["train", "photos.csv", *given]) == 0
    trained, before = load_model("run/model"), load_model(model)
    assert trained.map_shape == (14, 14)
    assert trained.backend.decoder.config == before.backend.decoder.config  # type: ignore[attr-defined]
    export_model(trained, "graphs")
    graphs = captioner.load("graphs")
    assert_same_captions(graphs.caption(["0.png"], n_best=2), trained.caption(["0.png"], n_best=2))


class Call:
    """Pickles as a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


class Marked(torch.Tensor):
    """Pickles as a call of `_rebuild_from_type_v2`."""


class Pickler(pickle.Pickler):
    """Writes a list of one tuple as a persistent id."""

    def persistent_id(self, each: Any) -> Any:
        return each[0] if isinstance(each, list) else None


def sequence(*objects: Any, end: bytes = b"") -> bytes:
    """A file from before torch 1.6."""
    file = io.BytesIO()
    for each in objects:
        Pickler(file, 2).dump(each)
    return file.getvalue() + end


HEAD = 0x1950A86A20F9469CFC6C, 1001, {}


def one_tensor(key: Any = "0", count: int = 6, stride: int = 1) -> bytes:
    """A file with the second of every `stride` numbers of 6, or of what it says they are."""
    storage = [("storage", torch.FloatStorage, key, "cpu", count, None)]
    tensor = Call(torch._utils._rebuild_tensor_v2, storage, 1, (5,), (stride,), False, {})
    return sequence(*HEAD, {"weight": tensor}, (key,), end=struct.pack("<q6f", 6, *range(6)))


def zipped(content: Any) -> bytes:
    """A file of today's torch."""
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def pickled(content: bytes) -> bytes:
    """A file from before torch 1.6 with this pickle."""
    return sequence(*HEAD) + b"\x80\x02" + content + b"." + pickle.dumps([], 2)


LONG = b"".join(b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"N" for n in range(99))
DEEP = b")" + b"2\x86" * 40  # A tuple of tuples, each twice the one before.
NUMBERED = b"Np%d\n" * 2 % (2**61, 2**62 - 1)  # Places in the memo with one hash.


MANY = b"".join(b"M" + n.to_bytes(2, "little") + b"N" for n in range(20_000))  # Numbers and None.
SHARED = b"}(" + MANY + b"uq\0]" + b"ca\nb\n)Rh\0ba" * 20_000  # One state of many objects.


def hostile(ran: Path) -> dict[str, tuple[bytes, str]]:
    """Files, with what is said of them. ran: made by their calls."""
    call, ones = Call(os.system, f"touch {ran}"), torch.ones(3)
    return {
        "magic number": (sequence(call, *HEAD), "torch did not write it"),
        "storage key": (one_tensor(key=call), "a storage has no key"),
        "beyond": (one_tensor(stride=2), "'weight' reaches beyond its storage"),
        "large": (one_tensor(count=2**60), "the file ends before the tensor 'weight'"),
        "cut off": (one_tensor()[:-5], "the file ends before the tensor 'weight'"),
        "zip": (zipped({"weight": call}), "has no decoder"),
        "key": (pickled(b"}" + DEEP + b"K\1s"), "unhashable type: 'list'"),
        "keys": (pickled(b"}(" + DEEP + b"K\1u"), "unhashable type: 'list'"),
        "dict": (pickled(b"(" + DEEP + b"K\1d"), "unhashable type: 'list'"),
        "set": (pickled(b"\x8f(" + DEEP + b"\x90"), "unhashable type: 'list'"),
        "frozen set": (pickled(b"(" + DEEP + b"\x91"), "unhashable type: 'list'"),
        "sets of sets": (pickled(b"(((K\1\x91\x91\x91"), "unhashable type: 'list'"),
        "changeable bytes": (pickled(b"\x96" + (2**33).to_bytes(8, "little")), "changeable bytes"),
        "memo": (pickled(NUMBERED), "numbers of memo as text"),
        "one hash": (pickled(b"}(" + LONG + b"u"), "unhashable type: 'list'"),
        "arguments": (pickled(b"ca\nb\n(" + MANY + b"tR"), "a.b is given 40,000 arguments"),
        "shared state": (pickled(SHARED + b"\x86"), "has no decoder"),
        "subclass": (zipped({"weight": ones.as_subclass(Marked)}), "has no decoder"),
    }


@pytest.mark.parametrize("case", hostile(Path()))
def test_nothing_of_a_hostile_pickle_runs(case: str, tmp_path: Path, capsys: Output) -> None:
    content, expected = hostile(tmp_path / "ran")[case]
    path = tmp_path / "bad.pth"
    path.write_bytes(content)
    assert run_convert(path, TUTORIAL_MAP) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"captioner: checkpoint {path} ")
    assert expected in line
    assert {*os.listdir(tmp_path)} == {"bad.pth", "words.json"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda state, words: words.pop("dog"), "words with the numbers 0 to 11, each once"),
        (lambda state, words: state.pop("lstm.weight_hh"), "'lstm.weight_hh' is missing"),
        (lambda state, words: state.pop("attention.U.bias"), "is damaged, or of another"),
        (lambda state, words: state.pop("attention.v.weight"), "has no decoder of the tutorial's"),
        (lambda state, words: None, "has no encoder: give --encoder"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    change: Any, expected: str, tmp_path: Path, capsys: Output
) -> None:
    state, words = other_state(TutorialDecoder(16)), dict(OTHER_MAP)
    change(state, words)
    path = saved(tmp_path / "model_10.pth", state)
    assert run_convert(path, words) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    with pytest.raises(UserError, match=r"is a checkpoint, .*; captioner convert .*model_10\.pth"):
        captioner.load(path)
    assert run_convert(path, words, "--encoder", "densenet161") == 2
    if "no encoder" in expected:
        assert "is neither a file nor one of vgg19, resnet152" in capsys.readouterr().err
