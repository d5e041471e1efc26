"""The table of translators, each as it scores alone; caption-like sentences to train them."""

import re
from pathlib import Path

import torch
from samples import make_translator
from scripts_samples import ROOT, run

from captioner.data.parallel import read_lines
from captioner.evaluation.translations import score_translator
from captioner.translate.translator import load_translator, save_translator

SCRIPT = str(ROOT / "scripts/compare_translators.py")
SOURCES = ["a man sees a dog .", "the dog runs !", "a dog .", "the man sees the dog and runs ."]
EXPONENTS = (0.0, 1.0, 3.0)


def test_each_has_the_scores_it_has_alone(tmp_path: Path) -> None:
    text = tmp_path / "val.en"
    text.write_text("\n".join(SOURCES))
    translators = {name: make_translator(SOURCES, name) for name in ("luong", "transformer")}
    folders = [tmp_path / f"runs/{name}/model" for name in translators]
    for folder, translator in zip(folders, translators.values(), strict=True):
        for parameter in translator.model.parameters():
            torch.nn.init.normal_(parameter)
        save_translator(translator, folder)
    said = run(
        *(tmp_path, SCRIPT, *map(str, folders), "--source", str(text), "--references", str(text)),
        *("--length-normalisation", *map(str, EXPONENTS), "--picture", "lengths.svg"),
    )
    lines = said.splitlines()
    for line, name, folder in zip(lines[2:], translators, folders, strict=False):
        translator = load_translator(folder)
        found = {}
        for at in EXPONENTS:
            search = translator.search.replace(beam=5, length_normalisation=at)
            found[at] = score_translator(translator, text, text, search).scores["BLEU"]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert (cells[0], cells[2]) == (name, f"{max(found.values()):.1f}")
        assert cells[-1] == ", ".join(f"{at:g}: {bleu:.1f}" for at, bleu in found.items())
    assert "| words of the source (sentences) | 1 to 5 (2) | 6 to 10 (2) |" in lines
    assert "\nBLEU nrefs:1|" in said
    assert "<!-- words of the source" in (tmp_path / "lengths.svg").read_text()


def test_sentences_are_in_line_in_three_languages(tmp_path: Path) -> None:
    run(tmp_path, f"{ROOT}/scripts/caption_sentences/write.py", "--out", str(tmp_path))
    texts = (read_lines(tmp_path / f"captions.{language}") for language in ("en", "de", "fr"))
    english, german, french = texts
    assert len(english) == len(german) == len(french) == len(set(english)) > 10000
    sentence = re.compile("[^a-z{}/,][^{}/,]*[.]")
    every = (*english, *german, *french)
    assert [line for line in every if not sentence.fullmatch(line)] == []
    pairs = dict(zip(english, zip(german, french, strict=True), strict=True))
    assert pairs["A man standing on a sidewalk next to a small fence."] == (
        "Ein Mann steht auf einem Gehweg neben einem kleinen Zaun.",
        "Un homme debout sur un trottoir à côté d'une petite clôture.",
    )
    assert "A room with a urinal in it." in pairs
    assert "A herd of kittens grazing in a field." not in pairs
