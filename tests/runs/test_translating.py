"""Training a translator from a config, as `captioner train` does it."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from run_samples import torchrun
from safetensors.torch import load_file

from captioner.cli.main import main
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.train_run import train_run
from captioner.runs.translation_batches import TranslationBatches
from captioner.runs.translation_recipe import TextConfig, TranslationRecipe
from captioner.runs.translation_task import TranslationTask, learn_vocabularies, read_texts
from captioner.schema import from_mapping
from captioner.training import Engine
from captioner.translate import load_translator

pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")


FILES = ("source", "target", "validation_source", "validation_target")


def mapping(**changes: Any) -> dict[str, Any]:
    return {
        "task": "translate",
        "data": {
            "format": "numbers",
            "numbers": {"train": 60, "validation": 20, "largest": 99},
            "batch_tokens": 80,
        },
        "text": {"minimum_count": 1},
        "model": {"luong": {"embedding_size": 6, "hidden_size": 8, "layers": 1, "score": "dot"}},
        "training": {"epochs": 2, "learning_rate": 0.01, "schedule": "constant"},
        "search": {"beam": 2, "maximum_length": 5},
        "validation": {"batch_size": 8},
        **changes,
    }


def recipe(**changes: Any) -> TranslationRecipe:
    return from_mapping(TranslationRecipe, mapping(**changes), "test")


def test_a_run_leaves_a_model_its_scores_and_its_translations(tmp_path: Path) -> None:
    folder = train_run(recipe(), tmp_path / "run")
    assert folder == tmp_path / "run" / "model"
    translator = load_translator(folder)
    assert translator.search.beam == 2
    assert translator.maximum_source_length == 100
    scores = json.loads((folder / "scores.json").read_text())
    assert "version:" in scores["bleu_signature"]
    written = (tmp_path / "run" / "translations.txt").read_text().splitlines()
    _, validation = read_texts(recipe().data)
    found = translator.translate([pair.source for pair in validation.pairs])
    same = sum(each.text == text for each, text in zip(found, written, strict=True))
    assert same >= 18  # The saved weights are rounded.
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert {"train_loss", "BLEU", "chrF", "exact match"} <= log[-1].keys()


def test_a_resumed_run_comes_to_the_same_numbers(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_run(recipe(), whole)
    train_run(recipe(training={**mapping()["training"], "epochs": 1}), parts)
    with pytest.raises(UserError, match="give --resume"):
        train_run(recipe(), parts)
    other = recipe(model={"luong": {**mapping()["model"]["luong"], "score": "general"}})
    with pytest.raises(UserError, match=r"made with model\.luong\.score 'dot', not 'general'"):
        train_run(other, parts, resume=True)
    train_run(recipe(), parts, resume=True)
    first, second = (load_file(each / "last.safetensors") for each in (whole, parts))
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)


def test_sampled_subwords_are_those_of_each_epoch(tmp_path: Path) -> None:
    """They come again when the run is resumed, and a vocabulary of words is refused."""
    text = {"kind": "subwords", "size": 320, "sampling": 0.2}
    one = {**mapping()["training"], "epochs": 1}
    train_run(recipe(text=text), tmp_path / "whole")
    train_run(recipe(text=text, training=one), tmp_path / "parts")
    train_run(recipe(text=text), tmp_path / "parts", resume=True)
    train_run(recipe(text={**text, "sampling": None}), tmp_path / "plain")
    whole, parts, plain = (
        load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts", "plain")
    )
    assert all(whole[name].equal(parts[name]) for name in whole)
    assert not all(whole[name].equal(plain[name]) for name in whole)
    train_run(recipe(), tmp_path / "words")
    kept = recipe(
        text={"kind": "start_from", "sampling": 0.2}, start_from=str(tmp_path / "words" / "model")
    )
    with pytest.raises(UserError, match=r"text\.sampling is of subwords, and start_from has words"):
        train_run(kept, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    with pytest.raises(UserError, match=r"text\.sampling has no effect: text\.kind is words"):
        recipe(text={"sampling": 0.2})


def test_runs_of_neighbouring_seeds_sample_other_subwords(tmp_path: Path) -> None:
    drawn = []
    for seed in (0, 1, 2**40):
        training = {**mapping()["training"], "seed": seed}
        text = {"kind": "subwords", "size": 320, "sampling": 0.2}
        task = TranslationTask(recipe(text=text, training=training))
        task.read(tmp_path, Engine(), resumed=False)
        batches = task.prepare(tmp_path, Engine(), resumed=False).batches
        assert isinstance(batches, TranslationBatches)
        assert batches.sample is not None
        drawn += [batches.sample(epoch) for epoch in (0, 1)]
    assert all(one != other for one, other in combinations(drawn, 2))


def test_a_run_whose_training_follows_its_epochs_is_not_made_longer(tmp_path: Path) -> None:
    cosine = {"epochs": 1, "learning_rate": 0.01, "schedule": "cosine"}
    train_run(recipe(training=cosine), tmp_path / "run")
    with pytest.raises(UserError, match=r"with training\.epochs 1, not 2, which the schedule cos"):
        train_run(recipe(training={**cosine, "epochs": 2}), tmp_path / "run", resume=True)


@pytest.mark.slow
def test_two_processes_train_a_translator_to_the_weights_of_one(tmp_path: Path) -> None:
    models = {
        "fed": {"luong": {**mapping()["model"]["luong"], "dropout": 0.0}},
        "stacked": {"gnmt": {"embedding_size": 6, "hidden_size": 8, "layers": 2, "dropout": 0.0}},
    }
    for name, model in models.items():
        train_run(recipe(model=model), tmp_path / name / "one")
        config = tmp_path / f"{name}.yaml"
        config.write_text(yaml.safe_dump(mapping(model=model)), encoding="utf-8")
        ended = torchrun(config, tmp_path / name / "two")
        assert ended.returncode == 0, ended.stderr[-3000:]
        one, two = (
            load_file(tmp_path / name / each / "last.safetensors") for each in ("one", "two")
        )
        weights = [each for each in one if each.startswith("model.")]
        assert len(weights) > 8
        for each in weights:
            torch.testing.assert_close(two[each], one[each], rtol=1e-3, atol=1e-5)


def test_files_subwords_and_one_vocabulary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english = ["A man walks his dog.", "Two women sit on a bench.", "A dog runs.", "Look!"] * 4
    german = ["Ein Mann und sein Hund.", "Zwei Frauen sitzen.", "Ein Hund rennt.", "Da!"] * 4
    for name, lines in (("a.en", english), ("a.de", german)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    places = (str(tmp_path / f"a.{language}") for language in ("en", "de", "en", "de"))
    data = {**dict(zip(FILES, places, strict=True)), "maximum_length": 12}
    config = mapping(
        data=data,
        text={"kind": "subwords", "joint": True, "size": 330, "capitals": "lines"},
        model={
            "transformer": {
                "embedding_size": 8,
                "heads": 2,
                "inner_size": 8,
                "encoder_layers": 1,
                "decoder_layers": 1,
                "tie_embeddings": "all",
            }
        },
        objective={"label_smoothing": 0.1},
        validation={"sentences": 4, "score": "chrF"},
    )
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(config))
    out = tmp_path / "run"
    assert main(["train", str(path), "--out", str(out), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "training: 16 pairs of sentences" in printed
    assert "training: 8 pairs cut to 12 tokens a side: lines 1, 2, 5, 6" in printed
    assert "validation: 2 sources cut to 12 tokens: lines 1, 2\n" in printed  # Of the first 4.
    translator = load_translator(out / "model")
    assert translator.source is translator.target
    assert translator.capitals == "lines"
    assert len((out / "translations.txt").read_text().splitlines()) == 4


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_a_run_starts_from_a_translator_by_its_tokens(tmp_path: Path, tie: str) -> None:
    model = {"luong": {**mapping()["model"]["luong"], "tie_embeddings": tie, "embedding_size": 8}}
    text = {"minimum_count": 1, "joint": True}
    train_run(recipe(model=model, text=text), tmp_path / "first")
    fewer = {**mapping()["data"], "numbers": {"train": 8, "validation": 3, "largest": 12}}
    still = {**mapping()["training"], "learning_rate": 1e-30, "epochs": 1}
    changes = {"model": model, "text": text, "data": fewer, "training": still}
    train_run(recipe(**changes, start_from=str(tmp_path / "first")), tmp_path / "second")
    first, second = (load_translator(tmp_path / name / "model") for name in ("first", "second"))
    words = list(second.source.tokens(range(4, len(second.source))))
    assert 0 < len(words) < len(first.source) - 4
    with torch.no_grad():
        for old, new in zip(
            *(
                (
                    each.model.embeddings.source(torch.tensor([each.source.indices(words)])),
                    each.model.embeddings.target(torch.tensor(each.target.indices(words))),
                    each.model.embeddings.logits(torch.ones(8))[each.target.indices(words)],
                )
                for each in (first, second)
            ),
            strict=True,
        ):
            torch.testing.assert_close(old, new, atol=2e-3, rtol=2e-3)  # Saved in float16.
    log = (tmp_path / "second" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[0])["epoch"] == 0  # Validated before training.


def test_a_run_keeps_the_vocabulary_it_starts_from(tmp_path: Path) -> None:
    train_run(recipe(), tmp_path / "first")
    fewer = {**mapping()["data"], "numbers": {"train": 8, "validation": 3, "largest": 12}}
    text, start = {"kind": "start_from"}, str(tmp_path / "first")
    train_run(recipe(text=text, data=fewer, start_from=start), tmp_path / "second")
    first, second = (load_translator(tmp_path / name / "model") for name in ("first", "second"))
    assert (second.source, second.target) == (first.source, first.target)
    more = {**mapping()["training"], "epochs": 3}
    again = recipe(text=text, data=fewer, start_from=start, training=more)
    train_run(again, tmp_path / "second", resume=True)
    joint = recipe(text={**text, "joint": True}, data=fewer, start_from=start)
    with pytest.raises(UserError, match=r"text\.joint should be false, as in start_from"):
        train_run(joint, tmp_path / "third")
    assert not (tmp_path / "third").exists()
    with pytest.raises(UserError, match="needs start_from, a translator"):
        recipe(text=text)


def test_new_tokens_begin_at_random_and_other_sizes_are_refused(tmp_path: Path) -> None:
    train_run(recipe(), tmp_path / "first")
    more = {**mapping()["data"], "numbers": {"train": 60, "validation": 5, "largest": 9_999}}
    start = str(tmp_path / "first" / "model")
    folder = train_run(recipe(data=more, start_from=start), tmp_path / "second")
    assert "thousand" in load_translator(folder).source.tokens(
        range(len(load_translator(folder).source))
    )
    wide = {"luong": {**mapping()["model"]["luong"], "embedding_size": 7}}
    with pytest.raises(UserError, match=r"start_from .*first/model does not fit this model"):
        train_run(recipe(model=wide, start_from=start), tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_a_published_config_keeps_a_vocabulary_by_one_change() -> None:
    path = Path(__file__).parents[2] / "configs" / "multi30k_en_de.yaml"
    changes = ["start_from=english_german", "text.kind=start_from"]
    text = read_any_recipe(path, changes).text
    assert (text.kind, text.joint, text.capitals) == ("start_from", True, "titles")
    with pytest.raises(UserError, match=r"text\.case has no effect: text\.kind is start_from"):
        read_any_recipe(path, [*changes, "text.case=lower"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"format": "parallel"}}, "data.source is missing; format 'parallel'"),
        ({"data": {"format": "csv"}}, "format 'csv' is not one of parallel, numbers"),
        (
            {"data": {"format": "numbers", "numbers": {"train": 90, "largest": 99}}},
            "train 90 and validation 500 are more than there are",
        ),
        ({"text": {"kind": "subwords", "case": "sentence"}}, "text.case 'sentence' is of words"),
        ({"model": {}}, "one model of sequence_to_sequence"),
        ({"training": {"batch_size": 32}}, "batch_size has no effect: data.batch_tokens"),
        ({"training": {"encoder_learning_rate": 0.1}}, "encoder_learning_rate has no effect"),
        ({"task": "sing"}, "task 'sing' is not 'translate'"),
        (
            {"model": {"sequence_to_sequence": {}}, "search": {"copy_unknown": True}},
            "search.copy_unknown has no effect: it needs a model with attention",
        ),
        (
            {"model": {"sequence_to_sequence": {}}, "search": {"coverage_penalty": 0.2}},
            "search.coverage_penalty has no effect: it needs a model with attention",
        ),
        (
            {"text": {"kind": "subwords"}, "search": {"copy_unknown": True}},
            "search.copy_unknown has no effect: no word is unknown",
        ),
        ({"text": {"size": 9000}}, "text.size has no effect: text.kind is words"),
        ({"text": {"method": "bpe"}}, "text.method has no effect: text.kind is words"),
        (
            {"text": {"kind": "subwords", "minimum_count": 1}},
            "text.minimum_count has no effect: text.kind is subwords",
        ),
        (
            {"data": {"format": "numbers", "source": "a.en"}},
            "data.source has no effect: data.format is numbers",
        ),
        (
            {"data": {"format": "numbers", "on_problem": "skip"}},
            "data.on_problem has no effect: data.format is numbers",
        ),
        (
            {"data": {**dict.fromkeys(FILES, "a"), "numbers": {"seed": 1}}},
            "data.numbers has no effect: data.format is parallel",
        ),
        (
            {"model": {"luong": {"score": "dot", "attention_size": 256}}},
            "model.luong.attention_size has no effect: model.luong.score is dot",
        ),
        (
            {"model": {"luong": {"attention_size": 256}}},
            "model.luong.attention_size has no effect: model.luong.score is general",
        ),
        (
            {"model": {"luong": {"window": 5}}},
            "model.luong.window has no effect: model.luong.attention is global",
        ),
        (
            {"model": {"gnmt": {"layers": 3, "residual_from": 4}}},
            "model.gnmt.residual_from has no effect: model.gnmt.layers is 3",
        ),
        (
            {"model": {"gnmt": {"tie_embeddings": "all"}}},
            "model.gnmt.tie_embeddings 'all' needs text.joint to be true",
        ),
    ],
)
def test_fields_out_of_range_are_named(tmp_path: Path, changes: Any, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(mapping(**changes)))
    with pytest.raises(UserError, match=f"config .*bad.yaml.*{message}"):
        read_any_recipe(path)


def test_a_run_of_another_task_is_not_resumed(tmp_path: Path) -> None:
    train_run(recipe(training={"epochs": 1}), tmp_path / "run")
    captions = read_any_recipe(Path(__file__).parents[2] / "configs" / "shapes_soft.yaml")
    with pytest.raises(UserError, match=r"cannot resume .*run: its run is of another task"):
        train_run(captions, tmp_path / "run", resume=True)


def test_too_few_subwords_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot learn 256 subwords .*; set text\.size"):
        train_run(recipe(text={"kind": "subwords", "size": 256}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sides_have_their_own_words_unless_joint() -> None:
    pairs = read_texts(recipe().data)[0].pairs
    source, target = learn_vocabularies(pairs, TextConfig(minimum_count=1))
    assert source != target
    source, target = learn_vocabularies(pairs, TextConfig(minimum_count=1, joint=True))
    assert source is target
