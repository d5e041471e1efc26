"""Captioners of transformers: tiny ones with random weights, against `generate`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from samples import Output, Patch, Refused, photo, save_photo
from serve.serve_samples import asking, caption
from transformers_samples import save_tiny

import captioner
from captioner.caption.captioner import Captioner
from captioner.cli.main import main
from captioner.decoding.options import SearchOptions
from captioner.model_folders import DEMO_PHOTO, FAMILIES
from captioner.serve.service import Service
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Preprocessing

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from transformers import modeling_outputs  # noqa: E402

from captioner.backends import transformers_captions, transformers_families  # noqa: E402
from captioner.backends.transformers_captions import TransformersCaptions  # noqa: E402
from captioner.backends.transformers_families import CaptionFamily  # noqa: E402


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A family, its model as transformers has it, and the folder."""
    save_tiny(request.param, folder := tmp_path_factory.mktemp("tiny"))
    name = transformers_families.FAMILIES[request.param][0]
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager")
    return request.param, model.eval(), folder


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    colours = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    return [Image.fromarray(each).resize((48, 40)) for each in colours]


def inputs_of(
    family: str, captions: Captioner, photos: list[Image.Image], task: str = "<CAPTION>"
) -> Any:
    """What users of transformers give to `generate`."""
    inputs = {"pixel_values": torch.stack(list(map(captions.preprocessing, photos)))}
    if family == "florence2":
        images = transformers.CLIPImageProcessor(image_seq_length=17)
        processor = transformers.Florence2Processor(images, captions.backend.tokenizer)
        text = processor(text=[task] * len(photos), images=photos, return_tensors="pt")
        inputs |= {name: text[name] for name in ("input_ids", "attention_mask")}
    return inputs | ({"input_ids": None} if family == "blip" else {})


SEARCHES = [
    ({}, {}),
    ({"beam": 4, "n_best": 3}, {"num_beams": 4, "num_return_sequences": 3}),
    ({"beam": 2, "length_normalisation": 0.5}, {"num_beams": 2, "length_penalty": 0.5}),
    ({"maximum_length": 7, "minimum_length": 5}, {"max_new_tokens": 7, "min_new_tokens": 5}),
]
"""Options of ours, and the same of `generate`."""


def test_texts_and_scores_are_those_of_generate(tiny: Any) -> None:
    family, model, folder = tiny
    captions = captioner.load(folder)
    photos = [photo(seed) for seed in range(3)]
    given = {**inputs_of(family, captions, photos), "return_dict_in_generate": True}
    for options, same in SEARCHES:
        with torch.no_grad():
            found = model.generate(**given, **same, output_scores=True)
        texts = captions.backend.tokenizer.batch_decode(found.sequences, skip_special_tokens=True)
        results = captions.caption(photos, **options)
        versions = [version for each in results for version in (each, *each.alternatives)]
        assert [version.text for version in versions] == [text.strip() for text in texts]
        assert [version.text.split() for version in versions] == [[*one.words] for one in versions]
        assert options or len({version.text for version in results}) > 1
        if found.get("sequences_scores") is not None and family != "florence2":  # It blocks some.
            scores = [version.score for version in versions]
            assert scores == pytest.approx(found.sequences_scores.tolist(), abs=1e-4)


def test_florence_gives_a_detailed_caption(
    tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(transformers_captions, "DETAILED_TOKENS", 30)
    save_tiny("florence2", tmp_path)
    eager = {"attn_implementation": "eager"}
    model = transformers.Florence2ForConditionalGeneration.from_pretrained(tmp_path, **eager)
    captions = captioner.load(tmp_path)
    given = inputs_of("florence2", captions, [photo()], "<DETAILED_CAPTION>")
    tokens = model.eval().generate(**given, max_new_tokens=30)
    (text,) = captions.backend.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    short, detailed = (captions.caption(photo(), detailed=each) for each in (False, True))
    assert short.text != detailed.text == text.strip()
    assert detailed.attention.shape == (len(detailed.words), 4, 4)
    assert captions.caption(photo(), minimum_length=900, maximum_length=999).words  # Of 96 places.
    assert "'detailed': it needs Florence-2" in refused(["caption", "--demo", "--detailed"])


PIECES = {2: "do", 3: "g", 4: " runs"}
_SEEDED = torch.Generator().manual_seed(0)  # Other numbers may have no positive gradient.
ATTENTION = torch.rand(2, 2, 4, 5, generator=_SEEDED)  # (layers, heads, T + 1, M)
SLOPES = torch.randn(2, 4, 5, 6, generator=_SEEDED)  # (heads, T + 1, M, V)


class Writer:
    """Logits are linear in the attention of the second layer, which the annotations scale."""

    device = torch.device("cpu")
    generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=1)
    config = transformers.GPT2Config()

    def generate(self, **_: Any) -> torch.Tensor:
        return torch.tensor([[0, 2, 3, 4, 1]])

    def __call__(self, annotations: torch.Tensor, **_: Any) -> Any:
        layers = tuple(annotations[:, None, None, :, 0] * layer for layer in ATTENTION)
        logits = torch.einsum("bhtm,htmv->btv", layers[1], SLOPES)
        return modeling_outputs.Seq2SeqLMOutput(logits=logits, cross_attentions=layers)


