"""Captioners of transformers: tiny ones with random weights, against `generate`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import safetensors.torch
import torch
from photo_samples import turned
from PIL import Image, ImageOps
from samples import Output, Patch, Refused, photo, save_photo
from serve.serve_samples import asking, caption
from transformers_samples import save_tiny

import captioner
from captioner.cli.main import main
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.foreign_models import FAMILIES as CLASSES
from captioner.serve.service import Service

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from transformers import modeling_outputs  # noqa: E402

from captioner.backends import transformers_captions  # noqa: E402
from captioner.backends.transformers_captions import ProcessorPixels  # noqa: E402
from captioner.backends.transformers_families import CaptionFamily, FamilyCaptions  # noqa: E402

FAMILIES = ("blip", "vision-encoder-decoder", "git", "florence2")
VISION_LANGUAGE = ("smolvlm", "idefics3", "qwen2_5_vl", "paligemma")


def _tiny(family: str, folder: Path) -> Any:
    """A family, its model as transformers has it, and the folder."""
    if family == "smolvlm":
        pytest.importorskip("num2words", reason="SmolVLM's processor needs num2words")
    save_tiny(family, folder)
    name = CLASSES.get(family, "VisionEncoderDecoderModel")
    attention = "sdpa" if family in VISION_LANGUAGE else "eager"
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation=attention)
    return family, model.eval(), folder


@pytest.fixture(scope="module", params=[*FAMILIES, "deit", *VISION_LANGUAGE])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _tiny(request.param, tmp_path_factory.mktemp("tiny"))


ASKED = "Describe this image in one sentence."
SMOLVLM = f"<|im_start|>User:<image>{ASKED}<end_of_utterance>\nAssistant:"
ASKED_FOR = {
    "smolvlm": SMOLVLM,
    "idefics3": SMOLVLM,
    "qwen2_5_vl": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    f"<|vision_start|><|image_pad|><|vision_end|>{ASKED}<|im_end|>\n<|im_start|>assistant\n",
    "paligemma": "<image>caption en",
    "florence2": "<CAPTION>",
}


def inputs_of(tiny: Any, photos: list[Image.Image], task: str = "") -> Any:
    """What users of transformers give to `generate`: all made by the folder's processor."""
    family, _, folder = tiny
    task = task or ASKED_FOR.get(family, "")
    if family in VISION_LANGUAGE:
        processor = transformers.AutoProcessor.from_pretrained(folder)
        return processor(
            text=[task] * len(photos), images=[[each] for each in photos], return_tensors="pt"
        )
    images = transformers.AutoImageProcessor.from_pretrained(folder)
    inputs = {"pixel_values": images(photos, return_tensors="pt").pixel_values}
    if family == "florence2":
        images = transformers.CLIPImageProcessor(image_seq_length=17)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        processor = transformers.Florence2Processor(images, tokenizer)
        text = processor(text=[task] * len(photos), images=photos, return_tensors="pt")
        inputs |= {name: text[name] for name in ("input_ids", "attention_mask")}
    return inputs | ({"input_ids": None} if family == "blip" else {})


def generated(tiny: Any, photos: list[Image.Image], **options: Any) -> tuple[list[str], Any]:
    """The texts of `generate`, and their scores; vision-language models take a photo at a time."""
    family, model, folder = tiny
    given = {"return_dict_in_generate": True, "output_scores": True, "do_sample": False, **options}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts, scores = [], []
    batches = [[each] for each in photos] if family in VISION_LANGUAGE else [photos]
    for batch in batches:
        inputs = inputs_of(tiny, batch)
        with torch.no_grad():
            found = model.generate(**inputs, **given)
        first = inputs["input_ids"].shape[1] if family in VISION_LANGUAGE else 0
        texts += tokenizer.batch_decode(found.sequences[:, first:], skip_special_tokens=True)
        scores += found.sequences_scores.tolist() if "sequences_scores" in found else []
    return [text.strip() for text in texts], scores


