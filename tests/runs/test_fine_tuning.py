"""A model goes on with a table of one's own: one command, its words, its card."""

from pathlib import Path

import pytest
import torch
from run_samples import assert_resumes
from samples import Output, log_of, photo_bytes, save_photo, write_captions, write_tar
from torch.nn import functional

import captioner
from captioner.backends.torch_captions import TorchCaptions
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.cli.main import main
from captioner.data.readers import read_splits
from captioner.errors import UserError
from captioner.model_folders import model_folder
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.runs.caption_task import make_caption_task
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.photos import read_training
from captioner.runs.read_recipe import captioning_recipe, read_any_recipe, with_model_sections
from captioner.runs.run import train_run
from captioner.runs.start_model import copy_weights, first_words
from captioner.schema import to_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.training.distributed import Processes
from captioner.training.run_log import best_record


@pytest.fixture
def run(tmp_path: Path, tiny_captioner: Captioner) -> Path:
    """A run folder, of which only the model is needed."""
    save_model(tiny_captioner, tmp_path / "run" / "model")
    return tmp_path / "run"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ten photos, whose captions have a word that no model has."""
    rows = ["Photo;Comment"]
    for number in range(10):
        save_photo(tmp_path / "photos" / f"{number}.png", seed=number)
        rows.append(f"photos/{number}.png;Bello on the red {('dog', 'man')[number % 2]}")
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_a_folder_a_file_of_coco_and_shards_need_no_config(tmp_path: Path) -> None:
    for number in range(8):
        save_photo(tmp_path / f"{number}.png", seed=number)
        (tmp_path / f"{number}.txt").write_text("Bello on the red dog")
    numbered = {number: ["Bello on the red dog"] for number in range(8)}
    coco = write_captions(tmp_path / "c.json", numbered)
    photos = {f"{number}.png": photo_bytes(number) for number in range(8)}
    texts = {f"{number}.txt": b"Bello on the red dog" for number in range(8)}
    write_tar(tmp_path / "s" / "0.tar", photos | texts)
    shards = tmp_path / "s" / "{0..0}.tar"
    for path, form in ((tmp_path, "table"), (coco, "coco"), (shards, "table")):
        recipe = read_any_recipe(path)
        assert (recipe.data.format, recipe.data.annotations) == (form, path)
        train, validation, sentences = read_training(recipe.data)
        assert (len(train), len(validation)) == (6, 2)
        assert "has no splits: 2 of its 8 photos, drawn" in sentences[-1]
        assert read_splits(None, path, splits=["train", "val"]) == [train, validation]
    write_captions(coco, {1: ["A dog"]})
    with pytest.raises(UserError, match=r"c\.json has 1 photo and no splits; training draws"):
        read_training(read_any_recipe(coco).data)


def test_fields_left_out_come_from_the_model_that_a_config_names(run: Path) -> None:
    model, packaged = load_model(run / "model"), load_model(model_folder())
    given = {"start_from": str(run), "decoder": {"dropout": 0.1}, "training": {"epochs": 1}}
    filled = with_model_sections(given)
    assert filled["decoder"] == {**to_mapping(model.backend.decoder.config), "dropout": 0.1}
    assert filled["encoder"]["weights"] == str(run / "model")
    assert filled["training"] == {"epochs": 1}
    own = to_mapping(read_any_recipe("photos.csv"))  # The recipe for photos and captions.
    assert own["search"] == to_mapping(packaged.search)
    eyes = {"data": {"format": "shapes"}, "encoder": {"weights": "default"}}
    for each in (own, to_mapping(captioning_recipe(eyes, "mine"))):
        assert to_mapping(packaged.backend.encoder.config).items() <= each["encoder"].items()
        assert each["preprocessing"] == to_mapping(packaged.preprocessing)
    other = {**given, "encoder": {"name": "vgg19", "train": True}}
    assert with_model_sections(other)["encoder"] == other["encoder"]
    for name in ("imagenet", "nowhere", "english_german", None):
        without = {"encoder": {"weights": name}, "start_from": None if name else "nowhere"}
        assert with_model_sections(without) == without


def test_one_command_fine_tunes(run: Path, table: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "out"
    command = f"train {table} --start-from {run} --out {out} --device cpu --set training.epochs=60"
    for change in ("learning_rate=0.03", "patience=4", "batch_size=2"):
        command += f" --set training.{change}"
    assert main([*command.split(), "--set", "validation.score=ROUGE-L"]) == 0
    printed = capsys.readouterr().out
    assert "has no splits: 2 of its 10 photos, drawn with seed 0" in printed
    known = len(load_model(run / "model").backend.vocabulary)
    assert f"vocabulary: {known} words of {run} and 1 new: bello" in printed
    assert printed.index("before training: ") < printed.index("epoch 1: ")
    assert "stopped early, after epoch" in printed
    log = log_of(out)
    best = best_record(log, "ROUGE-L")
    assert 0 < best["epoch"] < len(log) - 1
    assert f"the best model, of epoch {best['epoch']} (ROUGE-L {best['ROUGE-L']:.4f})" in printed
    model = captioner.load(out)
    captions = model.caption([str(tmp_path / "photos" / f"{n}.png") for n in range(10)])
    assert sum("bello" in caption.text for caption in captions) > 5
    start = load_model(run / "model")
    assert model.backend.vocabulary.words[:known] == start.backend.vocabulary.words
    assert (model.preprocessing, model.search) == (start.preprocessing, start.search)
    assert f"started from {run}" in model.card
    summary = f"ROUGE-L {best['ROUGE-L']:.3f} in validation, after epoch {best['epoch']}"
    assert f"{summary}; {log[0]['ROUGE-L']:.3f} before training" in model.card
    assert "- `training.learning_rate`: 0.03" in model.card
    assert "encoder.weights" not in model.card
    assert main(["info", str(out)]) == 0
    assert "training: 8 photos" in capsys.readouterr().out


def test_a_resumed_run_keeps_an_unsurpassed_start(
    run: Path, table: Path, tmp_path: Path, capsys: Output
) -> None:
    changes = [f"start_from={run}", "training.schedule=constant", "training.batch_size=2"]
    changes += ["training.learning_rate=0.03", "validation.score=ROUGE-L", "training.patience=0"]
    assert_resumes(read_any_recipe(table, [*changes, "training.epochs=12"]), tmp_path)
    scores = [record["ROUGE-L"] for record in log_of(tmp_path / "split")]
    assert scores.index(max(scores)) > 1  # The kept model is of the resumed part.
    still = [*changes[:3], "training.learning_rate=1e-30", "training.patience=1"]
    kept = train_run(read_any_recipe(table, still), tmp_path / "still")
    assert "of the start, which no epoch surpassed" in capsys.readouterr().out
    table.write_text(table.read_text().replace("a", "the"))
    more = [*still[:-1], "training.patience=2"]
    train_run(read_any_recipe(table, more), tmp_path / "still", resume=True)
    assert "the data have changed since this run began: " in capsys.readouterr().out
    ours, theirs = (load_model(folder).backend.decoder.lstm for folder in (kept, run / "model"))
    torch.testing.assert_close(ours.weight_ih, theirs.weight_ih, rtol=1e-3, atol=1e-6)
    train_run(read_any_recipe(table, [*still, "validation.start=false"]), tmp_path / "no_start")
    assert log_of(tmp_path / "no_start")[0]["epoch"] == 1  # Which is kept.


def test_captions_in_another_language_bring_their_own_words(
    run: Path, table: Path, tmp_path: Path, capsys: Output
) -> None:
    text = table.read_text(encoding="utf-8")
    for english, other in (("Bello on the red", "Ein roter"), ("dog", "Hund"), ("man", "Two")):
        text = text.replace(english, other)
    table.write_text(text, encoding="utf-8")
    recipe = read_any_recipe(table, [f"start_from={run}"])
    assert isinstance(recipe, CaptioningRecipe)
    task = make_caption_task(recipe, tmp_path, resumed=False)(Processes())
    printed = capsys.readouterr().out
    assert f"vocabulary: 8 words of the captions alone: {run} knows less than a third" in printed
    model, start = task.captioner, load_model(run / "model")
    words = model.backend.vocabulary
    assert set(words.words[4:]) == {"ein", "roter", "hund", "two"}
    ours, theirs = model.backend.decoder.embedding.weight, start.backend.decoder.embedding.weight
    origins = [*start.backend.vocabulary.encode(["two"]), Vocabulary.unknown]  # Known, and new.
    torch.testing.assert_close(ours[words.encode(["two", "hund"])], theirs[origins])


def test_new_words_share_the_probability_of_the_unknown_one(run: Path) -> None:
    start = load_model(run / "model")
    old, known = start.backend.decoder.eval(), len(start.backend.vocabulary)
    words = start.backend.vocabulary.extended([["bello", "otto", "bello"]], 1)
    assert words.words == (*start.backend.vocabulary.words, "bello", "otto")
    decoder = ShowAttendTellDecoder(old.config, len(words)).eval()
    networks = TorchCaptions(start.backend.encoder, decoder, words, start.preprocessing)
    copy_weights(start.backend, networks, False)
    photos = torch.randn(2, 9, old.config.memory_size, generator=torch.Generator().manual_seed(0))
    said = torch.tensor([[[1, 4, 5]], [[1, 6, 3]]])
    outputs = [model(model.remember(photos), said).logits for model in (old, decoder)]
    before, after = (functional.softmax(logits.detach(), dim=-1) for logits in outputs)
    shared = after[..., [Vocabulary.unknown, known, known + 1]]
    torch.testing.assert_close(shared.sum(dim=-1), before[..., Vocabulary.unknown])
    torch.testing.assert_close(shared[..., 1], shared[..., 2])
    torch.testing.assert_close(after[..., 4:known], before[..., 4:known])


def test_too_few_captions_in_another_language_are_refused(run: Path) -> None:
    captions = [["ein", "hund"], ["zwei", "hunde"]]  # Without a frequent word.
    with pytest.raises(UserError, match="too few to learn another language from"):
        first_words(load_model(run / "model").backend.vocabulary, captions, 2)
