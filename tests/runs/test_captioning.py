"""Whole runs of captioners, small: every road from data to a model folder."""

import json
import math
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from run_samples import Config, recipe_of, save_encoder
from safetensors.torch import load_file
from samples import Output, log_of, save_photo, write_captions

import captioner
from captioner.backends.torch_captions import load_networks
from captioner.data.example import Example
from captioner.errors import UserError
from captioner.evaluation.coco_metrics import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.model_folders import ModelFolder
from captioner.models.caption_losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    SelfCriticalConfig,
)
from captioner.runs.caption_scores import (
    CaptionReward,
    content_words_reward,
    fluency_reward,
    scores_of,
)
from captioner.runs.captioning_recipe import CaptioningRecipe, DataConfig
from captioner.runs.photos import read_training
from captioner.runs.run import train_run
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.token_batches import collate_captions
from captioner.text.vocabulary import Vocabulary
from captioner.training.run_log import best_record, read_log
from captioner.vision.feature_store import FeatureStore
from captioner.vision.images import load_image

KEPT = Path("model", "model.safetensors")


def test_a_run_leaves_a_model_its_scores_and_its_captions(config: Config, tmp_path: Path) -> None:
    recipe = recipe_of(config)
    folder = train_run(recipe, tmp_path / "run")
    model = captioner.load(folder)
    caption = model.caption([tmp_path / "photos" / "7.png"])[0]
    assert caption.attention.shape == (len(caption.words), 4, 4)
    log = log_of(tmp_path / "run")
    assert [record["epoch"] for record in log] == [1, 2]
    assert {"train_loss", "CIDEr-D", "BLEU-4", "brevity_penalty"} <= log[0].keys()
    best = best_record(log, "CIDEr-D")
    assert best["cross_entropy"] == pytest.approx(cross_entropy(folder, recipe), rel=1e-3)
    assert best["perplexity"] == pytest.approx(math.exp(best["cross_entropy"]))
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [record["image_id"] for record in found] == ["6.png", "7.png"]
    _, validation, _ = read_training(recipe.data)
    scores = scores_of([record["caption"] for record in found], validation)
    assert scores == pytest.approx(json.loads((folder / "scores.json").read_text()))
    written = model.caption([tmp_path / "photos" / name for name in ("6.png", "7.png")])
    assert [record["caption"] for record in found] == [each.text for each in written]


def cross_entropy(folder: Path, recipe: CaptioningRecipe) -> float:
    """Nats a token of the validation captions, as the training loss measures them: in one batch."""
    networks = load_networks(ModelFolder(folder))
    examples = read_training(recipe.data).validation
    pairs = [(each.source, words) for each in examples for words in each.words]
    pixels = np.stack([networks.preprocessing.pixels(load_image(photo)) for photo, _ in pairs])
    words = collate_captions([networks.vocabulary.encode(words) for _, words in pairs])
    batch = CaptioningBatch(networks.encode(pixels), *words)
    return float(CaptioningLoss(networks.decoder, ObjectiveConfig()).loss(batch)["cross_entropy"])


