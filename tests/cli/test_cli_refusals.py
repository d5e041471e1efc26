"""What commands refuse: exit code 2, one sentence, and every file is as before."""

import json
import shlex
from pathlib import Path

import pytest
from coco_samples import write_captions
from samples import Patch, Refused, make_captioner, save_photo
from small_translators import make_translator

from captioner.caption.folder import save_model
from captioner.cli.main import REMOVED, build_parser
from captioner.translate.translator_folder import save_translator

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = ["A man sees a dog.", "The dog runs!"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, photos, texts, captions and outputs of earlier runs."""
    folder = tmp_path_factory.mktemp("everything")
    save_model(make_captioner(), folder / "tiny-model")
    for name in ("luong", "transformer", "plain"):
        save_translator(make_translator(SENTENCES, name), folder / name)
    for name in ("a.png", "b.png", "a.jpg", "many/0.png", "many/1.png", "kept.png", "map-12.png"):
        save_photo(folder / name)
    for name in ("kept.json", "kept.jsonl", "kept.html", "words/a/0_b.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("kept\n")
    (folder / "empty").mkdir()
    (folder / "empty.svg").mkdir()
    (folder / "linked.json").symlink_to("text")
    (folder / "text").write_text("\n".join(SENTENCES) + "\n")
    (folder / "broken.gz").write_bytes(b"\x1f\x8b\x08\0broken")
    (folder / "mine.xlsx").write_bytes(b"PK\3\4\xff\0")
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
    ("a.png --batch-size 0", "--batch-size 0 is not at least 1"),
    ("a.png --top-p 0.9", "'top_p' has no meaning without 'sample'"),
    ("a.png --format {image}", "--format {image} is not understood: unknown field {image}; the"),
    ("a.png --format {caption.__class__}", "unknown field {caption.__class__}"),
    ("a.png --format {caption:.2f}", "--format {caption:.2f} is not understood"),
    ("a.png --json - --csv -", "two tables cannot both be standard output"),
    ("a.png --overlay -", "a drawing cannot go to standard output; name a file or folder"),
    ("a.png --json empty", "--json empty is a folder, not a file"),
    ("a.png --json ''", "--json is empty"),
    ("a.png --html text/page.html", "--html needs text to be a folder, but it is a file"),
    ("a.png --overlay out.bmp", "cannot write out.bmp: its name must end in .png or"),
    ("a.png --gif out.png", "cannot write out.png: its name must end in .gif"),
    ("a.png --html out.pdf", "cannot write out.pdf: its name must end in .html or .htm"),
    ("many --overlay m.png", "m.png is one file, but there are 2 photos; give a folder"),
    ("a.png --overlay m.png --strength 3", "--strength 3.0 is not between 0 and 1"),
    ("a.png --csv - --csv-for excel", "--csv-for needs --csv FILE"),
    ("a.png --resume", "--resume needs --jsonl FILE"),
    ("a.png --resume --jsonl kept.jsonl", "--jsonl kept.jsonl holds no results of `captioner"),
    ("b.png --resume --jsonl german.jsonl", "of the model tiny-model in the language de;"),
    ("b.png --resume --jsonl german.jsonl --language de --model luong", "of the model tiny-model"),
    ("a.png --json kept.json", "--json kept.json exists; --overwrite replaces it"),
    ("a.png --html kept.html", "--html kept.html exists"),
    ("a.png --overlay kept.png", "--overlay kept.png exists"),
    ("many --overlay many/", "--overlay many/0.png exists"),
    ("a.png --words words", "--words words/a exists"),
    ("--demo --xmp-for digikam", "--xmp needs photo files of yours; -, --demo and"),
    ("a.png --dry-run", "--dry-run and --min-confidence are for --xmp, --text and --embed"),
    ("a.png --text --min-confidence 53", "--min-confidence 53.0 is not between 0 and 1"),
    ("a.png --language it", "captions in it need a translator; the package has de, fr"),
    ("a.png --language de_DE", "--language 'de_DE' is not a language tag such as de"),
    ("a.png --translator plain", "--translator needs --language"),
    ("a.png --language it --translator plain", "need a translator with attention"),
]
MODEL = "tiny-model --format table --annotations mine.csv"
OTHERS = [
    ("info no-such-model", "no-such-model"),
    ("info english-german", "did you mean 'english_german'"),
    ("train mine.xlsx --start-from default", "mine.xlsx is neither a config (.yaml, .yml, .json)"),
    ("train mine.csv --encoder vgg16", "the encoder for mine.csv is that of --start-from"),
    (f"features {ROOT}/configs/coco_soft.yaml --set features.folder=null", "give --out"),
    ("evaluate tiny-model --format coco", "give the data set: --annotations"),
    (f"evaluate {MODEL} --json x --save-results ./x", "--json and --save-results are the same"),
    ("score results.json absent.json", "absent.json"),
    ("score one.json references.json", "--document-frequency FILE"),
    ("score results.json references.json --confidence 95", "95.0 is not between 0 and 1"),
    ("score results.json references.json --against one.json", "one.json differ in 2, image 1"),
    ("maps tiny-model", "give the data set: --annotations"),
    ("maps tiny-model --images empty", "empty"),
    ("maps tiny-model --images many --instances i", "--instances needs the photos as a data set"),
    ("maps tiny-model --images many --count 0", "--count 0 is not at least 1"),
    ("translate none.txt", "text file none.txt does not exist"),
    ("translate 'A dog runs.'", "does not exist; a sentence comes from standard input"),
    ("translate broken.gz", "broken.gz is not a whole gzip file"),
    ("translate text --alignment a.doc", "--alignment a.doc must end in"),
    ("translate text --alignment linked.json", "--alignment linked.json exists; --overwrite"),
    ("translate text --alignment map.png", "--alignment map-12.png exists; --overwrite"),
    ("translate text --alignment empty.svg", "--alignment empty.svg is a folder, not a file"),
    ("translate text --model transformer --head all", "'all' is neither a number nor mean"),
    ("translate text --model plain --alignment a.json", "no meaning for a model without attention"),
    ("translate text --model plain --copy-unknown", "copy_unknown needs a model with attention"),
    ("score-translations text text --json kept.json", "--json kept.json exists; --overwrite"),
    ("evaluate-translator tiny-model text text", "is a captioner, not"),
    (f"calibrate {MODEL} --unsure-below 3", "--unsure-below 3.0 is not between 0 and 1"),
    (f"calibrate {MODEL} --json kept.json", "--json kept.json exists; --overwrite replaces it"),
    ("calibrate default --format table --annotations mine.csv", "default is in the package"),
    ("serve --public-url example.org", "--public-url example.org is not the address of a page"),
    ("serve --public-url https://[", "--public-url https://[ is not the address of a page"),
    ("serve --allow-origin *", "--allow-origin * is not the address of a page"),
    ("serve --token-file none.txt", "token file none.txt does not exist"),
    ("serve --token-file text", "text should hold a token, without spaces in it"),
    ("serve --allow-host a*b", "--allow-host a*b is not a name"),
    ("serve --port 70000", "cannot listen on '127.0.0.1', port 70000"),
    ("serve --host no-such-host.invalid", "cannot listen on 'no-such-host.invalid'"),
    ("serve --max-upload 0", "--max-upload 0 is not a number above 0"),
    ("serve --max-pixels inf", "--max-pixels inf"),
    ("serve --port 0 --translator tiny-model", "is a captioner, not a translator"),
    ("serve --translator d=english_german", "--translator 'd' is not a language tag"),
    ("serve --translator english_german --translator de=x", "two models for the language de"),
    ("serve --translator fr=", "--translator fr= names no model; write TAG=MODEL"),
]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [(f"caption {options}", said) for options, said in CAPTION] + OTHERS,
)
def test_a_mistake_is_one_sentence_and_every_file_stays(
    command: str, sentence: str, everything: Path, refused: Refused, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(everything)
    words = shlex.split(command)
    if words[0] == "caption" and "--model" not in words:
        words += ["--model", "tiny-model"]
    before = {path: path.is_file() and path.read_bytes() for path in everything.rglob("*")}
    assert sentence in refused(words)
    after = {path: path.is_file() and path.read_bytes() for path in everything.rglob("*")}
    assert after == before


@pytest.mark.parametrize("name", REMOVED)
def test_what_went_is_refused_by_name_with_what_to_use_instead(name: str, refused: Refused) -> None:
    command, *option = name.split()
    given = [f"{option[0]}=x"] if option else ["x"]
    for arguments in ([command, *given], [command, "a", *option]):
        assert refused(arguments) == f"captioner: captioner {name} was removed: {REMOVED[name]}"
    assert command not in build_parser().format_help() or option
