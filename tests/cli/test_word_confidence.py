"""The confidence of words in tables, and cautious captions, by the command line."""

import csv
import json
from pathlib import Path

import pytest
from samples import confidence_weights, make_captioner, save_photo

from captioner.caption.confidence import Confidence, WordWeights
from captioner.caption.folder import save_model
from captioner.cli.main import main


@pytest.mark.parametrize("options", [[], ["--cautious"]])
def test_tables_have_it(tmp_path: Path, options: list[str]) -> None:
    model = make_captioner()
    words = WordWeights(intercept=-1, probability=3, caption=0.5, both=0.1)
    weights = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
    model.confidence = Confidence(weights=weights, words=words)
    save_model(model, tmp_path / "model")
    photo, table, records = (str(tmp_path / name) for name in ("a.png", "a.csv", "a.json"))
    save_photo(Path(photo))
    command = ["caption", photo, "--model", str(tmp_path / "model"), "--csv", table]
    assert main([*command, "--json", records, *options]) == 0
    (record,) = json.loads(Path(records).read_text(encoding="utf-8"))
    pairs = zip(record["words"], record["word_confidence"], strict=True)
    with open(table, encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    said = [f"{word} {score:.2f}" for word, score in pairs if score is not None]
    assert row["word_confidence"] == ", ".join(said) != ""
