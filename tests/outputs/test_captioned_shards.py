"""New tars with captions beside the photos: their samples, resuming, what is refused."""

import json
import tarfile
from collections import defaultdict
from pathlib import Path

import pytest
from samples import CAPTION, Output, Refused, photo_bytes, write_parquet, write_tar

from captioner.caption.captioner import caption_photos
from captioner.cli.main import main
from captioner.loading import load
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import opened_outputs
from captioner.vision.finding import find_photos

COMMAND = [*CAPTION, "in/0.tar", "in/1.tar"]
SHARDS = ["--shards", "out"]
JSONL = ["--jsonl", "o.jsonl"]

Samples = dict[str, dict[str, bytes]]


@pytest.fixture
def shards(folder: Path) -> Path:
    """The current folder, with two tars of two photos; one photo of the second is damaged."""
    members = {"a/1.jpg": photo_bytes(), "a/1.cls": b"7", "a/1.TXT": b"alt", "a/1.json": b"{}"}
    write_tar(Path("in/0.tar"), {"set.yaml": b"", **members, "2.png": "a/1.jpg", "2.cls": b"8"})
    write_tar(Path("in/1.tar"), {"3.jpg": b"none", "3.cls": b"9", "4.jpg": photo_bytes(seed=1)})
    return folder


def samples_in(path: str) -> Samples:
    """The samples of a tar, as webdataset groups them: neighbours with the same key."""
    samples = defaultdict[str, dict[str, bytes]](dict)
    with tarfile.open(path) as tar:
        for info in tar:
            key, _, suffix = info.name.partition(".")
            assert suffix.lower() not in samples[key], "webdataset refuses a name twice"
            assert key == [*samples][-1], "a sample in two parts"
            content = tar.extractfile(info)
            assert content
            samples[key][suffix.lower()] = content.read()
    return samples


def texts_in(path: str) -> dict[str, bytes]:
    return {key: sample["txt"] for key, sample in samples_in(path).items()}


def caption_of(sample: dict[str, bytes]) -> str:
    return str(json.loads(sample["json"])["caption"])


def test_samples_get_captions_and_those_without_one_are_left_out(
    shards: Path, capsys: Output
) -> None:
    assert main([*COMMAND, *SHARDS, *JSONL]) == 2
    assert "in/1.tar/3.jpg is not an image" in capsys.readouterr().err
    records = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    first, second = samples_in("out/0.tar"), samples_in("out/1.tar")
    assert [*first, *second] == ["a/1", "2", "4"]
    written = [*first.values(), *second.values()]
    assert [json.loads(sample["json"]) for sample in written] == [
        record for record in records if "error" not in record
    ]
    assert [sample["txt"].decode() for sample in written] == [*map(caption_of, written)]
    assert first["a/1"]["jpg"] == first["2"]["png"] == photo_bytes()  # Of a link, the file.
    kept = {"cls": b"7", "source.txt": b"alt", "source.json": b"{}"}
    assert kept.items() <= first["a/1"].items()
    command = [*CAPTION, "out/0.tar", "--shards", "twice", "--format", "ohwx {caption}"]
    assert main(command) == 0
    again = samples_in("twice/0.tar")["a/1"]
    assert kept.items() <= again.items()  # Not the captions of before.
    assert again["txt"] == b"ohwx " + first["a/1"]["txt"]