def test_maps_and_log_probabilities_are_those_worked_out_by_hand() -> None:
    family = CaptionFamily(Writer(), None, 2, 4, lambda each: {"annotations": each}, tokens="ids")
    tokenizer = SimpleNamespace(decode=lambda tokens, **_: "".join(map(PIECES.get, tokens)))
    backend = TransformersCaptions(family, tokenizer, Preprocessing(size=4, resize="squash"))
    attention, slopes = ATTENTION[1].double().numpy(), SLOPES.double().numpy()
    logits = np.einsum("htm,htmv->tv", attention, slopes)
    terms = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))  # (T + 1, V)
    terms_of_words = [terms[0, 2] + terms[1, 3], terms[2, 4], terms[3, 1]]
    expected = slopes - (slopes * np.exp(terms)[None, :, None]).sum(axis=-1, keepdims=True)
    gradients = np.stack([expected[:, t, :, v] for t, v in enumerate((2, 3, 4, 1))], axis=1)
    maps_of = {"attention": attention, "gradient": np.maximum(attention * gradients, 0)}
    for kind, weights in maps_of.items():
        ((found,),) = backend.search(torch.ones(1, 5, 1), SearchOptions(beam=1, map_kind=kind))
        assert (found.text, found.words, found.cut) == ("dog runs", ["dog", "runs"], False)
        assert found.log_probabilities == pytest.approx(terms_of_words, abs=1e-5)
        sums = weights[:, :, 1:].sum(axis=0)  # (T + 1, L)
        maps = np.stack([sums[0] + sums[1], sums[2]])
        assert found.attention == pytest.approx(maps / maps.sum(axis=1, keepdims=True), abs=1e-5)


