"""A model goes on with a table of one's own: one command, its words, its card."""

import json
import re
from pathlib import Path

import pytest
import torch
from coco_samples import write_captions
from run_samples import assert_resumes, log_of
from samples import Output, save_photo
from shard_samples import content_of_photo, write_parquet, write_tar
from torch.nn import functional

import captioner
from captioner.caption.captioner import Captioner
from captioner.caption.folder import load_model, save_model
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.cli.main import main
from captioner.data.example import Example
from captioner.data.readers import read_examples
from captioner.decoding.constraints import ngram_keys
from captioner.errors import UserError
from captioner.evaluation.score import write_results
from captioner.model_folders import model_folder
from captioner.runs.caption_task import CaptionTask
from captioner.runs.captioning_recipe import CaptioningRecipe, read_training
from captioner.runs.read_recipe import (
    captioning_recipe,
    read_any_recipe,
    with_model_sections,
)
from captioner.runs.run import train_run
from captioner.runs.start_from import copy_weights, first_words, known_ngrams
from captioner.schema import to_mapping
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.vocabulary import Vocabulary


@pytest.fixture
def run(tmp_path: Path, tiny_captioner: Captioner) -> Path:
    """A run folder, of which only the model is needed; it knows what people wrote."""
    people = PeoplesNgrams([["a", "brown", "dog"], ["two", "red"]])
    ngrams = torch.tensor(people.token_ngrams(tiny_captioner.vocabulary, 4))
    tiny_captioner.ngrams = ngram_keys(ngrams.unbind(dim=1), len(tiny_captioner.vocabulary))
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


def test_a_table_is_learned_by_the_packaged_model() -> None:
    own = to_mapping(read_any_recipe("photos.csv"))
    model = load_model(model_folder())
    assert own["data"]["annotations"] == "photos.csv"
    assert own["decoder"] == to_mapping(model.decoder.config)
    assert own["preprocessing"] == to_mapping(model.preprocessing)
    assert own["search"] == to_mapping(model.search)
    assert to_mapping(model.encoder.config).items() <= own["encoder"].items()
    eyes = {"data": {"format": "shapes"}, "encoder": {"weights": "default"}}
    own = to_mapping(captioning_recipe(eyes, "mine"))
    assert to_mapping(model.encoder.config).items() <= own["encoder"].items()
    assert own["preprocessing"] == to_mapping(model.preprocessing)
    assert own["decoder"] == to_mapping(DecoderConfig())


def test_a_folder_and_a_file_of_coco_need_no_config(tmp_path: Path) -> None:
    for number in range(8):
        save_photo(tmp_path / f"{number}.png", seed=number)
        (tmp_path / f"{number}.txt").write_text("Bello on the red dog")
    numbered = {number: ["Bello on the red dog"] for number in range(8)}
    coco = write_captions(tmp_path / "c.json", numbered)
    drawn = []
    for path, form in ((tmp_path, "table"), (coco, "coco")):
        recipe = read_any_recipe(path)
        assert isinstance(recipe, CaptioningRecipe)
        assert (recipe.data.format, recipe.data.annotations) == (form, path)
        train, validation, sentences = read_training(recipe.data)
        assert (len(train), len(validation)) == (6, 2)
        assert "has no splits: 2 of its 8 photos, drawn" in sentences[-1]
        drawn.append([each.path for each in validation])
        for split, own in (("train", train), ("val", validation)):
            assert read_examples(None, path, split=split) == own
    assert drawn[0] == drawn[1]
    write_captions(coco, {1: ["A dog"]})
    with pytest.raises(UserError, match=r"c\.json has no splits: 0 of its 1 photos, too few"):
        read_training(recipe.data)