SEARCHES = [
    ({}, {}),
    ({"beam": 4, "n_best": 3}, {"num_beams": 4, "num_return_sequences": 3}),
    ({"beam": 2, "length_normalisation": 0.5}, {"num_beams": 2, "length_penalty": 0.5}),
    ({"maximum_length": 7, "minimum_length": 5}, {"max_new_tokens": 7, "min_new_tokens": 5}),
]
"""Options of ours, and the same of `generate`."""


def test_texts_and_scores_are_those_of_generate(tiny: Any) -> None:
    captions = captioner.load(tiny[-1])
    photos = [photo(seed, (40 + 30 * seed, 90)) for seed in range(3)]
    for options, same in SEARCHES:
        if tiny[0] in VISION_LANGUAGE:  # They name no length.
            options, same = {"maximum_length": 8, **options}, {"max_new_tokens": 8, **same}
        texts, scores = generated(tiny, photos, **same)
        results = captions.caption(photos, **options)
        versions = [version for each in results for version in (each, *each.alternatives)]
        assert [version.text for version in versions] == texts
        assert [version.text.split() for version in versions] == [[*one.words] for one in versions]
        assert options.get("beam") or len({version.text for version in results}) > 1
        if scores and tiny[0] != "florence2":  # It blocks some.
            assert [version.score for version in versions] == pytest.approx(scores, abs=1e-4)


def save_forty(folder: Path) -> list[Path]:
    """40 photos of 33x17 to 4000x3000: landscape, portrait, EXIF turned, grey, transparent."""
    generator = np.random.default_rng(0)
    paths = []
    for number in range(40):
        scale = (number // 5) / 7
        width, height = round(33 * (4000 / 33) ** scale), round(17 * (3000 / 17) ** scale)
        colours = Image.fromarray(generator.integers(0, 256, (6, 8, 4), dtype=np.uint8))
        image = colours.resize((width, height), Image.Resampling.BICUBIC)
        kind = ("landscape", "portrait", "turned", "grey", "alpha")[number % 5]
        path = folder / f"{number:02} {kind}.{'png' if kind == 'alpha' else 'jpg'}"
        if kind == "portrait":
            image = image.transpose(Image.Transpose.ROTATE_90)
        if kind != "alpha":
            image = image.convert("L" if kind == "grey" else "RGB")
        image.save(path, exif=turned(6) if kind == "turned" else Image.Exif())
        paths.append(path)
    return paths


def upright(path: Path) -> Image.Image:
    """A photo by Pillow alone: upright, on white, in RGB."""
    image = ImageOps.exif_transpose(Image.open(path))
    page = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(page, image.convert("RGBA")).convert("RGB")


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, "deit"])
def test_texts_of_forty_files_are_those_of_processor_and_generate(
    family: str, tmp_path: Path
) -> None:
    tiny = _tiny(family, tmp_path / "model")
    paths, captions = save_forty(tmp_path), captioner.load(tmp_path / "model")
    images = [upright(path) for path in paths]
    for beam in (1, 3):
        expected, _ = generated(tiny, images, num_beams=beam, max_new_tokens=8)
        found = captions.caption(paths, beam=beam, maximum_length=8)
        wrong = [p.name for p, a, b in zip(paths, found, expected, strict=True) if a.text != b]
        assert (wrong, len({*expected}) > 4) == ([], True)


@pytest.mark.parametrize(("family", "resized"), [("git", None), ("deit", (40, 40))])
def test_the_region_of_a_crop_is_what_the_processor_sees(
    family: str, resized: Any, tmp_path: Path
) -> None:
    save_tiny(family, tmp_path)
    seen = captioner.load(tmp_path).preprocessing
    for size in ((700, 400), (33, 61), (45, 45)):
        left, top, right, bottom = seen.region(*size)
        width, height = resized or (32 * max(1, size[0] / size[1]), 32 * max(1, size[1] / size[0]))
        expected = (right - left, bottom - top), (right + left, bottom + top)
        scales = size[0] / int(width), size[1] / int(height)
        assert expected[0] == pytest.approx((32 * scales[0], 32 * scales[1]))
        assert np.abs(np.subtract(expected[1], size)).max() < 1.01 * max(scales)  # Whole pixels.
        ramp = np.linspace(0, 255, size[0], dtype=np.float32).round().astype(np.uint8)
        image = Image.fromarray(np.broadcast_to(ramp, (size[1], size[0]))).convert("RGB")
        row = seen.processor(image, do_normalize=False, return_tensors="np").pixel_values[0][0][16]
        middles = (left + (np.arange(32) + 0.5) * (right - left) / 32 - 0.5) / (size[0] - 1)
        assert row[4:-4] == pytest.approx(middles[4:-4], abs=0.01)