def test_webdataset_reads_them(shards: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    assert main([*COMMAND, *SHARDS]) == 2
    read = webdataset.WebDataset("out/{0..1}.tar", shardshuffle=False).decode("pil")
    samples = [*read.rename(image="jpg;png").to_tuple("__key__", "image", "txt", "json")]
    assert [sample[0] for sample in samples] == ["a/1", "2", "4"]
    for _, photo, text, record in samples:
        assert (photo.size, text) == ((120, 90), record["caption"])


def test_resuming_leaves_whole_shards(shards: Path, capsys: Output) -> None:
    assert main([*COMMAND, *SHARDS]) == 2
    whole, time = texts_in("out/1.tar"), Path("out/0.tar").stat().st_mtime_ns
    resumed = [*COMMAND, *SHARDS, "--resume"]
    Path("out/1.tar").unlink()
    assert main(resumed) == 2
    assert "2 of 4 photos are captioned already" in capsys.readouterr().err
    assert texts_in("out/1.tar") == whole
    assert main(resumed) == 0
    assert Path("out/0.tar").stat().st_mtime_ns == time


def test_a_damaged_tar_has_no_new_one(shards: Path, capsys: Output) -> None:
    whole = Path("in/0.tar").read_bytes()
    command = [*CAPTION, "in/0.tar", *SHARDS, "--resume"]
    for content, code in ((whole[: whole.rindex(b"2.cls") + 99], 2), (whole, 0)):
        Path("in/0.tar").write_bytes(content)
        assert main(command) == code
        assert Path("out/0.tar").exists() == (not code)
    assert [*samples_in("out/0.tar")] == ["a/1", "2"]


def test_a_table_resumes_within_a_shard_and_has_corrections(shards: Path) -> None:
    command = [*COMMAND, *SHARDS, *JSONL, "--resume"]
    assert main(command) == 2
    before = {path: texts_in(path) for path in ("out/0.tar", "out/1.tar")}
    lines = Path("o.jsonl").read_text().splitlines()
    Path("out/0.tar").unlink()
    Path("o.jsonl").write_text(f"{lines[0]}\n")  # As if killed within the first shard.
    assert main(command) == 2
    assert {path: texts_in(path) for path in before} == before
    times = {path: Path(path).stat().st_mtime_ns for path in before}
    table = Path("o.jsonl").read_text()
    corrected = {**json.loads(lines[0]), "caption": "mine", "by": "person"}
    Path("o.jsonl").write_text(table.replace(lines[0], json.dumps(corrected)))
    assert main(command) == 2
    assert samples_in("out/0.tar")["a/1"]["txt"] == b"mine"
    assert {path for path in times if times[path] != Path(path).stat().st_mtime_ns} == {"out/0.tar"}


def test_python_writes_them_without_unsure_captions(shards: Path) -> None:
    model, (photos, _) = load("tiny-model"), find_photos(["in/1.tar"])
    for least in (1.0, 0.0):  # The model gives no confidence.
        options = OutputOptions(shards="out", min_confidence=least)
        with opened_outputs(options, photos) as outputs:
            captions = caption_photos(model, outputs.remaining.items(), model.search, 2)
            assert [bool(record.error) for record in outputs.write(captions)] == [True, False]
        assert Path("out/1.tar").exists() == (least == 0.0)


def test_a_tar_that_is_there_loses_what_is_left_out_now(shards: Path) -> None:
    write_tar(Path("in/2.tar"), {"1.jpg": photo_bytes(), "2.jpg": photo_bytes(seed=1)})
    command = [*CAPTION, "in/2.tar", *SHARDS]
    assert main(command) == 0
    assert [*samples_in("out/2.tar")] == ["1", "2"]
    assert main([*command, "--overwrite", "--min-confidence", "1"]) == 0
    assert [*samples_in("out/2.tar")] == []


def test_two_photos_of_one_name_have_a_text_each(shards: Path) -> None:
    write_tar(Path("in/2.tar"), {"1.jpg": photo_bytes(), "1.png": photo_bytes(seed=1)})
    assert main([*CAPTION, "in/2.tar", *SHARDS]) == 0
    (sample,) = samples_in("out/2.tar").values()
    assert [*sample] == ["jpg", "txt", "json", "png", "png.txt", "png.json"]


def test_what_is_refused(shards: Path, refused: Refused) -> None:
    Path("out").mkdir()
    Path("out/1.tar").write_bytes(b"another file")
    write_parquet(Path("p.parquet"), {"image": [photo_bytes()]})
    for arguments, sentence in [
        (SHARDS, "--shards out/1.tar exists; --overwrite replaces it"),
        (["--shards", "in", "--overwrite"], "--shards in has the shards to caption; name another"),
        (["a.png", *SHARDS], "--shards takes photos in tars; leave out a.png, or write a table"),
        (["p.parquet", *SHARDS], "takes photos in tars; leave out p.parquet/0, or write a table"),
        ([*SHARDS, "--csv", "o.csv", "--resume"], "--resume needs --jsonl FILE"),
        ([*SHARDS, "--text", "--resume"], "or --text or --shards alone"),
    ]:
        assert sentence in refused([*COMMAND, *arguments])
    assert Path("out/1.tar").read_bytes() == b"another file"
