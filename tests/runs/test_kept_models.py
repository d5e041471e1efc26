"""What validation scored is what the saved model says: whole runs, by every kind of model.

The weights are large enough for `captioner.cpu.pack`, which a model in training never meets.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from run_samples import Config, merged, translation_mapping, write_config
from samples import Output, log_of

import captioner
from captioner.cli.main import main
from captioner.data.parallel import number_pairs
from captioner.model_folders import DEMO_PHOTO

COLOURS = {"red": (220, 30, 30), "green": (30, 190, 30), "blue": (30, 30, 220), "black": (9, 9, 9)}
CAPTIONER: Config = {
    "minimum_count": 1,
    "preprocessing": {"size": 64, "resize": "squash"},
    "encoder": {"name": "vgg11_bn", "width": 0.1, "weights": "random"},
    "training": {"epochs": 12, "validate_every": 3, "batch_size": 8},
    "search": {"beam": 3, "maximum_length": 10},
}
DECODERS: dict[str, Config] = {
    "soft": {"embedding_size": 16, "hidden_size": 192, "attention_size": 16},
    "hard": {"embedding_size": 16, "hidden_size": 192, "attention_size": 16, "selection": "hard"},
    "transformer": {
        **{"kind": "transformer", "embedding_size": 64, "heads": 2, "inner_size": 2100},
        "layers": 1,
    },
}
TRANSLATORS: dict[str, Config] = {
    "recurrent": {"luong": {"embedding_size": 16, "hidden_size": 256, "layers": 1, "score": "dot"}},
    "transformer": {
        "transformer": {
            **{"embedding_size": 64, "heads": 2, "inner_size": 2100},
            **{"encoder_layers": 1, "decoder_layers": 1},
        }
    },
}
RATES = {"adam": 0.01, "rmsprop": 0.003}


def write_table(folder: Path) -> Path:
    """Photos of four colours, four each to train on and two each to validate on."""
    random = np.random.default_rng(0)
    (folder / "photos").mkdir()
    records = []
    for number in range(24):
        name, colour = list(COLOURS.items())[number % 4]
        pixels = np.clip(colour + random.normal(0, 12, (64, 64, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
        split = "train" if number < 16 else "val"
        for caption in (f"{name} is the wall", f"a {name} wall of a house"):
            records.append({"image": f"{number}.png", "caption": caption, "split": split})
    table = folder / "captions.jsonl"
    table.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return table


def train(
    folder: Path, config: Config, optimizer: str, average: float, score: str
) -> dict[str, Any]:
    """Train a run `run` in a folder; returns the record of the validation whose model is kept."""
    settings = {"optimizer": optimizer, "learning_rate": RATES[optimizer], "average": average}
    config = merged(config, training={**settings, "schedule": "constant", "patience": 0})
    command = ["train", write_config(folder, config), "--out", str(folder / "run")]
    assert main([*command, "--device", "cpu"]) == 0
    records = [record for record in log_of(folder / "run") if score in record]
    kept = max(records, key=lambda record: (record[score], -record["perplexity"]))
    assert kept[score] > records[0][score]  # Later validations must not score the first weights.
    return kept


def assert_a_captioner_is_kept(folder: Path, decoder: str, optimizer: str, average: float) -> None:
    table = write_table(folder)
    data = {"format": "table", "annotations": str(table), "images": str(folder / "photos")}
    config = merged(CAPTIONER, data=data, decoder=DECODERS[decoder])
    record = train(folder, config, optimizer, average, "CIDEr-D")
    saved, scores = folder / "results.json", folder / "scores.json"
    command = ["evaluate", str(folder / "run" / "model"), "--format", "table", "--split", "val"]
    command += ["--annotations", str(table), "--images", str(folder / "photos")]
    command += ["--engine", "torch", "--device", "cpu"]
    assert main([*command, "--save-results", str(saved), "--json", str(scores)]) == 0
    written = json.loads((folder / "run" / "results.json").read_text())
    assert written == json.loads(saved.read_text())
    found = json.loads(scores.read_text())["CIDEr-D"]
    assert record["CIDEr-D"] == pytest.approx(found, abs=0.002)


def test_a_captioner_by_lstm_says_what_validation_scored(tmp_path: Path) -> None:
    assert_a_captioner_is_kept(tmp_path, "soft", "adam", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_captioners_say_what_validation_scored(
    tmp_path: Path, decoder: str, optimizer: str, average: float
) -> None:
    assert_a_captioner_is_kept(tmp_path, decoder, optimizer, average)


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("model", TRANSLATORS)
def test_translators_say_what_validation_scored(
    tmp_path: Path, capsys: Output, model: str, optimizer: str, average: float
) -> None:
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    pairs = number_pairs(420, seed=3)
    files = {}
    for name, part in (("", pairs[:300]), ("validation_", pairs[300:])):
        for side in ("source", "target"):
            path = tmp_path / f"{name}{side}"
            lines = [getattr(pair, side) for pair in part]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            files[path.name] = str(path)
    config = translation_mapping(
        training={"epochs": 8, "validate_every": 2},
        data={**files, "batch_tokens": 200},
        model=TRANSLATORS[model],
    )
    record = train(tmp_path, config, optimizer, average, "BLEU")
    scores = tmp_path / "scores.json"
    command = ["evaluate-translator", str(tmp_path / "run" / "model"), "--engine", "torch"]
    command += [files["validation_source"], files["validation_target"], "--json", str(scores)]
    assert main(command) == 0
    found = json.loads(scores.read_text())
    for name in ("BLEU", "chrF"):
        assert record[name] == pytest.approx(found[name], abs=0.002)
    capsys.readouterr()
    translate = ["translate", files["validation_source"], "--model", str(tmp_path / "run")]
    assert main([*translate, "--engine", "torch"]) == 0
    assert (tmp_path / "run" / "translations.txt").read_text() == capsys.readouterr().out


@pytest.mark.slow
def test_the_packaged_model_learns_how_captions_begin(tmp_path: Path) -> None:
    """README's command: a kept model that is the start does not begin so."""
    demo = Image.open(DEMO_PHOTO)
    rows = ["image,caption"]
    for number in range(16):
        place = (10 * number, 5 * number, 10 * number + 200, 5 * number + 200)
        demo.crop(place).save(tmp_path / f"{number}.jpg")
        for kind in ("cat", "brown cat", "cat with green eyes"):
            rows.append(f"{number}.jpg,a picture of a {kind}")
    table = tmp_path / "mine.csv"
    table.write_text("\n".join(rows), encoding="utf-8")
    command = ["train", str(table), "--start-from", "default", "--out", str(tmp_path / "run")]
    command += ["--set", "training.epochs=8", "--set", "training.batch_size=4"]
    assert main([*command, "--device", "cpu"]) == 0
    before, *_, last = log_of(tmp_path / "run")
    assert last["BLEU-4"] > before["BLEU-4"] + 0.5
    model = captioner.load(tmp_path / "run")
    found = model.caption([str(tmp_path / f"{number}.jpg") for number in range(16)])
    assert all(caption.text.startswith("a picture of") for caption in found)