def test_the_log_says_what_makes_a_run_and_what_it_costs(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    folder = tmp_path / "run"
    spans = {"epochs": 1, "warmup_steps": 2, "average": 0.8}  # Three steps; the average spans five.
    train_run(recipe_of(config, training=spans), folder)
    printed = capsys.readouterr().out
    for name, steps in (("warmup_steps", 2), ("average", 5)):
        assert f"training.{name} spans {steps} steps, the run has 3: lower it" in printed
    first, epoch = read_log(folder)
    assert first["step"] == 0
    assert len(first["run"]["data"]) == 64
    assert f"torch {torch.__version__}" in first["run"]["versions"]
    assert 0 < epoch["seconds"] < epoch["total_seconds"] < 60
    assert epoch["examples_per_second"] == pytest.approx(12 / epoch["seconds"])
    assert 1e7 < epoch["memory"] < 1e11


def test_vectors_are_standardised_by_training_photos(config: Config, tmp_path: Path) -> None:
    decoder = {"standardise": True}
    whole = tmp_path / "whole"
    folder = train_run(recipe_of(config, decoder=decoder), whole)
    found = captioner.load(folder).backend.decoder.standardisation
    store = FeatureStore(next(whole.glob("features/vgg11_bn-64-*/train")))
    vectors = store.read(torch.arange(6)).flatten(end_dim=1)
    deviation, mean = torch.std_mean(vectors, dim=0, correction=0)
    torch.testing.assert_close(found.mean, mean, atol=1e-3, rtol=1e-3)
    usual = deviation > 0.1 * deviation.median()
    assert usual.any()
    torch.testing.assert_close(found.deviation[usual], deviation[usual], atol=1e-3, rtol=1e-3)


def test_encoder_weights_are_pinned_by_the_digest_that_training_prints(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    pinned = {"weights": save_encoder(tmp_path)}
    train_run(recipe_of(config, encoder=pinned), tmp_path / "first")
    prefix = "encoder: vgg11_bn, weights of digest "
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith(prefix))
    pinned["digest"] = line.removeprefix(prefix)
    train_run(recipe_of(config, encoder=pinned), tmp_path / "second")
    torch.manual_seed(1)
    save_encoder(tmp_path)
    with pytest.raises(UserError, match=f"have the digest .*, and encoder.digest is {line[-64:]}"):
        train_run(recipe_of(config, encoder=pinned), tmp_path / "third")


def test_an_encoder_is_trained_from_a_block_on(config: Config, tmp_path: Path) -> None:
    """With an own learning rate, and no statistics of batch normalisation moving."""
    weights = save_encoder(tmp_path)
    before = load_file(weights)
    encoder = {"weights": weights, "train": True, "train_from": 5}
    recipe = recipe_of(config, encoder=encoder, training={"encoder_learning_rate": 0.001})
    train_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "features").exists()
    tensors = load_file(tmp_path / "run" / "last.safetensors")
    after = {name: tensors[f"model.encoder.{name}"] for name in before}
    moved = {name for name in before if not torch.equal(after[name], before[name])}
    assert moved == {f"features.{n}.{part}" for n in (22, 25) for part in ("weight", "bias")}
    # Four steps of Adam, of which none is larger than the learning rate by much.
    change = max(float((after[name] - before[name]).abs().max()) for name in moved)
    assert 0.0005 < change < 0.02


def test_the_averaged_weights_are_validated_and_kept(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, training={"epochs": 1, "average": 0.9}), tmp_path)
    last, kept = map(load_file, (tmp_path / "last.safetensors", tmp_path / KEPT))
    name = "decoder.embedding.weight"
    assert torch.equal(kept[name], last[f"average.{name}"].half())
    assert not torch.equal(kept[name], last[f"model.{name}"].half())


