"""Models as graphs: the package's captions and translations, beside weights or with their own."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from samples import (
    Patch,
    Refused,
    assert_same_captions,
    confidence_weights,
    make_captioner,
    photo,
    save_photo,
)
from translation_samples import CONFIGS as TRANSLATORS
from translation_samples import SENTENCES, make_translator

import captioner
from captioner import load_translator
from captioner.backends.export import add_graphs
from captioner.backends.torch_captions import TorchCaptions
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import export_model, load_model, save_model
from captioner.errors import UserError
from captioner.loading import LANGUAGES
from captioner.model_folders import DEMO_PHOTO, model_folder
from captioner.models.caption_config import DecoderConfig, TransformerDecoderConfig
from captioner.models.caption_transformer import TransformerDecoder
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.text.vocabulary import Vocabulary
from captioner.translate.folder import save_translator
from captioner.translate.translator import Translator
from captioner.vision.encoder_config import EncoderConfig
from captioner.vision.encoder_families import make_encoder
from captioner.vision.preprocessing import Preprocessing

pytestmark = pytest.mark.slow


def make_calibrated() -> Captioner:
    """The tiny captioner, with classes of words and a confidence."""
    model = make_captioner()
    words = model.backend.vocabulary.words
    classes = [*range(4), *(4 + place // 2 * 2 for place in range(len(words) - 4))]
    model.backend.vocabulary = Vocabulary(words[4:], classes=classes)
    weights = confidence_weights(1.0, 0.5, 0.3, 0.1, -0.02)
    words = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1, offsets={"dog": 0.4})
    model.confidence = Confidence(weights=weights, unsure_below=0.45, words=words)
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    export_model(make_calibrated(), folder)
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with graphs beside its weights."""
    folder = tmp_path_factory.mktemp("saved")
    save_model(make_calibrated(), folder)
    add_graphs(folder)
    return folder


@pytest.mark.parametrize("kind", ["exported", "saved"])
def test_captions_maps_and_confidence_are_the_captioners(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    model, graphs = make_calibrated(), captioner.load(folder)
    model.backend.for_inference()
    if kind == "saved":
        model = captioner.load(folder, engine="torch")
    assert graphs.engine == "graphs"
    photos = [photo(seed, (90 + 7 * seed, 80)) for seed in range(12)]
    for options in (
        {},
        {"n_best": 10, "beam": 10, "length_normalisation": 0.7},
        {"n_best": 12, "beam": 12, "minimum_length": 0, "maximum_length": 1},
        {"n_best": 5, "beam": 5, "maximum_length": 3},
        {"beam": 1},
        {"cautious": True, "n_best": 2},
        {"truth_weight": 3.0, "n_best": 2},
        {"n_best": 3, "block_ngrams": 2, "repeat_distance": 3, "without": "dog,man runs"},
        {"block_ngrams": 1, "minimum_length": 4},
    ):
        found = graphs.caption(photos, batch_size=5, **options)
        assert_same_captions(found, model.caption(photos, **options))
    (caption,) = pickle.loads(pickle.dumps(graphs)).caption(photos[:1])
    assert_same_captions([caption], model.caption(photos[:1]))
    caption.overlay(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert graphs.caption_annotations(np.zeros((0, 16, 25), np.float32)) == []


@pytest.mark.parametrize("name", ["vgg", "default"])
def test_the_packaged_captioners_say_the_same_in_float16(tmp_path: Path, name: str) -> None:
    model = captioner.load(name, engine="torch")
    packaged = captioner.load(name, engine="graphs")
    photos = [photo(seed, (224, 224)) for seed in range(12)] + [DEMO_PHOTO]
    pixels = np.random.default_rng(0).integers(256, size=(1, 3, 224, 224), dtype=np.uint8)
    assert_same_captions(packaged.caption(photos), model.caption(photos))
    whole = packaged.backend.encode(pixels)
    export_model(
        load_model(model_folder(name)), tmp_path, "float16"
    )  # The package's are in float16, too.
    graphs = captioner.load(tmp_path)
    assert graphs.caption(DEMO_PHOTO).text == packaged.caption(DEMO_PHOTO).text
    assert np.linalg.norm(whole - graphs.backend.encode(pixels)) < 1e-5 * np.linalg.norm(whole)


def assert_same_translations(
    graphs: Translator, plain: Translator, sentences: list[str], options: dict[str, Any]
) -> None:
    found, expected = (each.translate(sentences, **options) for each in (graphs, plain))
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.words) == (other.text, other.words)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)


@pytest.mark.parametrize("name", LANGUAGES.values())
def test_the_packaged_translators_write_the_same(name: str) -> None:
    plain = captioner.load_translator(name, engine="torch")
    assert sum(path.stat().st_size for path in model_folder(name).glob("*.onnx")) < 300_000
    graphs = captioner.load_translator(name)
    assert graphs.engine == "graphs"
    sentences = [
        "A man is riding a brown horse on the beach.",
        "Two dogs",
        "",
        "A group of people stand in front of a large building in Zxqv.",
    ]
    for options in ({"n_best": 5}, {"beam": 1}, {"n_best": 8, "coverage_penalty": 0.4}):
        assert_same_translations(graphs, plain, sentences, options)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_of_every_family_write_the_same(name: str, tmp_path: Path) -> None:
    save_translator(make_translator(name, joint=True), tmp_path, torch.float32)
    add_graphs(tmp_path)
    graphs, plain = load_translator(tmp_path), load_translator(tmp_path, engine="torch")
    assert (graphs.engine, plain.engine) == ("graphs", "torch")
    assert graphs.attends is plain.attends
    sentences = [*SENTENCES, "A dog", "man " * 15]  # Padding follows all but the last.
    for options in ({"n_best": 3}, {"beam": 1}, {"beam": 4, "coverage_penalty": 0.4}):
        assert_same_translations(graphs, plain, sentences, options)
        assert_same_translations(graphs, plain, sentences[-1:], options)
    for model in (graphs, plain):
        if not name.startswith("transformer"):
            with pytest.raises(UserError, match="needs a Transformer, which this is not"):
                model.choose_alignment(0, None)