def test_florence_gives_a_detailed_caption(
    tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(transformers_captions, "DETAILED_TOKENS", 30)
    tiny = _tiny("florence2", tmp_path)
    captions = captioner.load(tmp_path)
    given = inputs_of(tiny, [photo()], "<DETAILED_CAPTION>")
    tokens = tiny[1].generate(**given, max_new_tokens=30)
    (text,) = captions.backend.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    short, detailed = (captions.caption(photo(), detailed=each) for each in (False, True))
    assert short.text != detailed.text == text.strip()
    assert detailed.attention.shape == (len(detailed.words), 4, 4)
    assert captions.caption(photo(), maximum_length=999).words  # Of 96 places.
    assert "'detailed': it needs Florence-2" in refused(["caption", "--demo", "--detailed"])


def test_samples_are_drawn_by_their_seed(tiny: Any) -> None:
    captions, state = captioner.load(tiny[-1]), torch.get_rng_state()
    drawn = [captions.caption(photo(), sample=True, seed=seed, n_best=2) for seed in (1, 2, 1)]
    texts = [[each.text for each in (one, *one.alternatives)] for one in drawn]
    assert texts[0] == texts[2] != texts[1]
    assert torch.equal(torch.get_rng_state(), state)
    cold = captions.caption(photo(), sample=True, temperature=0.001, maximum_length=9)
    assert cold.text == captions.caption(photo(), beam=1, maximum_length=9).text


@pytest.mark.parametrize("tiny", VISION_LANGUAGE, indirect=True)
def test_maps_of_a_prompt_are_those_of_one_plain_pass(tiny: Any) -> None:
    family, model, folder = tiny
    captions, words = captioner.load(folder), ["a", "red", "dog"]
    image = photo(0, (120, 60))
    found = captions.explain(image, "a red dog")
    inputs = {**inputs_of(tiny, [image])}
    prompt = inputs["input_ids"]
    leading = " " if ASKED_FOR[family] == SMOLVLM else ""
    pieces = captions.backend.tokenizer(f"{leading}a red dog", add_special_tokens=False)[
        "input_ids"
    ]
    inputs["input_ids"] = torch.cat([prompt, torch.tensor([pieces])], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    for name in {"token_type_ids", "mm_token_type_ids"} & inputs.keys():
        more = torch.full((1, len(pieces)), int(name == "token_type_ids"))
        inputs[name] = torch.cat([inputs[name], more], dim=1)
    inputs.pop("labels", None)
    plain = type(model).from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        output = plain(**inputs, output_attentions=True, use_cache=False)
    rows, columns = (
        (2, 5) if family == "qwen2_5_vl" else (4, 4) if family == "paligemma" else (2, 2)
    )
    marks = (prompt[0] == captions.backend.writer.config.image_token_id).nonzero()[:, 0]
    if ASKED_FOR[family] == SMOLVLM:  # Tiles, and then the whole photo.
        whole = (
            prompt[0] == captions.backend.tokenizer.convert_tokens_to_ids("<global-img>")
        ).nonzero()
        assert len(marks) > 4
        marks = torch.arange(4) + whole[-1, 0] + 1
    steps = slice(prompt.shape[1] - 1, -1)
    attended = torch.stack(output.attentions[2:]).mean(dim=(0, 2))[0, steps][:, marks].numpy()
    terms = torch.log_softmax(output.logits[0, steps], dim=-1)
    terms = terms[torch.arange(len(pieces)), torch.tensor(pieces)].numpy()
    ends = np.cumsum(
        [len(f" {word}") - (not leading and not place) for place, word in enumerate(words)]
    )
    for place, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        expected = attended[begin:end].sum(axis=0)
        assert found.attention[place].shape == (rows, columns)
        assert found.attention[place].ravel() == pytest.approx(expected / expected.sum(), abs=1e-4)
        assert found.word_log_probabilities[place] == pytest.approx(
            terms[begin:end].sum(), abs=1e-3
        )
    gradient = captions.caption(image, map_kind="gradient", maximum_length=4)
    assert gradient.attention.sum(axis=(1, 2)) == pytest.approx([1] * len(gradient.words), abs=1e-5)


PIECES = {2: "do", 3: "g", 4: " runs"}
_SEEDED = torch.Generator().manual_seed(0)  # Other numbers may have no positive gradient.
ATTENTION = torch.rand(2, 2, 4, 5, generator=_SEEDED)  # (layers, heads, T + 1, M)
SLOPES = torch.randn(2, 4, 5, 6, generator=_SEEDED)  # (heads, T + 1, M, V)


class Writer:
    """Logits are linear in the attention of the second layer, which the annotations scale."""

    device = torch.device("cpu")
    generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=1)
    config = transformers.GPT2Config()
    get_input_embeddings = staticmethod(lambda: torch.nn.Embedding(6, 2))
    named_modules = staticmethod(dict)

    def generate(self, **_: Any) -> torch.Tensor:
        return torch.tensor([[0, 2, 3, 4, 1]])

    def __call__(self, annotations: torch.Tensor, **_: Any) -> Any:
        layers = tuple(annotations[:, None, None, :, 0] * layer for layer in ATTENTION)
        logits = torch.einsum("bhtm,htmv->btv", layers[1], SLOPES)
        return modeling_outputs.Seq2SeqLMOutput(logits=logits, cross_attentions=layers)


def test_maps_and_log_probabilities_are_those_worked_out_by_hand() -> None:
    writer, family = (
        Writer(),
        CaptionFamily(Writer(), None, 2, 4, lambda each: {"annotations": each}, tokens="ids"),
    )
    tokenizer = MagicMock(decode=lambda tokens, **_: "".join(map(PIECES.get, tokens)))
    tokenizer.__len__.return_value = 6
    pixels = SimpleNamespace(pixel_values=torch.zeros(1, 3, 4, 4))
    processor = ProcessorPixels(lambda image, **_: pixels)
    backend = FamilyCaptions(writer, tokenizer, processor, family)
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
        expected = maps / maps.sum(axis=1, keepdims=True)
        assert found.attention.reshape(2, 4) == pytest.approx(expected, abs=1e-5)


CAPTION = "caption photos/0.png --model blip"
DATA = ["--format=table", "--annotations=people.csv", "--images=photos", "--split=val"]


@pytest.mark.slow
def test_words_are_tested_without_what_their_maps_show(tiny: Any) -> None:
    captions, image = captioner.load(tiny[2]), photo(0, (120, 60))
    tested = captions.erase(image, "a red dog")
    assert [each.position for each in tested.erased] == [1, 2]
    whole = [tested.word_log_probabilities[each.position] for each in tested.erased]
    assert [each.log_probability for each in tested.erased] == pytest.approx(whole, abs=1e-3)
    assert any(abs(each.without - each.log_probability) > 1e-3 for each in tested.erased)
    for each in tested.erased:
        assert each.places.shape == tested.attention[each.position].shape


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


def test_a_calibration_is_a_file_of_one_model(blip: Path, refused: Refused, capsys: Output) -> None:
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
    nothing = "blip has no weights in pytorch_model*.bin to convert"
    assert nothing in refused(["convert", "blip", "--out", "new"])
    torch.save({"step": 3}, blip / "pytorch_model.bin")
    assert nothing in refused(["convert", "blip", "--out", "new"])
    shared = {"text_decoder.another": next(iter(weights.values()))}
    torch.save({**weights, **shared}, blip / "pytorch_model.bin")
    assert "captioner convert blip --out FOLDER" in refused(CAPTION.split())
    unused = ["--word-map", "words.json", "--out", "new"]
    assert "leave out --word-map" in refused(["convert", "blip", *unused])
    assert main(["convert", "blip", "--out", "new"]) == 0
    assert captioner.load("new").caption("photos/0.png").text == expected.text


CONFIG, PIXELS, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9\n"


def text(**fields: Any) -> dict[str, Any]:
    return {"text_config": fields}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{CAPTION} --block-ngrams 2", "cannot be given 'block_ngrams'"),
        (f"{CAPTION} --cautious", "cannot be given 'cautious'"),
        (f"{CAPTION} --engine graphs", "has one engine, 'transformers'"),
        (f"{CAPTION} --given ein_Hund_im_Garten", "'ein Hund im Garten' is not in English"),
        (f"{CAPTION} --minimum-length 70 --maximum-length 99", "is more than the model's 63 posit"),
        ("export blip onnx", "'transformers': it has no networks to train or export"),
        ("train people.csv --start-from blip --out run", "has no networks to train"),
        ("caption photos/0.png --map-kind gradient", "needs a model of transformers"),
    ],
)
def test_what_it_lacks_is_refused(blip: Path, refused: Refused, command: str, said: str) -> None:
    assert said in refused([word.replace("_", " ") for word in command.split()])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (PIXELS, None, "Can't load image processor"),
        (PIXELS, {"size": {"height": 64, "width": 64}}, "photos of 64x64 pixels do not fit"),
        ("tokenizer.json", b"{", "its backend 'transformers' cannot be opened"),
        ("tokenizer.json", POINTER, "is a Git LFS pointer, not the file"),
        (WEIGHTS, POINTER, "is a Git LFS pointer, not the file: run git lfs pull"),
        (WEIGHTS, b"12345678{}", "and the weights hold 0 tensors"),
        (WEIGHTS, None, "captioner convert blip --out FOLDER makes them of pytorch_model"),
        ("adapter_config.json", b"{}", "blip is an adapter (LoRA), not a model: merge it"),
        (CONFIG, {"model_type": "llava"}, "are: blip, vision-encoder-decoder, git, florence"),
        (CONFIG, {"auto_map": {}}, "brings code, which never runs here; florence-community"),
        (CONFIG, {"architectures": ["BlipForQuestionAnswering"]}, "is a BlipForQuestionAnswering"),
        (CONFIG, text(num_hidden_layers=5), "of another architecture"),
        (CONFIG, text(num_hidden_layers=10**9), "the weights hold 167 tensors"),
        (
            CONFIG,
            text(vocab_size=60),
            "have in another size 'text_decoder.bert.embeddings.word_emb",
        ),
        (CONFIG, text(bos_token_id=10**19), "is no token below 46"),
        (CONFIG, text(bos_token_id=None), "bos_token_id None of the generation config is no token"),
        (CONFIG, text(sep_token_id=[3]), "'sep_token_id'"),
        ("generation_config.json", {"max_length": "x"}, "maximum_length"),
        ("generation_config.json", b"[1]", "'list' object is not a mapping"),
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
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    assert said in refused(CAPTION.split())


