"""Caption-like sentences to train translators."""

import re
from pathlib import Path

from scripts_samples import ROOT, run

from captioner.data.parallel import read_lines


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
