"""From a recipe to its loss, and whole runs of each objective, small."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from run_samples import Config, log_of, recipe_of, save_encoder
from safetensors.torch import load_file
from samples import Output

from captioner.caption import (
    ObjectiveConfig,
    SelfCriticalConfig,
)
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.runs.batches import examples_of_epoch
from captioner.runs.caption_objective import (
    caption_reward,
    cider_reward,
    content_words_reward,
    fluency_reward,
)
from captioner.runs.run import train_run
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary

CRITICAL = {"self_critical": {"samples": 3, "maximum_length": 6}}


REFERENCES = [
    [["a", "dog", "runs"], ["the", "dog", "runs", "fast"]],
    [["a", "cat"]],
    [["a", "dog", "and", "a", "cat"], ["dogs"], ["a", "dog", "and", "cats"]],
]
VOCABULARY = Vocabulary(["a", "dog", "runs", "cat", "and"])  # 4 to 8


def test_the_reward_is_cider_d_of_the_words_and_the_end() -> None:
    """An unknown word is none that a reference has, though references have unknown words."""
    captions = [[[4, 5, 6, 2], [4, 5, 6]], [[2], [4, 3, 7, 2]]]
    rows = torch.tensor([2, 0])
    found = cider_reward(REFERENCES, VOCABULARY)(rows, captions)
    texts = [[[*words, "<end>"] for words in image] for image in REFERENCES]
    said = [[["a", "dog", "runs"], ["a", "dog", "runs"]], [[], ["a", "<unk>", "cat"]]]
    ended = [[True, False], [True, True]]
    expected = [
        cider_d(
            Corpus.of([[*words, *["<end>"] * whole]], [texts[row]]),
            DocumentFrequency.from_references(texts),
        ).score
        for row, both, wholes in zip(rows.tolist(), said, ended, strict=True)
        for words, whole in zip(both, wholes, strict=True)
    ]
    np.testing.assert_allclose(found.flatten().numpy(), expected, rtol=1e-6)
    assert float(found[0, 0]) != float(found[0, 1])


def test_true_words_and_fluency_are_rewarded_beside_cider_d() -> None:
    captions = [[[4, 5, 6, 2], [4, 7, 5, 8, 2]], [[4, 2], [3, 4, 7, 2]]]
    rows = torch.tensor([0, 1])
    # Of photo 0 "dog" and "runs" are true, "cat" is not; an unknown word is no content word.
    words = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    assert torch.equal(content_words_reward(REFERENCES, VOCABULARY)(rows, captions), words)
    people = PeoplesNgrams([["a", "dog", "runs", "fast"], ["the", "dog", "runs"], ["a", "cat"]])
    # "a dog runs" is two captions joined. Of "a cat dog and" nobody wrote anything from "cat dog"
    # on: 3 of 5 bigrams and 3 of 4 trigrams; of "a" its end, as of both words; "<unk> a cat" has
    # two bigrams and two trigrams of its own.
    fluency = torch.tensor([[0.0, -6 / 9], [-2 / 3, -4 / 7]])
    assert torch.allclose(fluency_reward(people, VOCABULARY)(rows, captions), fluency)
    config = SelfCriticalConfig(content_words_weight=0.5, fluency_weight=2.0)
    plain = caption_reward(REFERENCES, VOCABULARY, SelfCriticalConfig())(rows, captions)
    people = PeoplesNgrams([*chain.from_iterable(REFERENCES), ["a", "cat", "dog"]])
    fluency = fluency_reward(people, VOCABULARY)(rows, captions)
    found = caption_reward(REFERENCES, VOCABULARY, config, [["a", "cat", "dog"]])(rows, captions)
    assert torch.allclose(found, plain + 0.5 * words + 2.0 * fluency)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_reward_takes_rows_that_were_moved_to_a_gpu() -> None:
    rows, captions = torch.tensor([2, 0]), [[[4, 5, 6, 2]], [[4, 3, 7, 2]]]
    reward = cider_reward(REFERENCES, VOCABULARY)
    assert torch.equal(reward(rows.cuda(), captions), reward(rows, captions))


def test_a_self_critical_epoch_goes_over_every_photo_once() -> None:
    captions = {0: [[4], [5], [6]], 3: [[7]], 4: [[8], [9]]}
    examples = [(row, tokens) for row in captions for tokens in captions[row]]
    plain, critical = ObjectiveConfig(), ObjectiveConfig(self_critical=SelfCriticalConfig())
    assert examples_of_epoch(examples, plain, 1) == examples
    seen = [examples_of_epoch(examples, critical, epoch) for epoch in range(6)]
    assert all([row for row, _ in epoch] == [0, 3, 4] for epoch in seen)
    for place, row in enumerate(captions):
        turns = [epoch[place][1] for epoch in seen]
        assert turns == captions[row] * (6 // len(captions[row]))


def test_a_self_critical_run_rewards_its_captions(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, objective=CRITICAL), tmp_path / "run")
    log = log_of(tmp_path / "run")
    assert [record["step"] for record in log] == [2, 4]  # Six photos in batches of four.
    assert {"train_reward", "train_length", "train_finished"} <= log[0].keys()


def test_a_run_with_scheduled_sampling_is_another_only_after_its_first_step(
    config: Config, tmp_path: Path
) -> None:
    """The probability rises from 0."""
    train_run(recipe_of(config, training={"batch_size": 12}), tmp_path / "plain")
    sampled = {"scheduled_sampling": 1.0}
    recipe = recipe_of(config, training={"batch_size": 12}, objective=sampled)
    train_run(recipe, tmp_path / "sampled")
    plain, other = (log_of(tmp_path / run) for run in ("plain", "sampled"))
    assert plain[0]["train_loss"] == other[0]["train_loss"]
    assert plain[1]["train_loss"] != other[1]["train_loss"]


@pytest.mark.parametrize("freeze", [True, False])
def test_a_run_starts_from_word_vectors(
    config: Config, tmp_path: Path, capsys: Output, freeze: bool
) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("photo " + "7 " * 8 + "\ncolour " + "-3 " * 8 + "\nhorse " + "1 " * 8)
    vectors = {"file": str(file), "freeze": freeze}
    train_run(recipe_of(config, word_vectors=vectors), tmp_path / "run")
    assert f"word vectors: 2 words found in {file}, 10 not found" in capsys.readouterr().out
    words = Vocabulary.load(tmp_path / "run" / "model" / "vocabulary.json")
    photo, colour = words.encode(["photo", "colour"])
    embedding = load_file(tmp_path / "run" / "last.safetensors")["model.decoder.embedding.weight"]
    exact = [bool((embedding[photo] == 7).all()), bool((embedding[colour] == -3).all())]
    assert exact == [freeze, freeze]
    torch.testing.assert_close(embedding[photo], torch.full((8,), 7.0), rtol=0, atol=0.2)


@pytest.mark.parametrize(
    ("train_from", "layers"), [(1, (0, 4, 8, 11, 15, 18, 22, 25)), (5, (22, 25))]
)
def test_an_encoder_is_trained_from_a_block_on(
    config: Config, tmp_path: Path, train_from: int, layers: tuple[int, ...]
) -> None:
    """With an own learning rate, and no statistics of batch normalisation moving."""
    weights = save_encoder(tmp_path)
    before = load_file(weights)
    encoder = {"weights": weights, "train": True, "train_from": train_from}
    recipe = recipe_of(config, encoder=encoder, training={"encoder_learning_rate": 0.001})
    train_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "features").exists()
    after = load_file(tmp_path / "run" / "last.safetensors")
    moved = {
        name for name in before if not torch.equal(after[f"model.encoder.{name}"], before[name])
    }
    assert moved == {f"features.{n}.{part}" for n in layers for part in ("weight", "bias")}
    # Four steps of Adam, of which none is larger than the learning rate by much.
    change = max(float((after[f"model.encoder.{n}"] - before[n]).abs().max()) for n in moved)
    assert 0.0005 < change < 0.02