def test_every_output_is_written_and_resumed(
    tiny: Any, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        save_photo(Path(f"photos/{number}.png"), number)
    command = ["caption", "photos/", "--model", str(tiny[-1]), "--map-kind", "gradient"]
    command += ["--n-best", "2", "--jsonl", "captions.jsonl"]
    drawn = "--overlay maps/ --gif gifs/ --html page.html --csv captions.csv --xmp"
    assert main([*command, *drawn.split()]) == 0
    lines = Path("captions.jsonl").read_text(encoding="utf-8").splitlines()
    assert [len(json.loads(line)["alternatives"]) for line in lines] == [1, 1, 1]
    assert min(Image.open(name).width for name in ("maps/0.png", "gifs/0.gif")) > 64
    capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    assert "3 of 3 photos are captioned already" in capsys.readouterr().err


def test_photos_are_preprocessed_as_by_transformers(tiny: Any) -> None:
    folder = tiny[-1]
    seen = captioner.load(folder).preprocessing(load_image(DEMO_PHOTO))
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    expected = processor(load_image(DEMO_PHOTO), return_tensors="pt").pixel_values[0]
    assert (seen - expected).abs().mean() < 0.02  # Pillow and torchvision round differently.


CAPTION = "caption photos/0.png --model blip"
DATA = ["--format=table", "--annotations=people.csv", "--images=photos", "--split=val"]


@pytest.fixture
def blip(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A tiny BLIP beside photos with captions."""
    save_tiny("blip", tmp_path / "blip")
    monkeypatch.chdir(tmp_path)
    for number in range(10):
        save_photo(Path(f"photos/{number}.png"), number)
    splits = ["train", *["val"] * 9]
    rows = [f"{number}.png,a red dog runs,{split}" for number, split in enumerate(splits)]
    Path("people.csv").write_text("\n".join(["image,caption,split", *rows]))
    return tmp_path / "blip"


def test_every_other_command_takes_it(blip: Path, capsys: Output) -> None:
    assert main(["evaluate", "blip", *DATA]) == 0
    assert main(["maps", "blip", "--format=shapes", "--count=3"]) == 0
    assert main(["info", "blip"]) == 0
    assert "graphs, torch, transformers" in capsys.readouterr().out
    model = captioner.load(blip)
    assert model.caption("photos/0.png", language="de").original is not None
    vectors = model.annotations([photo()])
    (given,) = model.caption_annotations(vectors, given=[["a", "red", "dog"]])
    assert given.attention.sum(axis=(1, 2)) == pytest.approx([1, 1, 1], abs=1e-5)
    with asking(Service(model)) as client:
        sent = [("photo", ("0.png", Path("photos/0.png").read_bytes()))]
        assert caption(client, sent)[0]["captions"][0]["caption"]


def test_a_calibration_is_a_file_for_one_model(
    blip: Path, refused: Refused, capsys: Output
) -> None:
    command = ["calibrate", "blip", *DATA]
    assert "goes to a file: give --out FILE" in refused(command)
    assert main([*command, "--out", "calibration.json"]) == 0
    assert captioner.load(blip).caption("photos/0.png").confidence is None
    loaded = captioner.load(blip, calibration="calibration.json")
    assert loaded.caption("photos/0.png").confidence is not None
    given = ["--jsonl", "captions.jsonl", "--calibration", "calibration.json"]
    assert main([*CAPTION.split(), *given]) == 0
    assert json.loads(Path("captions.jsonl").read_text())["confidence"] is not None
    capsys.readouterr()
    assert "give another file" in refused([*CAPTION.split(), *given[:2], "--resume"])
    save_tiny("git", Path("git"))
    others = ["caption", "photos/0.png", "--model", "git", *given[2:]]
    assert "is of other weights than git: calibrate this model" in refused(others)


def test_pickled_weights_are_converted_to_safetensors(blip: Path, refused: Refused) -> None:
    expected = captioner.load(blip).caption("photos/0.png")
    weights = safetensors.torch.load_file(blip / "model.safetensors")
    (blip / "model.safetensors").unlink()
    assert "has no pytorch_model*.bin to convert" in refused(["convert", "blip", "--out", "new"])
    shared = {"another.name": next(iter(weights.values()))}
    torch.save({**weights, **shared}, blip / "pytorch_model.bin")
    assert "captioner convert blip --out FOLDER" in refused(CAPTION.split())
    unused = ["--word-map", "words.json", "--out", "new"]
    assert "leave out --word-map" in refused(["convert", "blip", *unused])
    assert main(["convert", "blip", "--out", "new"]) == 0
    assert captioner.load("new").caption("photos/0.png").text == expected.text


@pytest.mark.exiftool
def test_its_captions_go_into_photos(blip: Path) -> None:
    assert main(["caption", "photos/0.png", "--model", str(blip), "--embed"]) == 0


PIXELS = "preprocessor_config.json"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{CAPTION} --block-ngrams 2", "cannot be given 'block_ngrams'"),
        (f"{CAPTION} --cautious", "cannot be given 'cautious'"),
        (f"{CAPTION} --sample", "has one engine, 'transformers'"),
        ("export blip onnx", "'transformers': it has no networks to train or export"),
        ("train people.csv --start-from blip --out run", "has no networks to train"),
        ("caption photos/0.png --map-kind gradient", "needs a model of transformers"),
    ],
)
def test_what_it_lacks_is_refused(blip: Path, refused: Refused, command: str, said: str) -> None:
    assert said in refused(command.split())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (PIXELS, None, "Can't load image processor"),
        (PIXELS, {"resample": 0}, "this preprocessing is unknown here"),
        (PIXELS, {"size": {"height": 64, "width": 64}}, "photos of 64 pixels do not fit"),
        ("tokenizer.json", b"{", "transformers cannot load"),
        ("model.safetensors", b"12345678{}", "transformers cannot load blip: Error while des"),
        (
            "model.safetensors",
            None,
            "captioner convert blip --out FOLDER makes them of pytorch_model",
        ),
        ("config.json", {"text_config": {"num_hidden_layers": 5}}, "they are of another architect"),
        (
            "config.json",
            {"model_type": "llava"},
            "are: blip, vision-encoder-decoder, git, florence",
        ),
        ("config.json", {"auto_map": {}}, "brings code, which never runs here; florence-community"),
        ("generation_config.json", {"num_beams": 0}, "beam should be greater than or equal to 1"),
    ],
)
def test_a_broken_folder_is_refused(
    blip: Path, refused: Refused, name: str, content: Any, said: str
) -> None:
    path = blip / name
    if isinstance(content, dict):
        ((field, value),), fields = content.items(), json.loads(path.read_text())
        fields[field] = {**fields.get(field, {}), **value} if isinstance(value, dict) else value
        content = json.dumps(fields).encode()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert said in refused(CAPTION.split())
