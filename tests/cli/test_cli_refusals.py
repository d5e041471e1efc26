"""What commands refuse: exit code 2, one sentence, and every file is as before."""

import json
import shlex
from pathlib import Path

import pytest
from samples import (
    Give,
    Output,
    Patch,
    Refused,
    make_captioner,
    make_translator,
    save_photo,
    write_captions,
)

from captioner.caption.folder import save_model
from captioner.cli.main import main
from captioner.translate.folder import save_translator

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = ["A man sees a dog.", "The dog runs!"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, photos, texts, captions and outputs of earlier runs."""
    folder = tmp_path_factory.mktemp("everything")
    save_model(make_captioner(), folder / "tiny-model")
    for name in ("transformer", "gru"):
        save_translator(make_translator(SENTENCES, name), folder / name)
    for name in ("a.png", "b.png", "a.jpg", "many/0.png", "many/1.png", "kept.png", "map-2.png"):
        save_photo(folder / name)
    for name in ("kept.json", "kept.jsonl", "kept.html", "words/a/0_b.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("kept\n")
    (folder / "none.yaml").touch()
    (folder / "empty").mkdir()
    (folder / "empty.svg").mkdir()
    (folder / "text").write_text("\n".join(SENTENCES) + "\n")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b\x08\0broken")
    (folder / "mine.xlsx").write_bytes(b"PK\3\4\xff\0")
    (folder / "cut.json").write_text('{"a.jpg": ["a dog')
    (folder / "mine.csv").write_text("image,caption,split\na.png,a dog,train\nb.png,a dog,val\n")
    write_captions(folder / "references.json", {n: [f"a dog number {n}"] for n in range(3)})
    for name, count in (("results", 3), ("one", 1)):
        records = [{"image_id": n, "caption": "a dog"} for n in range(count)]
        (folder / f"{name}.json").write_text(json.dumps(records))
    german = {"image": "a.png", "caption": "ein Hund", "language": "de", "model": "tiny-model"}
    (folder / "german.jsonl").write_text(json.dumps(german) + "\n")
    return folder


CAPTION = [
    ("", "name a photo, or try --demo"),
    ("a.png --format {caption.__class__}", "is not understood ('caption.__class__'); the fields"),
    ("a.png --json - --csv -", "standard output takes one of --json, --jsonl and --csv"),
    ("a.png --json ''", "--json is empty"),
    ("a.png --json x.out --csv x.out", "x.out is for --json and --csv; name two files"),
    ("a.png --overlay out.bmp", "cannot write out.bmp: its name must end in .png or"),
    ("many --overlay m.png", "m.png is one file for 2 photos; give a folder"),
    ("a.png --resume --jsonl kept.jsonl", "--jsonl kept.jsonl holds no results of `captioner"),
    ("a.png --resume --jsonl german.jsonl", "captions of model tiny-model, language de and of"),
    ("a.png --json kept.json", "--json kept.json exists; --overwrite replaces it"),
    ("a.png --words words", "--words words/a exists"),
    ("many --overlay many/ --overwrite", "a photo to caption; name another file"),
    ("- --xmp-for digikam", "--xmp, --text and --embed need photo files, not -, --demo or shards"),
    ("a.png --edited", "--edited needs --resume"),
    ("a.png --csv x.csv --dry-run", "--dry-run needs --xmp, --text or --embed"),
    ("a.png --json x.json --csv-for excel", "--csv-for needs --csv"),
    (
        "a.png --language it",
        "captions in the language 'it' need a translator; the package has de, fr",
    ),
    ("a.png --translator gru", "--translator needs --language, and another one than en"),
    ("a.png --language it --translator gru", "need a translator with attention"),
]
MODEL = "tiny-model --format table --annotations mine.csv"
OTHERS = [
    ("train mine.xlsx --start-from default", "mine.xlsx is neither a config (.yaml, .yml, .json)"),
    ("train cut.json --start-from default", "cut.json is not valid JSON (line 1: "),
    ("train mine.csv --encoder vgg16", "photos take the encoder of --start-from"),
    (f"features {ROOT}/configs/coco_soft.yaml --set features.folder=null", "give --out"),
    ("evaluate tiny-model --format coco", "give the data set: --annotations"),
    ("score one.json references.json", "--document-frequency FILE"),
    ("score results.json references.json --against one.json", "one.json differ in 2, image 1"),
    (f"evaluate {MODEL} --count -1", "--count -1 is not at least 1"),
    ("maps tiny-model --images many --split val", "need a data set: give --annotations"),
    ("maps tiny-model --images many --synonyms none.txt", "--synonyms needs the things"),
    ("evaluate tiny-model --format shapes --split val", "its pictures: leave out --split"),
    ("train none.yaml", "none.yaml: should be fields with values, found nothing"),
    ("translate 'A dog runs.'", "does not exist; sentences come from standard input"),
    ("translate a.png", "text file a.png is not UTF-8 text: it has NUL bytes"),
    ("translate broken.gz", "broken.gz is not a whole gzip file"),
    ("translate text --alignment a.doc", "cannot write a.doc: its name must end in"),
    ("translate text --alignment map.png", "--alignment map-2.png exists; --overwrite"),
    ("translate text --model transformer --head all", "alignment_head should be a valid integer"),
    ("translate text --model gru --alignment a.json", "no meaning for a model without attention"),
    ("translate text --model gru --copy-unknown", "copy_unknown needs a model with attention"),
    ("evaluate-translator tiny-model text text", "is a captioner, not"),
    (f"calibrate {MODEL} --unsure-below 3", "--unsure-below 3.0 is not between 0 and 1"),
    ("export tiny-model text", "FOLDER text is a file, not a folder"),
    ("serve --port 0 --model tiny-model --batch-size 0", "batch size 0 is not at least 1"),
    (f"calibrate {MODEL} --json kept.json", "--json kept.json exists; --overwrite replaces it"),
    ("calibrate default --format table --annotations mine.csv", "the hub; give --out FILE,"),
    ("serve --token-file text", "text should hold a token, without spaces in it"),
    ("serve --translator a --translator b", "two --translator are of one language; write TAG="),
    ("serve --allow-host a*b", "--allow-host a*b is not a name"),
    ("serve --allow-host http://a.b", "--allow-host http://a.b is not a name, or *. and a name"),
    ("serve --host no-such-host.invalid", "cannot listen on 'no-such-host.invalid'"),
    ("serve --port 0 --translator tiny-model", "is a captioner, not a translator"),
    ("serve --translator d=english_german", "--translator 'd' is not a language tag"),
]
"""What is typed, and words of the sentence that answers it."""


@pytest.mark.parametrize(
    ("command", "sentence"),
    [(f"caption {options} --model tiny-model", said) for options, said in CAPTION] + OTHERS,
)
def test_a_mistake_is_one_sentence_and_every_file_stays(
    command: str, sentence: str, everything: Path, refused: Refused, give: Give, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(everything)
    give((everything / "a.png").read_bytes())
    before = {path: path.is_file() and path.read_bytes() for path in everything.rglob("*")}
    assert sentence in refused(shlex.split(command))
    after = {path: path.is_file() and path.read_bytes() for path in everything.rglob("*")}
    assert after == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("captoin a.jpg", "; did you mean 'caption'?"),
        ("caption a.jpg --bean 3", "unrecognized arguments: --bean 3; did you mean '--beam'?"),
        ("translate a.txt b.txt", "unrecognized arguments: b.txt"),
        ("caption -a.jpg", "unrecognized arguments: -a.jpg"),
        ("evaluate M --format csv", "'csv' (choose from"),
        ("serve --public-url https://[", "--public-url: https://[ is not the address of a page"),
        ("serve --max-upload 0", "--max-upload: 0 is not a number above 0"),
        ("caption a.jpg --decoding-seconds nan", "seconds: nan is not a number above 0"),
    ],
)
def test_a_mistyped_command_or_option_is_named_after_the_usage(
    arguments: str, said: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    command = arguments.split()[0].replace("captoin", "COMMAND")
    assert usage.startswith(f"usage: captioner {command} ")
    assert said in error


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no devices here")
def test_lines_to_resume_from_are_of_a_file_and_not_endless(
    everything: Path, tmp_path: Path, refused: Refused, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(everything)
    with open(tmp_path / "endless.jsonl", "wb") as file:
        file.truncate(2**33)
    command = ["caption", "a.png", "--model", "tiny-model", "--resume", "--jsonl"]
    endless = refused([*command, str(tmp_path / "endless.jsonl")])
    assert endless.endswith("has an endless line; give another file")
    assert refused([*command, "/dev/zero"]).endswith("it is a pipe or a device, not a file")
