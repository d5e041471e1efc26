"""The table of translators: what each scores alone, with the exponent it does best with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from scripts_samples import ROOT, run

from captioner.evaluation.translation_report import TranslationReport, score_translator
from captioner.text.word_vocabulary import WordVocabulary
from captioner.translate import (
    LuongConfig,
    TranslationModelConfig,
    TranslationSearch,
    Translator,
    load_translator,
    save_translator,
)

SCRIPT = str(ROOT / "scripts/compare_translators.py")
SOURCES = ["a man sees a dog .", "the dog runs !", "a dog .", "the man sees the dog and runs ."]
EXPONENTS = (0.0, 1.0, 3.0)


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two translators of random weights, whose runs are called first and second."""
    folders = []
    for seed, run_name in enumerate(("first", "second")):
        torch.manual_seed(seed)
        words = WordVocabulary.learn(SOURCES, 1)
        config = TranslationModelConfig(
            luong=LuongConfig(embedding_size=4, hidden_size=8 * seed + 4)
        )
        model = config.make(len(words), len(words))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        search = TranslationSearch(beam=2, maximum_length=8)
        folder = tmp_path / f"runs/{run_name}/model"
        save_translator(Translator(config, model, words, words, 20, search), folder)
        folders.append(folder)
    return folders


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    source, references = tmp_path / "val.en", tmp_path / "val.de"
    source.write_text("\n".join(SOURCES) + "\n")
    references.write_text("\n".join(SOURCES) + "\n")
    return source, references


def alone(folder: Path, texts: tuple[Path, Path], exponent: float) -> TranslationReport:
    translator = load_translator(folder)
    search = translator.search.replace(beam=3, length_normalisation=exponent)
    return score_translator(translator, *texts, search)


def test_each_has_the_scores_it_has_alone(
    tmp_path: Path, models: list[Path], texts: tuple[Path, Path]
) -> None:
    source, references = map(str, texts)
    said = run(
        *(tmp_path, SCRIPT, *map(str, models), "--source", source, "--references", references),
        *("--beam", "3", "--length-normalisation", *map(str, EXPONENTS)),
        *("--picture", "lengths.svg", "--json", "all.json"),
    )
    found = json.loads((tmp_path / "all.json").read_text())
    assert list(found) == ["first", "second"]
    lines = said.splitlines()
    for place, (name, folder) in enumerate(zip(found, models, strict=True)):
        by_exponent = {at: alone(folder, texts, at) for at in EXPONENTS}
        bleu = {at: report.scores.bleu for at, report in by_exponent.items()}
        best = max(EXPONENTS, key=lambda at: bleu[at])
        assert found[name]["length_normalisation"] == best
        assert found[name]["BLEU by length_normalisation"] == {
            f"{at:g}": pytest.approx(score) for at, score in bleu.items()
        }
        wanted = by_exponent[best].as_dict()
        assert {key: found[name][key] for key in wanted} == wanted
        weights = sum(weight.numel() for weight in load_translator(folder).model.parameters())
        assert found[name]["parameters"] == weights
        cells = [cell.strip() for cell in lines[2 + place].strip("|").split("|")]
        scores = by_exponent[best].scores
        assert cells == [
            *(name, f"{weights / 1e6:.2f}", f"{scores.bleu:.1f}", f"{scores.chrf:.1f}"),
            *(f"{scores.brevity_penalty:.3f}", f"{best:g}"),
            ", ".join(f"{at:g}: {score:.1f}" for at, score in bleu.items()),
        ]
        cut = len(by_exponent[best].cut)
        assert (f"{name} cut 0 sources" in said) == bool(cut)
        assert not cut or f" and {cut} translations, at the longest length\n" in said
        buckets = [f"{bucket.bleu:.1f}" for bucket in by_exponent[best].lengths]
        assert f"| {name} | {' | '.join(buckets)} |" in lines
    assert "| words of the source (sentences) | 1 to 5 (2) | 6 to 10 (2) |" in lines
    assert any(line.startswith("BLEU nrefs:1|") for line in lines)
    # Text is drawn as shapes in SVG, and what each says stands beside it.
    drawn = (tmp_path / "lengths.svg").read_text()
    for text in ("first", "second", "1 to 5", "(2)", "BLEU", "words of the source"):
        assert f"<!-- {text}" in drawn


def test_of_equal_exponents_the_first_is_kept(
    tmp_path: Path, models: list[Path], texts: tuple[Path, Path]
) -> None:
    """Greedy search has one hypothesis, whatever it is ranked by."""
    said = run(
        *(tmp_path, SCRIPT, str(models[0]), "--source", str(texts[0])),
        *("--references", str(texts[1]), "--beam", "1", "--length-normalisation", "3", "1"),
    )
    assert said.splitlines()[2].split(" | ")[5] == "3"


@pytest.mark.parametrize(
    ("models_given", "picture", "message"),
    [
        (1, "lengths.gif", "cannot write lengths.gif: its name must end in"),
        (9, "lengths.png", "--picture can tell 8 models apart, not 9"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_any_work(
    tmp_path: Path, models_given: int, picture: str, message: str
) -> None:
    absent = [f"runs/{number}/model" for number in range(models_given)]
    with pytest.raises(AssertionError, match=message):
        run(
            *(tmp_path, SCRIPT, *absent, "--source", "absent", "--references", "absent"),
            *("--picture", picture),
        )


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("--json", "val.en", "--source and --json are the same file, val.en"),
        ("--picture", "val.png", "--references and --picture are the same file, val.png"),
        ("--json", "runs/first/model/config.json", "model/config.json, which MODELS reads"),
    ],
)
def test_what_is_read_is_never_written_over(
    tmp_path: Path,
    models: list[Path],
    texts: tuple[Path, Path],
    option: str,
    place: str,
    message: str,
) -> None:
    (tmp_path / "val.png").write_bytes(texts[1].read_bytes())
    before = (tmp_path / place).read_bytes()
    with pytest.raises(AssertionError, match=message):
        run(
            *(tmp_path, SCRIPT, str(models[0]), "--source", "val.en"),
            *("--references", "val.png", option, place),
        )
    assert (tmp_path / place).read_bytes() == before


def test_all_models_are_opened_before_the_first_translates(
    tmp_path: Path, models: list[Path]
) -> None:
    """What is to be translated is not there: that of the models is said all the same."""
    (models[1] / "model.safetensors").write_bytes(b"")
    texts = ("--source", "absent", "--references", "absent")
    for second, message in ((str(models[1]), "model.safetensors"), ("none", "'none' is neither")):
        with pytest.raises(AssertionError, match=message):
            run(tmp_path, SCRIPT, str(models[0]), second, *texts)
    with pytest.raises(AssertionError, match="device"):
        run(tmp_path, SCRIPT, str(models[0]), *texts, "--device", "absent")


def test_two_of_one_name_are_refused(
    tmp_path: Path, models: list[Path], texts: tuple[Path, Path]
) -> None:
    with pytest.raises(AssertionError, match="two of the models are called first"):
        run(
            *(tmp_path, SCRIPT, str(models[0]), str(models[0].parent / "model")),
            *("--source", str(texts[0]), "--references", str(texts[1])),
        )