def test_an_unreadable_photo_is_refused_by_name_or_left_out(config: Config, tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "2.png"
    good = photo.read_bytes()
    photo.write_bytes(good[:40])
    with pytest.raises(UserError, match=r"2\.png .*on_problem=skip leaves such photos out"):
        train_run(recipe_of(config), tmp_path / "refused")
    # So is one of an encoder that is trained, by the step that reads it.
    with pytest.raises(UserError, match=r"2\.png"):
        train_run(recipe_of(config, encoder={"train": True}), tmp_path / "trained")
    model = train_run(recipe_of(config, data={"on_problem": "skip"}), tmp_path / "skipped")
    assert "\n- left out: 1 photo that could not be read\n" in (model / "README.md").read_text()
    photo.write_bytes(good)  # Repaired, the refused run goes on with what it had.
    train_run(recipe_of(config), tmp_path / "refused", resume=True)


@pytest.mark.parametrize(
    "names", ["a.json b.json", "a.csv b.csv", "captions_train2017.json captions_val2017.json"]
)
def test_training_and_validation_captions_may_be_in_two_files(names: str, tmp_path: Path) -> None:
    """Files without splits, and COCO's, whose names say one."""
    files = [tmp_path / name for name in names.split()]
    for file, numbers in zip(files, ([1, 2, 3, 4, 5], [6]), strict=True):
        photos = [save_photo(tmp_path / f"{number}.png", number) for number in numbers]
        write_captions(file, {number: ["a dog"] for number in numbers})
        if file.suffix == ".csv":
            file.write_text("\n".join(["image,caption", *(f"{path},a dog" for path in photos)]))
    found = {"annotations": files[0], "validation_annotations": files[1], "images": tmp_path}
    data = DataConfig(format="table" if names == "a.csv b.csv" else "coco", **found)
    train, validation, sentences = read_training(data)
    assert (len(train), len(validation), sentences) == (5, 1, [])


def test_photos_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for folder in ("train", "val"):
        save_photo(tmp_path / folder / "1.png", 1)
        (tmp_path / folder / "1.txt").write_text("a dog")
    found = {"annotations": tmp_path / "train", "validation_annotations": tmp_path / "val"}
    train, validation, _ = read_training(DataConfig(format="table", **found))
    assert [each.name for each in (*train, *validation)] == ["1.png", "1.png"]
    (tmp_path / "val" / "1.png").unlink()
    (tmp_path / "val" / "1.png").symlink_to(tmp_path / "train" / "1.png")
    (tmp_path / "linked").symlink_to(tmp_path / "train")
    for folder in ("val", "linked"):
        found["validation_annotations"] = tmp_path / folder
        with pytest.raises(UserError, match=r"share 1 photo, '1\.png' among them"):
            read_training(DataConfig(format="table", **found))


def test_exact_match_is_of_words_whatever_stands_between_them() -> None:
    captions = [("A man's hat.",), ("It doesn't",)]
    examples = [Example(number, Path("a.png"), texts) for number, texts in enumerate(captions)]
    found = [["a man's hat", "it doesn't"], ["a man 's hat", "it does n't"], ["a man hat", "it"]]
    assert [scores_of(said, examples)["exact match"] for said in found] == [1.0, 1.0, 0.0]


REFERENCES = [
    [["a", "dog", "runs"], ["the", "dog", "runs", "fast"]],
    [["a", "cat"]],
    [["a", "dog", "and", "a", "cat"], ["dogs"], ["a", "dog", "and", "cats"]],
]
VOCABULARY = Vocabulary(["a", "dog", "runs", "cat", "and"])  # 4 to 8
PLAIN = CaptionReward(REFERENCES, VOCABULARY, SelfCriticalConfig())


def test_the_reward_is_cider_d_of_the_words_and_the_end() -> None:
    """An unknown word is none that a reference has, though references have unknown words."""
    captions = [[[4, 5, 6, 2], [4, 5, 6]], [[2], [4, 3, 7, 2]]]
    rows = torch.tensor([2, 0])
    found = PLAIN(rows, captions)
    texts = [[[*words, "<end>"] for words in image] for image in REFERENCES]
    said = [["a", "dog", "runs", "<end>"], ["a", "dog", "runs"]]
    said += [["<end>"], ["a", "<unk>", "cat", "<end>"]]
    frequency = DocumentFrequency.from_references(texts)
    corpora = [Corpus([words], [texts[row]]) for words, row in zip(said, (2, 2, 0, 0), strict=True)]
    expected = [cider_d(corpus, frequency).scores[0] for corpus in corpora]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-6)
    assert float(found[0, 0]) != float(found[0, 1])


def test_true_words_and_fluency_are_rewarded_beside_cider_d(tmp_path: Path) -> None:
    captions = [[[4, 5, 6, 2], [4, 7, 5, 8, 2]], [[4, 2], [3, 4, 7, 2]]]
    pairs = [(row, caption) for row in (0, 1) for caption in captions[row]]
    # Of photo 0 "dog" and "runs" are true, "cat" is not; an unknown word is no content word.
    true_words = content_words_reward(REFERENCES, VOCABULARY, 3.0)
    assert [true_words(*pair) for pair in pairs] == [2, -2, 0, 1]
    people = PeoplesNgrams([["a", "dog", "runs", "fast"], ["the", "dog", "runs"], ["a", "cat"]])
    # "a dog runs" is two captions joined. Of "a cat dog and" nobody wrote anything from "cat dog"
    # on: 3 of 5 bigrams and 3 of 4 trigrams; of "a" its end, as of both words; "<unk> a cat" has
    # two bigrams and two trigrams of its own.
    fluency = fluency_reward(people, VOCABULARY)
    assert [fluency(*pair) for pair in pairs] == pytest.approx([0, -6 / 9, -2 / 3, -4 / 7])
    config = SelfCriticalConfig(content_words_weight=0.5, false_word_weight=3.0, fluency_weight=2.0)
    text = ["a", "cat", "dog"]
    fluency = fluency_reward(PeoplesNgrams([*chain.from_iterable(REFERENCES), text]), VOCABULARY)
    beside = torch.tensor([0.5 * true_words(*pair) + 2.0 * fluency(*pair) for pair in pairs])
    texts = tmp_path / "texts.txt"
    texts.write_text("A cat dog.\n", encoding="utf-8")
    found = CaptionReward(REFERENCES, VOCABULARY, config, texts)(torch.tensor([0, 1]), captions)
    expected = PLAIN(torch.tensor([0, 1]), captions) + beside.view(2, 2)
    torch.testing.assert_close(found, expected)