def test_what_a_config_leaves_out_comes_from_the_model_that_it_names(run: Path) -> None:
    model = load_model(run / "model")
    given = {"start_from": str(run), "decoder": {"dropout": 0.1}, "training": {"epochs": 1}}
    filled = with_model_sections(given)
    assert filled["decoder"] == {**to_mapping(model.decoder.config), "dropout": 0.1}
    assert filled["encoder"]["weights"] == str(run / "model")
    assert filled["training"] == {"epochs": 1}
    other = {**given, "encoder": {"name": "vgg19", "train": True}}
    assert with_model_sections(other)["encoder"] == other["encoder"]
    eyes = {"encoder": {"weights": str(run), "train": True}, "preprocessing": {"size": 64}}
    filled = with_model_sections(eyes)
    assert filled["encoder"]["width"] == model.encoder.config.width
    assert (filled["encoder"]["train"], filled["preprocessing"]["size"]) == (True, 64)
    for name in ("imagenet", "nowhere", "english_german", None):
        without = {"encoder": {"weights": name}, "start_from": None if name else "nowhere"}
        assert with_model_sections(without) == without


def test_new_words_share_the_probability_of_the_unknown_one(run: Path) -> None:
    start = load_model(run / "model")
    old = start.decoder.eval()
    words = start.vocabulary.extended([["bello", "otto", "bello"]], 1)
    assert words.words == (*start.vocabulary.words, "bello", "otto")
    decoder = ShowAttendTellDecoder(old.config, len(words)).eval()
    copy_weights(start, Captioner(start.encoder, decoder, words, start.preprocessing), False)
    known = len(start.vocabulary)
    for name in decoder.word_tensors:
        ours, theirs = decoder.state_dict()[name], old.state_dict()[name]
        rows = [row for row in range(known) if row != Vocabulary.unknown]
        assert torch.equal(ours[rows], theirs[rows])
    photos = torch.randn(2, 9, old.config.memory_size, generator=torch.Generator().manual_seed(0))
    said = torch.tensor([[[1, 4, 5]], [[1, 6, 3]]])
    with torch.no_grad():
        before, after = (
            functional.softmax(model(model.remember(photos), said).logits, dim=-1)
            for model in (old, decoder)
        )
    shared = after[..., [Vocabulary.unknown, known, known + 1]]
    torch.testing.assert_close(shared.sum(dim=-1), before[..., Vocabulary.unknown])
    torch.testing.assert_close(shared[..., 1], shared[..., 2])
    torch.testing.assert_close(after[..., 4:known], before[..., 4:known])


def test_one_command_fine_tunes_a_model_on_a_table(
    run: Path, table: Path, tmp_path: Path, capsys: Output
) -> None:
    out = tmp_path / "out"
    changes = ["training.learning_rate=0.03", "training.epochs=60", "training.patience=9"]
    changes += ["training.batch_size=2", "validation.score=ROUGE-L"]
    arguments = ["train", str(table), "--start-from", str(run), "--out", str(out)]
    arguments += ["--device", "cpu", *(part for each in changes for part in ("--set", each))]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "has no splits: 2 of its 10 photos, drawn with seed 0" in printed
    known = len(load_model(run / "model").vocabulary)
    assert f"vocabulary: {known} words of {run} and 1 new: bello" in printed
    assert printed.index("before training: ") < printed.index("epoch 1: ")
    assert "stopped early, after epoch" in printed
    log = log_of(out)
    best = max(log, key=lambda record: record["ROUGE-L"])
    assert 0 < best["epoch"] < len(log) - 1
    assert f"the best model, of epoch {best['epoch']} (ROUGE-L {best['ROUGE-L']:.4f})" in printed
    assert "nothing was gained that 2 validation photos can show: ROUGE-L 0." in printed
    assert "(too few photos for a test), true words" in printed

    model = captioner.load(out)
    captions = model.caption([str(tmp_path / "photos" / f"{n}.png") for n in range(10)])
    assert sum("bello" in caption.text for caption in captions) > 5
    start = load_model(run / "model")
    assert model.vocabulary.words[: len(start.vocabulary)] == start.vocabulary.words
    assert model.preprocessing == start.preprocessing
    assert model.search == start.search
    # What the training captions have may be said besides what the start has.
    assert model.ngrams is not None
    assert start.ngrams is not None
    assert len(model.ngrams) > len(start.ngrams)

    assert f"started from {run}" in model.card
    assert "training: 8 photos, 8 captions" in model.card
    summary = f"ROUGE-L {best['ROUGE-L']:.3f} in validation, after epoch {best['epoch']}"
    assert f"{summary}; {log[0]['ROUGE-L']:.3f} before training" in model.card
    assert "- `training.learning_rate`: 0.03" in model.card
    assert "training.batch_size`: 2" in model.card
    assert "encoder.weights" not in model.card
    assert main(["info", str(out)]) == 0
    described = capsys.readouterr().out
    assert "training: 8 photos" in described
    assert "training.learning_rate" not in described
    assert described.rstrip().endswith(f"(the whole card: {out / 'model' / 'README.md'})")


