"""One model of several, by hand and as a user meets it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from samples import Output, Refused, make_captioner

from captioner.caption import Captioner, load_model, save_model
from captioner.cli.main import main
from captioner.errors import UserError
from captioner.model_folders import model_folder
from captioner.runs.model_average import average_models
from captioner.text.word_vocabulary import WordVocabulary
from captioner.translate import (
    LuongConfig,
    TranslationModelConfig,
    TranslationSearch,
    Translator,
    load_translator,
    save_translator,
)

WORDS = WordVocabulary.learn(["A man sees a dog.", "The dog runs!"], 1)
OTHER_WORDS = WordVocabulary.learn(["A man sees a cat.", "The cat runs!"], 1)


def translator(value: float, **fields: object) -> Translator:
    """A translator all of whose weights are one number."""
    config = TranslationModelConfig(
        luong=LuongConfig(**{"embedding_size": 4, "hidden_size": 4, "layers": 1, **fields})  # type: ignore[arg-type]
    )
    model = config.make(len(WORDS), len(WORDS))
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, value)
    search = TranslationSearch(beam=2 + int(value), maximum_length=5)
    return Translator(config, model, WORDS, WORDS, 6, search, "# The first")


def saved(folder: Path, *models: Translator) -> list[Path]:
    paths = [folder / f"model-{number}" for number in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        save_translator(model, path)
    return paths


def test_every_weight_is_the_mean(tmp_path: Path, capsys: Output) -> None:
    folders = saved(tmp_path, translator(1.0), translator(2.0), translator(6.0))
    out = tmp_path / "average"
    assert main(["average", *map(str, folders), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: the mean of the weights of 3 models\n"
    found = load_translator(out)
    assert found.source == found.target == WORDS
    assert found.search == load_translator(folders[0]).search
    assert found.card == "The mean of the weights of 3 models.\n\n# The first"
    parameters = list(found.model.parameters())
    assert parameters
    assert all(bool((parameter == 3.0).all()) for parameter in parameters)
    assert {path.name for path in tmp_path.iterdir()} == {"average", *(f.name for f in folders)}


def test_of_a_captioner_too_with_its_batch_normalisation(tmp_path: Path) -> None:
    captioners = [make_captioner(seed) for seed in range(2)]
    for number, captioner in enumerate(captioners):
        for name, buffer in captioner.encoder.named_buffers():
            buffer.fill_(number + 1 if buffer.is_floating_point() else 10 * (number + 1))
            assert "running" in name or "num_batches" in name
        save_model(captioner, tmp_path / str(number), torch.float32)
    average_models([tmp_path / "0", tmp_path / "1"], tmp_path / "out")
    found = load_model(tmp_path / "out")
    for part in ("encoder", "decoder"):
        one, two, mean = (
            dict(getattr(model, part).named_parameters()) for model in (*captioners, found)
        )
        for name, weight in mean.items():
            expected = ((one[name] + two[name]) / 2).half().float()
            torch.testing.assert_close(weight, expected, rtol=1e-3, atol=1e-6)
    for name, buffer in found.encoder.named_buffers():
        assert bool((buffer == (10 if "num_batches" in name else 1.5)).all())


@pytest.mark.parametrize(
    "other",
    [
        translator(2.0, layers=2),
        replace(translator(2.0), source=OTHER_WORDS, target=OTHER_WORDS),
        replace(translator(2.0), maximum_source_length=7),
        make_captioner(),
    ],
)
def test_models_that_differ_are_refused(tmp_path: Path, other: Translator | Captioner) -> None:
    (folder,) = saved(tmp_path, translator(1.0))
    save = save_translator if isinstance(other, Translator) else save_model
    save(other, tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"other cannot be averaged with .*model-0: kind, sizes, "):
        average_models([folder, tmp_path / "other"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_confidence_is_left_out(tmp_path: Path) -> None:
    assert load_model(model_folder()).confidence is not None
    average_models([model_folder(), model_folder()], tmp_path / "out")
    assert load_model(tmp_path / "out").confidence is None


def test_what_the_weights_do_not_depend_on_may_differ(tmp_path: Path) -> None:
    one, two = saved(tmp_path, translator(1.0), replace(translator(3.0), capitals="titles"))
    config = json.loads((two / "config.json").read_text())
    del config["model"]["luong"]["dropout"]  # As an older version wrote it; the default is meant.
    (two / "config.json").write_text(json.dumps(config))
    average_models([one, two], tmp_path / "out")
    assert load_translator(tmp_path / "out").capitals == "keep"


def test_one_sentence_for_an_error(tmp_path: Path, refused: Refused) -> None:
    one, two = map(str, saved(tmp_path, translator(1.0), translator(2.0)))
    for given, message in (
        ([one, "--out", f"{tmp_path}/out"], "an average needs two models or more, not 1"),
        ([one, "absent", "--out", f"{tmp_path}/out"], "model 'absent' is neither a folder"),
        ([one, two, "--out", ""], "--out is empty; it should name a folder"),
        ([one, two, "--out", two], "model-1 is there already, and not empty"),
    ):
        assert message in refused(["average", *given])
    assert load_translator(two).model.embeddings.target_embedding.weight[0, 0] == 2.0