def test_an_end_of_no_token_is_refused(tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "vit"
    save_tiny("vision-encoder-decoder", folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": []}))
    command = ["caption", "--demo", "--model", f"{folder}"]
    assert "eos_token_id [] of the generation config is no token" in refused(command)


def test_parts_of_another_architecture_and_tokens_without_rows_are_named(
    blip: Path, refused: Refused
) -> None:
    weights = safetensors.torch.load_file(path := blip / "model.safetensors")
    more = {**weights, "text_encoder.weight": torch.zeros(1)}  # As of one that answers questions.
    safetensors.torch.save_file(more, path, {"format": "pt"})
    assert "the weights have besides 'text_encoder.weight'; they are of" in refused(CAPTION.split())
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(blip)
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(blip)
    assert "the tokenizer has 47 tokens, and the model 46: call resize" in refused(CAPTION.split())


def test_roberta_has_fewer_positions_than_its_config_names(tmp_path: Path) -> None:
    save_tiny("roberta", tmp_path)
    captions = captioner.load(tmp_path)
    assert captions.caption(photo(), maximum_length=60).words  # Of 34 positions, two of padding.
    with pytest.raises(UserError, match="minimum_length 40 is more than the model's 31 positions"):
        captions.caption(photo(), minimum_length=40, maximum_length=60)
