"""Training a translator from a config, as `captioner train` does it."""

import json
import math
from pathlib import Path

import pytest
import torch
from run_samples import assert_resumes, numbers, translation_mapping, write_config
from run_samples import translation_recipe as recipe
from samples import Output, log_of

from captioner import load_translator
from captioner.cli.main import main
from captioner.runs.run import train_run
from captioner.runs.translation_task import read_texts

pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")


def test_a_run_leaves_a_model_its_scores_and_its_translations(tmp_path: Path) -> None:
    assert_resumes(recipe(), tmp_path)
    folder = tmp_path / "split" / "model"
    translator = load_translator(folder)
    assert (translator.search.beam, translator.maximum_source_length) == (2, 100)
    scores = json.loads((folder / "scores.json").read_text())
    assert "version:" in scores["signatures"]["BLEU"]
    written = (tmp_path / "split" / "translations.txt").read_text().splitlines()
    _, (validation, _) = read_texts(recipe().data)
    found = translator.translate([pair.source for pair in validation])
    same = sum(each.text == text for each, text in zip(found, written, strict=True))
    assert same >= 18  # The saved weights are rounded.
    record = log_of(tmp_path / "split")[-1]
    assert {"train_loss", "BLEU", "chrF", "exact match"} <= record.keys()
    # Hardly learned, but not worse than a token at random.
    assert 0 < record["cross_entropy"] < math.log(40)
    assert record["perplexity"] == pytest.approx(math.exp(record["cross_entropy"]))


def test_files_subwords_and_one_vocabulary(tmp_path: Path, capsys: Output) -> None:
    english = ["A man walks his dog.", "Two women sit on a bench.", "A dog runs.", "Look!"] * 4
    german = ["Ein Mann und sein Hund.", "Zwei Frauen sitzen.", "Ein Hund rennt.", "Da!"] * 4
    files = {}
    for side, lines in (("source", english), ("target", german)):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files |= {side: str(tmp_path / side), f"validation_{side}": str(tmp_path / side)}
    sizes = {"embedding_size": 8, "heads": 2, "inner_size": 8, "tie_embeddings": "all"}
    config = translation_mapping(
        data={**files, "maximum_length": 12},
        text={"kind": "subwords", "joint": True, "size": 330, "capitals": "lines"},
        model={"transformer": {**sizes, "encoder_layers": 1, "decoder_layers": 1}},
        objective={"label_smoothing": 0.1},
        validation={"sentences": 4, "score": "chrF"},
    )
    out = tmp_path / "run"
    command = ["train", write_config(tmp_path, config), "--out", str(out), "--device", "cpu"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "training: 16 pairs of sentences" in printed
    assert "tokens a word, where 2.5 are many: raise text.size" in printed
    assert "training: 8 pairs cut to 12 tokens a side, the first in line 1" in printed
    translator = load_translator(out / "model")
    assert translator.source is translator.target
    assert translator.capitals == "lines"
    assert len((out / "translations.txt").read_text().splitlines()) == 4


def test_a_run_starts_from_a_translator_and_keeps_its_vocabulary(tmp_path: Path) -> None:
    train_run(recipe(), tmp_path / "first")
    still = {"learning_rate": 1e-30, "epochs": 1}
    start = {"start_from": str(tmp_path / "first"), "data": numbers(8, 3, 12)}
    train_run(recipe(**start, training=still), tmp_path / "second")
    first, second = (load_translator(tmp_path / name / "model") for name in ("first", "second"))
    assert (second.source, second.target) == (first.source, first.target)
    old, new = (each.backend.model.state_dict() for each in (first, second))
    torch.testing.assert_close(new, old)
    assert log_of(tmp_path / "second")[0]["epoch"] == 0  # Validated before training.
