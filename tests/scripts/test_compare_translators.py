"""The table of translators: what each scores alone, with the exponent it does best with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scripts_samples import ROOT, run

from captioner.evaluation.translations import score_translator
from captioner.text.vocabulary import WordVocabulary
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
def text(tmp_path: Path) -> Path:
    path = tmp_path / "val.en"
    path.write_text("\n".join(SOURCES) + "\n")
    return path


def test_each_has_the_scores_it_has_alone(tmp_path: Path, models: list[Path], text: Path) -> None:
    said = run(
        *(tmp_path, SCRIPT, *map(str, models), "--source", str(text), "--references", str(text)),
        *("--length-normalisation", *map(str, EXPONENTS), "--picture", "lengths.svg"),
    )
    lines = said.splitlines()
    for line, name, folder in zip(lines[2:], ("first", "second"), models, strict=False):
        translator = load_translator(folder)
        reports = {
            at: score_translator(
                translator, text, text, translator.search.replace(beam=5, length_normalisation=at)
            )
            for at in EXPONENTS
        }
        best = max(EXPONENTS, key=lambda at: reports[at].bleu)
        weights = sum(weight.numel() for weight in translator.model.parameters())
        scores = reports[best]
        assert [cell.strip() for cell in line.strip("|").split("|")] == [
            *(name, f"{weights / 1e6:.2f}", f"{scores.bleu:.1f}", f"{scores.chrf:.1f}"),
            *(f"{scores.brevity_penalty:.3f}", f"{best:g}"),
            ", ".join(f"{at:g}: {report.bleu:.1f}" for at, report in reports.items()),
        ]
        buckets = [f"{bucket['BLEU']:.1f}" for bucket in reports[best].lengths]
        assert f"| {name} | {' | '.join(buckets)} |" in lines
    assert "| words of the source (sentences) | 1 to 5 (2) | 6 to 10 (2) |" in lines
    assert any(line.startswith("BLEU nrefs:1|") for line in lines)
    # Text is drawn as shapes in SVG, and what each says stands beside it.
    drawn = (tmp_path / "lengths.svg").read_text()
    for words in ("first", "second", "1 to 5", "(2)", "BLEU", "words of the source"):
        assert f"<!-- {words}" in drawn