def test_a_gain_that_chance_explains_is_doubted(table: Path, tmp_path: Path) -> None:
    recipe = read_any_recipe(table)
    assert isinstance(recipe, CaptioningRecipe)
    task = CaptionTask(recipe)
    people = {number: f"a dog on the red sofa number {number}" for number in range(40)}
    task.validation = [Example(number, tmp_path, (text,)) for number, text in people.items()]
    assert task.doubt_of_gain(tmp_path) == ""  # There was no start.
    worse = dict.fromkeys(people, "a cat in water")
    write_results(tmp_path / "results.json", people)
    for right, is_doubted in ((39, True), (20, False)):
        start = {n: (people if n < right else worse)[n] for n in people}
        write_results(tmp_path / "start_results.json", start)
        doubt = task.doubt_of_gain(tmp_path)
        assert bool(doubt) == is_doubted
    write_results(tmp_path / "start_results.json", people)
    write_results(tmp_path / "results.json", worse)
    assert re.fullmatch(
        r"nothing was gained that 40 validation photos can show: CIDEr-D [\d.]+ at the start and "
        r"0\.\d+ now \(p 0\.00\), true words 1\.000 and 0\.000",
        task.doubt_of_gain(tmp_path),
    )


def test_a_start_that_no_epoch_surpasses_is_kept(
    run: Path, table: Path, tmp_path: Path, capsys: Output
) -> None:
    changes = [f"start_from={run}", "training.learning_rate=1e-30", "training.patience=1"]
    kept = train_run(read_any_recipe(table, [*changes, "validation.score=ROUGE-L"]), tmp_path / "a")
    assert "of the start, which no epoch surpassed" in capsys.readouterr().out
    assert "ROUGE-L" in (kept / "README.md").read_text(encoding="utf-8")
    ours, theirs = (load_model(folder).decoder.lstm.weight_ih for folder in (kept, run / "model"))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_a_resumed_run_keeps_its_ngrams(run: Path, table: Path, tmp_path: Path) -> None:
    changes = [f"start_from={run}", "training.schedule=constant", "training.batch_size=2"]
    changes += ["training.learning_rate=0.03", "validation.score=ROUGE-L", "training.patience=0"]
    assert_resumes(read_any_recipe(table, [*changes, "training.epochs=12"]), tmp_path)
    scores = [record["ROUGE-L"] for record in log_of(tmp_path / "split")]
    assert scores.index(max(scores)) > 1  # The kept model is of the resumed part.
    assert load_model(tmp_path / "split" / "model").ngrams is not None


def test_captions_without_a_known_word_add_no_ngrams(run: Path) -> None:
    start = load_model(run / "model")
    keys = known_ngrams(start, start.vocabulary, [["ein", "hund"]])
    assert keys is not None
    assert start.ngrams is not None
    assert keys.dtype == torch.long
    assert torch.equal(keys, start.ngrams)


def test_words_that_the_new_captions_put_together_clash_no_longer(run: Path) -> None:
    start = load_model(run / "model")
    words = start.vocabulary
    dog, man, two = words.encode(["dog", "man", "two"])
    pairs = torch.tensor([[dog, *(words.start,) * 2, each] for each in (man, two)])
    clashes = ngram_keys(pairs.unbind(dim=1), len(words))
    assert start.ngrams is not None
    start.ngrams = torch.cat([start.ngrams, clashes])
    keys = known_ngrams(start, words, [["a", "dog", "on", "a", "man"]])
    assert keys is not None
    assert torch.isin(clashes, keys).tolist() == [False, True]


