"""Outputs of other packages, and JSON lines for `datasets`."""

import json
import sys
from pathlib import Path

import pytest
from samples import CAPTION, Output, Patch, Refused, save_photo, xmp_texts

from captioner.caption.caption import Caption
from captioner.cli.main import main
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Sink

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def alt_texts(folder: Path, monkeypatch: Patch) -> None:
    """Installs the sink that docs/extending.md adds."""
    section = PAGE.read_text(encoding="utf-8").partition("## Adding an output")[2]
    code, entry_points = (block.partition("\n")[2] for block in section.split("```")[1:4:2])
    metadata = folder / "site" / "alt_texts-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "site" / "alt_texts.py").write_text(code, encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: alt_texts\nVersion: 1.0\n")
    listed = entry_points.replace('project.entry-points."captioner.outputs"', "captioner.outputs")
    (metadata / "entry_points.txt").write_text(listed.replace('"', ""), encoding="utf-8")
    monkeypatch.syspath_prepend(folder / "site")
    monkeypatch.delitem(sys.modules, "alt_texts", raising=False)


@pytest.mark.usefixtures("alt_texts")
def test_an_output_of_another_package_gets_every_record(folder: Path, refused: Refused) -> None:
    command = [*CAPTION, "a.png", "b.png", "--output", "alt=alt.html"]
    resumed = [*command, "--jsonl", "o.jsonl", "--resume"]
    assert main(resumed) == 0
    lines = Path("alt.html").read_text()
    records = [*map(json.loads, Path("o.jsonl").read_text().splitlines())]
    assert lines == "".join(
        f'<img src="{record["image"]}" alt="{record["caption"]}">\n' for record in records
    )
    assert main(resumed) == 0  # Also of photos that are captioned already.
    assert Path("alt.html").read_text() == lines
    for named in ("alt", "alt=", "csv=a.csv"):
        sentence = f"--output {named} is not NAME=PATH of one installed: alt"
        assert sentence in refused([*CAPTION, "a.png", "--output", named])


class Thumbnails(Sink):
    def files(self, photo: str) -> dict[str, str]:
        return {"thumbnail": f"{photo}.gif"}

    def draw(self, record: PhotoRecord, caption: Caption) -> None:
        caption.frames()[0].save(f"{record.image}.gif")
        record.files = {**record.files, **self.files(record.image)}


def test_an_output_of_another_package_draws_what_is_missing(
    folder: Path, monkeypatch: Patch
) -> None:
    sinks = "captioner.outputs.outputs.other_sinks"
    monkeypatch.setattr(sinks, lambda run: iter([Thumbnails("", run)]))
    command = [*CAPTION, "a.png", "b.png", "--jsonl", "o.jsonl", "--resume"]
    for missing in ([], ["b.png.gif"]):
        for name in missing:
            Path(name).unlink()
        assert main(command) == 0
        assert {*map(str, Path().glob("*.gif"))} == {"a.png.gif", "b.png.gif"}


def test_json_lines_for_datasets_are_read_by_them_and_by_captioner(
    folder: Path, capsys: Output, refused: Refused
) -> None:
    Path("data/below").mkdir(parents=True)
    Path("a.png").rename("data/a.png")
    save_photo(Path("data/below/b.png"), 2)
    Path("data/bad.png").write_bytes(b"none")
    table = ["--jsonl", "data/metadata.jsonl", "--jsonl-for", "huggingface"]
    options = ["--json", "o.json", "--sentence", "--language", "de"]
    assert main([*CAPTION, "data", *table, *options]) == 2
    Path("data/bad.png").unlink()
    rows = [*map(json.loads, Path("data/metadata.jsonl").read_text().splitlines())]
    captions = {
        each["image"]: each.get("caption") for each in json.loads(Path("o.json").read_text())
    }
    assert {f"data/{row['file_name']}": row["text"] for row in rows} == {
        name: caption for name, caption in captions.items() if caption
    }
    assert main(["write", "data/metadata.jsonl", "--text", "--xmp"]) == 0  # As a model's captions.
    assert xmp_texts(Path("data/a.xmp"), "captioner:language") == ["de"]
    assert "2 described" in capsys.readouterr().err
    assert main(["unwrite", "data/metadata.jsonl"]) == 0
    assert not Path("data/a.txt").exists()
    assert "gives no table to resume from" in refused([*CAPTION, "data", *table, "--resume"])
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset("imagefolder", data_dir="data", split="train", cache_dir="cache")
    assert {row["text"] for row in loaded} == {row["text"] for row in rows}
    assert loaded[0]["image"].size == (120, 90)