@pytest.mark.parametrize("name", ["efficientnet_lite2", "torchvision/resnet18", "timm/test_vit"])
def test_encoders_of_other_families_are_exported_as_they_compute(tmp_path: Path, name: str) -> None:
    size = 64
    encoder = make_encoder(EncoderConfig.of_kind({"name": name}))
    config = DecoderConfig(memory_size=encoder.annotation_size, hidden_size=8, attention_size=8)
    decoder = ShowAttendTellDecoder(config, 14)
    vocabulary = make_captioner().backend.vocabulary
    networks = TorchCaptions(encoder, decoder, vocabulary, Preprocessing(size=size))
    export_model(Captioner(networks), tmp_path)
    pixels = np.random.default_rng(0).integers(256, size=(3, 3, size, size), dtype=np.uint8)
    found = torch.from_numpy(captioner.load(tmp_path).backend.encode(pixels))  # In 2 and 1.
    torch.testing.assert_close(found, networks.encode(pixels), rtol=1e-3, atol=1e-3)


def test_graphs_score_given_captions_as_torch_does(saved: Path, exported: Path) -> None:
    photos = [photo(seed, (90, 80)) for seed in range(3)]
    texts = ["two water water water", "a dog", "a man runs on the red brown zebra"]  # And <unk>.
    for folder, plain in (
        (exported, make_calibrated()),
        (saved, captioner.load(saved, engine="torch")),
    ):
        plain.backend.for_inference()
        with pytest.warns(UserWarning, match="zebra"):
            found, expected = (
                model.explain(photos, texts)
                for model in (captioner.load(folder, engine="graphs"), plain)
            )
        assert_same_captions(found, expected)


def test_batches_at_once_agree_with_one(exported: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    model = captioner.load(exported, engine="graphs")
    photos = [save_photo(tmp_path / f"{number}.png", seed=number) for number in range(5)]
    threads = [model.backend.for_workers(workers).threads for workers in (0, 1, 3)]
    assert threads == [4, 4, 1]
    expected = [model.caption(photo, beam=2) for photo in photos]
    assert_same_captions(model.caption(photos, batch_size=2, beam=2), expected)


def test_saving_a_model_removes_the_graphs_of_the_one_before(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "model")
    save_model(make_captioner(), folder)
    assert list(folder.glob("*.onnx")) == []
    assert captioner.load(folder).engine == "torch"
    with pytest.raises(UserError, match="holds a model with its weights; export into another"):
        export_model(make_captioner(), folder)


def test_graphs_are_opened_again_where_they_were_if_they_are_the_same(
    saved: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    shutil.copytree(saved, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    model = captioner.load("model", engine="graphs")
    monkeypatch.chdir(saved)
    assert model.backend.for_workers(2).threads == 2
    pickled = pickle.dumps(model)
    assert pickle.loads(pickled).map_shape == model.map_shape
    other = make_calibrated()
    with torch.no_grad():
        other.backend.decoder.output.bias += 1
    save_model(other, tmp_path / "model")
    add_graphs(tmp_path / "model")
    for open_again in (lambda: pickle.loads(pickled), lambda: model.backend.for_workers(4)):
        with pytest.raises(UserError, match="of another model than"):
            open_again()


@pytest.mark.parametrize(
    ("name", "most"), [("default", 190), ("english_german", 285), ("english_french", 325)]
)
def test_a_step_of_a_packaged_model_has_few_operators(name: str, most: int) -> None:
    graph = onnx.load(model_folder(name) / "step.onnx", load_external_data=False).graph
    constants = {each.name for each in graph.initializer}
    computed = 0
    for node in graph.node:
        if constants.issuperset(node.input):  # Computed once, at loading.
            constants.update(node.output)
        else:
            computed += 1
    assert computed <= most


def test_what_graphs_cannot_do_is_refused(exported: Path, refused: Refused, tmp_path: Path) -> None:
    graphs = captioner.load(exported)
    with pytest.raises(UserError, match="sampling needs torch"):
        graphs.caption(photo(), sample=True)
    translator = captioner.load_translator(engine="graphs")
    with pytest.raises(UserError, match="needs torch"):
        translator.choose_alignment(0, "mean")
    with pytest.raises(UserError, match="engine 'other' is not one of auto, graphs, torch"):
        captioner.load(engine="other")  # type: ignore[call-overload]
    assert "exists; --overwrite replaces it" in refused(["export", "default", str(exported)])
    config = TransformerDecoderConfig(embedding_size=8, heads=2, layers=1, inner_size=8)
    transformer = make_captioner()
    transformer.backend.decoder = TransformerDecoder(config, len(transformer.backend.vocabulary))
    with pytest.raises(UserError, match="'transformer' cannot be exported"):
        export_model(transformer, tmp_path / "model")