def test_captions_in_another_language_bring_their_own_words_and_ngrams(
    run: Path, table: Path, tmp_path: Path, capsys: Output
) -> None:
    text = table.read_text(encoding="utf-8")
    for english, other in (("Bello on the red", "Ein roter"), ("dog", "Hund"), ("man", "Two")):
        text = text.replace(english, other)
    table.write_text(text, encoding="utf-8")
    recipe = read_any_recipe(table, [f"start_from={run}"])
    assert isinstance(recipe, CaptioningRecipe)
    task = CaptionTask(recipe)
    task.read(tmp_path, resumed=False)
    printed = capsys.readouterr().out
    assert f"vocabulary: 8 words of the captions alone: {run} knows less than a third" in printed
    model, start = task.captioner, load_model(run / "model")
    words = model.vocabulary
    assert set(words.words[4:]) == {"ein", "roter", "hund", "two"}
    ours, theirs = model.decoder.embedding.weight, start.decoder.embedding.weight
    origins = [*start.vocabulary.encode(["two"]), Vocabulary.unknown]  # Known, and new.
    torch.testing.assert_close(ours[words.encode(["two", "hund"])], theirs[origins])
    captions = model.caption([str(tmp_path / "photos" / f"{n}.png") for n in range(10)])
    assert {caption.text for caption in captions} <= {"ein roter hund", "ein roter two"}


def test_captions_in_another_language_without_a_frequent_word_are_refused(run: Path) -> None:
    start, captions = load_model(run / "model"), [["ein", "hund"], ["zwei", "hunde"]]
    words = first_words(start.vocabulary, captions, 2)
    assert len(words) == 4
    with pytest.raises(UserError, match="too few to learn another language from"):
        known_ngrams(start, words, captions)


@pytest.mark.slow
def test_photos_in_a_folder_in_tars_and_in_parquet_give_the_same_model(
    run: Path, tmp_path: Path
) -> None:
    names = [f"{number:02}.png" for number in range(60)]
    texts = [f"Bello on the red {('dog', 'man')[number % 2]}" for number in range(60)]
    splits = ["train"] * 45 + ["val"] * 15
    contents = [content_of_photo(number) for number in range(60)]
    folder, shards = tmp_path / "folder", tmp_path / "shards"
    folder.mkdir()
    rows, members = [], {}
    for name, text, split, content in zip(names, texts, splits, contents, strict=True):
        (folder / name).write_bytes(content)
        rows.append(json.dumps({"file_name": name, "text": text, "split": split}))
        described = json.dumps({"caption": text, "split": split}).encode()
        members |= {name: content, f"{name[:-4]}.json": described}
    (folder / "metadata.jsonl").write_text("\n".join(rows))
    for shard in range(3):
        part = list(members.items())[shard * 40 : shard * 40 + 40]
        write_tar(shards / f"{shard}.tar", dict(part))
    cells = [{"bytes": content, "path": None} for content in contents]
    columns = {"image": cells, "text": texts, "split": splits}
    table = write_parquet(tmp_path / "photos.parquet", columns, rows_of_group=25)
    models = []
    for number, data in enumerate((folder, shards / "{0..2}.tar", table)):
        out = tmp_path / f"out{number}"
        changes = ["training.learning_rate=0.03", "training.epochs=3"]
        arguments = ["train", str(data), "--start-from", str(run), "--out", str(out)]
        arguments += ["--device", "cpu", *(part for each in changes for part in ("--set", each))]
        assert main(arguments) == 0
        models.append((out / "model" / "model.safetensors").read_bytes())
        assert log_of(out)[-1]["epoch"] == 3
    assert models[0] != (run / "model" / "model.safetensors").read_bytes()
    assert models[0] == models[1] == models[2]
    evaluated = ["evaluate", str(tmp_path / "out0"), "--split", "val", "--annotations"]
    assert main([*evaluated, str(shards / "{0..2}.tar"), "--json", str(tmp_path / "s.json")]) == 0
