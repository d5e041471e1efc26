"""The captioner that docs/extending.md adds, through every output, and the score that it adds."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from samples import Patch, Refused
from serve.serve_samples import asking, caption

import captioner
from captioner.backends.export import add_graphs
from captioner.caption.folder import load_model
from captioner.cli.main import main
from captioner.errors import UserError
from captioner.serve.service import Service

PHOTOS = {"meadow.png": (60, 160, 60), "sky.png": (50, 80, 200)}


def install(folder: Path, name: str, title: str, group: str) -> str:
    """Install the package that a section of docs/extending.md adds; returns its section."""
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    section = page.read_text(encoding="utf-8").partition(f"## {title}")[2].partition("\n## ")[0]
    code, entry_points = (block.partition("\n")[2] for block in section.split("```")[1:4:2])
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    listed = entry_points.replace(f'project.entry-points."{group}"', group)
    (metadata / "entry_points.txt").write_text(listed.replace('"', ""), encoding="utf-8")
    return section


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A model folder of the installed package `colours`, beside photos."""
    site = tmp_path / "site"
    install(site, "colours", "Adding a captioner from elsewhere", "captioner.backends")
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/config.json").write_text('{"backend": "colours", "search": {"beam": 3}}')
    Path("photos").mkdir()
    for name, colour in PHOTOS.items():
        photo = np.full((64, 64, 3), colour, np.uint8)
        photo[:32, :32] = (200, 40, 40)
        Image.fromarray(photo).save(Path("photos") / name)
    yield tmp_path / "model"
    sys.modules.pop("colours", None)


SMALL = ("encoder.width=0.05", "preprocessing.size=64", "training.epochs=1", "search.beam=2")
SMALL += ("data.shapes.train=16", "data.shapes.validation=8")


@pytest.mark.slow
def test_a_score_of_another_package_is_trained_and_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    section = install(folder.parent / "site", "near_score", "Adding a score", "captioner.scores")
    info, train, caption = re.findall("^captioner (.*)$", section, re.M)
    Path("configs").symlink_to(Path(__file__).parents[2] / "configs")
    Path("photos/sky.png").rename("photo.jpg")
    assert main(info.split()) == 0
    assert "scores         additive, concat, dot, general, scaled_dot, cosine, near" in (
        capsys.readouterr().out
    )
    assert main([*train.split(), *(word for each in SMALL for word in ("--set", each))]) == 0
    add_graphs(Path("runs/near/model"))
    assert captioner.load("runs/near").engine == "graphs"
    assert main(caption.split()) == 0
    assert Image.open("near.png").width > 64
    entry_points = folder.parent / "site/near_score-1.0.dist-info/entry_points.txt"
    entry_points.write_text("[captioner.scores]\nnear = nowhere:Near\n")
    sentence = refused([*caption.split(), "--overwrite", "--precision", "bfloat16"])
    assert "the score 'near' cannot be made (No module named 'nowhere')" in sentence


def test_it_is_a_captioner_with_maps(folder: Path) -> None:
    model = captioner.load(folder)
    assert (type(model), model.engine) == (captioner.Captioner, "colours")
    found = model.caption("photos/sky.png", n_best=3)
    assert (str(found), str(found.alternatives[0])) == ("a blue photo", "a red photo")
    blue, red = (each.attention[1] for each in (found, found.alternatives[0]))
    assert blue[:2, :2].max() < 0.01 < red[:2, :2].min()
    assert blue[2:].min() > 0.05 > red[2:].max()


def test_every_output_is_written_and_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = "--n-best 2 --overlay maps/ --gif gifs/ --html page.html"
    tables = "--jsonl captions.jsonl --csv captions.csv --xmp"
    command = ["caption", "photos/", "--model", "model"]
    assert main([*command, *drawn.split(), *tables.split()]) == 0
    printed = capsys.readouterr().out
    assert "photos/sky.png: a blue photo  (score" in printed
    lines = Path("captions.jsonl").read_text().splitlines()
    assert [json.loads(line)["caption"] for line in lines] == ["a green photo", "a blue photo"]
    assert "a green photo" in Path("captions.csv").read_text()
    assert "a blue photo" in Path("photos/sky.xmp").read_text()
    assert Path("page.html").read_text().count(">red<") == 2  # In the second captions.
    for name in ("maps/sky.png", "gifs/sky.gif"):
        assert Image.open(name).width > 64
    assert main([*command, *tables.split()[:2], "--resume"]) == 0
    assert "2 of 2 photos are captioned already" in capsys.readouterr().err
    assert Path("captions.jsonl").read_text().splitlines() == lines


def test_it_is_scored_and_served(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("people.csv").write_text("image,caption\nmeadow.png,a green photo\nsky.png,a sky\n")
    data = ["--format", "table", "--annotations", "people.csv", "--images", "photos"]
    assert main(["evaluate", "model", *data]) == 0
    assert "BLEU-4" in capsys.readouterr().out
    assert main(["maps", "model", "--format", "shapes", "--count", "3"]) == 0
    assert "pointing game" in capsys.readouterr().out
    with asking(Service(captioner.load(folder))) as client:
        sent = [("photo", ("sky.png", Path("photos/sky.png").read_bytes()))]
        assert caption(client, sent)[0]["captions"][0]["caption"] == "a blue photo"


def test_it_is_listed_and_what_it_cannot_do_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], refused: Refused, monkeypatch: Patch
) -> None:
    assert main(["info", "model"]) == 0
    assert "backends       graphs, torch, transformers, colours" in capsys.readouterr().out
    with pytest.raises(UserError, match="by the backend 'colours': it has no networks to train"):
        load_model(folder)
    sample = ["caption", "photos/sky.png", "--model", "model", "--sample"]
    assert "has one engine, 'colours', and no 'torch'" in refused(sample)
    begin = ["caption", "photos/sky.png", "--model", "model", "--begin", "a red"]
    assert "by 'colours' cannot be given 'begin'" in refused(begin)
    assert "colours score no given captions" in refused([*begin[:-2], "--given", "a red photo"])
    sky = captioner.load(folder)
    assert str(sky.caption("photos/sky.png", language="de")).endswith("Foto")
    monkeypatch.delattr(type(sky.backend), "unknown")
    assert "ColourCaptions lacks 'unknown': see CaptionBackend" in refused(begin)
    (folder / "config.json").write_text('{"backend": "colors"}')
    assert "needs the backend 'colors' of another package" in refused(sample[:-1])


@pytest.mark.parametrize(
    ("opener", "named"),
    [
        ("colours:nothing", "has no attribute 'nothing'"),
        ("nowhere:open", "No module named 'nowhere'"),
        ("builtins:ascii", "takes exactly one argument"),
    ],
)
def test_a_backend_that_cannot_be_opened_is_named(folder: Path, opener: str, named: str) -> None:
    entry_points = folder.parent / "site/colours-1.0.dist-info/entry_points.txt"
    entry_points.write_text(f"[captioner.backends]\ncolours = {opener}\n")
    with pytest.raises(UserError, match=f"its backend 'colours' cannot be opened .*{named}"):
        captioner.load(folder)
