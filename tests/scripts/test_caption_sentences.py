import gzip
from pathlib import Path

from scripts_samples import ROOT, run

from captioner.data.parallel import read_lines

LANGUAGES = ("en", "de", "fr")
SELF_TRAINING = ROOT / "scripts" / "caption_sentences" / "translate.py"
PROGRAM = ROOT / "scripts" / "caption_sentences" / "write.py"


def test_sentences_are_in_line_in_three_languages(tmp_path: Path) -> None:
    run(tmp_path, str(PROGRAM), "--out", str(tmp_path))
    english, german, french = (read_lines(tmp_path / f"captions.{tag}") for tag in LANGUAGES)
    assert len(english) == len(german) == len(french) == len(set(english)) > 10000
    for line in (*english, *german, *french):
        assert line[0].isupper()
        assert line.endswith(".")
        assert not set(line) & set("{}/,")
    pairs = dict(zip(english, zip(german, french, strict=True), strict=True))
    assert pairs["A close up of an elephant."] == (
        "Eine Nahaufnahme von einem Elefanten.",
        "Un gros plan d'un éléphant.",
    )
    assert pairs["A man standing on a sidewalk next to a small fence."] == (
        "Ein Mann steht auf einem Gehweg neben einem kleinen Zaun.",
        "Un homme debout sur un trottoir à côté d'une petite clôture.",
    )
    assert pairs["A street with trees."] == ("Eine Straße mit Bäumen.", "Une rue avec des arbres.")
    assert "A room with a urinal in it." in pairs
    assert "A herd of kittens grazing in a field." not in pairs


def test_the_surest_translations_are_kept(tmp_path: Path) -> None:
    captions = ["a dog runs in the grass", "A dog runs in the grass.", "too short a one", ""]
    captions += [
        '"Two men are riding bikes ."',
        "quantum bureaucracy obfuscates epistemic taxation",
    ]
    with gzip.open(tmp_path / "captions.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(captions))
    options = ["--model", "english_german", "--language", "de", "--out", "out", "--share", "0.7"]
    said = run(tmp_path, str(SELF_TRAINING), "captions.txt.gz", *options)
    assert "2 of 3 captions" in said
    english, german = (read_lines(tmp_path / "out" / f"self.{tag}") for tag in LANGUAGES[:2])
    assert set(english) == {"A dog runs in the grass.", "Two men are riding bikes."}
    for source, target in zip(english, german, strict=True):
        assert ("Hund" in target) == ("dog" in source)
        assert ("Männer" in target) == ("men" in source)
