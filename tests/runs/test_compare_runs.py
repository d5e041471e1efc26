"""Runs side by side."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_samples import Config, luong, recipe_of, translation_recipe
from samples import Output, Patch, log_of

from captioner.cli.main import main
from captioner.errors import UserError
from captioner.evaluation.corpus import compare, confidence_intervals
from captioner.evaluation.score import CaptionScores, evaluate_captions
from captioner.runs.compare_runs import compare_runs
from captioner.runs.run import train_run
from captioner.training.run_log import best_record

REFERENCES = [[f"photo of the number {number}", "a photo of a colour"] for number in (6, 7)]


def write_captions(folder: Path, *captions: str) -> CaptionScores:
    """Replace the captions of a run, which has hardly learned."""
    records = zip(("6.png", "7.png"), captions, strict=True)
    results = [{"image_id": name, "caption": caption} for name, caption in records]
    (folder / "results.json").write_text(json.dumps(results))
    return evaluate_captions(captions, REFERENCES)


def test_runs_are_compared(
    config: Config, tmp_path: Path, monkeypatch: Patch, capsys: Output, refused: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rate in (("b", 0.01), ("a", 2e-5)):
        changes = {"training": {"learning_rate": rate, "epochs": 2}}
        train_run(recipe_of(config, **changes), Path("runs", name))
    shutil.copytree("runs/a", "runs/of an earlier version")
    Path("runs/of an earlier version/references.json").unlink()
    ours = write_captions(Path("runs/a"), "a photo of the number 6", "a photo of a colour")
    theirs = write_captions(Path("runs/b"), "a photo of a dog", "two dogs")
    first, second, old = rows = compare_runs(["runs", "runs/a"], "runs/b").runs
    names = ("a", "b", "of an earlier version")
    assert [row["run"] for row in rows] == [str(Path("runs", name)) for name in names]
    differing = [*first][1 : [*first].index("epoch")]
    assert differing == ["training.learning_rate"]  # As it is written, not rounded.
    rates = [row["training.learning_rate"] for row in rows]
    assert rates == ["2e-05", "0.01", "2e-05"]
    log = log_of(Path("runs/a"))
    best = best_record(log, "CIDEr-D")
    assert (first["epoch"], first["perplexity"]) == (best["epoch"], best["perplexity"])
    assert 0 < first["minutes"] < 1
    intervals = confidence_intervals(ours.metrics)
    differences = compare(ours.metrics, theirs.metrics)
    for name in ("BLEU-4", "CIDEr-D"):
        assert first[name] == ours.by_name()[name]
        assert first[f"{name} 95 %"] == intervals[name]
        assert first[f"{name} gain"] == differences[name]["difference"] > 0
        assert first[f"{name} gain 95 %"] == differences[name]["interval"]
        assert first[f"{name} p"] == differences[name]["p_bootstrap"]
        assert (second[f"{name} gain"], second[f"{name} p"]) == (0.0, 1.0)
        assert old[f"{name} 95 %"] is old[f"{name} gain"] is None
    assert [row["note"] for row in rows] == [
        None,
        None,
        f"not compared with {Path('runs/b')}: it kept no references",
    ]
    assert old["CIDEr-D"] == best["CIDEr-D"]
    capsys.readouterr()
    assert main(["runs", "runs"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "run"
    assert len(lines) == 3
    assert "gain" not in header
    Path("empty").mkdir()
    needs = "no folder of a run here, which has log.jsonl and config.json"
    nothing = ["empty", "nowhere", "runs/x*", "runs/a/log.jsonl"]
    assert refused(["runs", *nothing]).endswith(f": {', '.join(nothing)}: {needs}")
    assert main(["runs", "runs/a", *nothing]) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == "".join(f"captioner: {name}: {needs}\n" for name in nothing)
    for name, why in (
        ("nowhere", "config of the run nowhere"),
        ("runs/of an earlier version", "it kept no ref"),
    ):
        sentence = refused(["runs", "runs", "--against", name])
        assert f"--against {name} is no run to compare with: {why}" in sentence
    Path("runs/of an earlier version/config.json").write_text("[]")
    assert compare_runs(["runs/of an earlier version"]).runs[0]["run"]


def made_run(folder: str, references: list[list[str]], captions: list[str], **config: Any) -> None:
    """A folder as of a run of captions, validated on photos 0.png, 1.png, ..."""
    path = Path(folder)
    path.mkdir(parents=True)
    names = [f"{number}.png" for number in range(len(captions))]
    pairs = zip(names, references, strict=True)
    texts = enumerate((name, text) for name, of_image in pairs for text in of_image)
    rows = [{"id": n, "image_id": name, "caption": text} for n, (name, text) in texts]
    images = [{"id": name, "file_name": name} for name in names]
    results = [{"image_id": n, "caption": text} for n, text in zip(names, captions, strict=True)]
    record = {"epoch": 1, "step": 1, "CIDEr-D": 0.5, "perplexity": 9.0, "total_seconds": 60}
    config = {"validation": {"score": "CIDEr-D"}, **config}
    (path / "config.json").write_text(json.dumps(config))
    (path / "log.jsonl").write_text(json.dumps(record) + "\n")
    (path / "references.json").write_text(json.dumps({"images": images, "annotations": rows}))
    (path / "results.json").write_text(json.dumps(results))


@pytest.fixture
def made_runs(tmp_path: Path, monkeypatch: Patch) -> None:
    """Two runs of the same validation photos, one of others, one that is damaged."""
    monkeypatch.chdir(tmp_path)
    good, bad = ["a photo of the number 6", "a photo of a colour"], ["two dogs", "a photo of a dog"]
    made_run("runs/50%_a&b", REFERENCES, good, seed=1)
    made_run("runs/other", [["one"], ["two"], ["three"]], ["one", "two", "four"], seed=2)
    made_run("runs/plain", REFERENCES, bad, seed=3)
    made_run("runs/torn", REFERENCES, bad, seed=4)


@pytest.mark.usefixtures("made_runs")
def test_a_run_that_cannot_be_compared_stays_empty_and_says_why(capsys: Output) -> None:
    why = f"not compared with {Path('runs/plain')}: it has other validation data"
    Path("runs/torn/results.json").write_text("[")
    files = ["--csv", "t.csv", "--json", "t.json", "--latex", "t.tex"]
    assert main(["runs", "runs", "--against", "runs/plain", *files]) == 2
    out, err = capsys.readouterr()
    torn = Path("runs/torn/results.json")
    assert err.startswith(f"captioner: {torn.parent}: results file {torn} is not valid JSON")
    assert len(err.splitlines()) == 1
    assert len(out.splitlines()) == 5
    assert out.splitlines()[2].endswith(why)
    good, other, plain, damaged = rows = json.loads(Path("t.json").read_text())["runs"]
    assert list(rows[0])[-1] == "note"
    assert good["CIDEr-D gain"] > 0 == plain["CIDEr-D gain"]
    assert (other["note"], other["CIDEr-D gain"], other["CIDEr-D gain 95 %"]) == (why, None, None)
    assert other["CIDEr-D 95 %"] is not None
    assert damaged["note"] in err
    assert (damaged["epoch"], damaged["CIDEr-D"], damaged["CIDEr-D 95 %"]) == (1, 0.5, None)
    table = [*csv.DictReader(Path("t.csv").read_text(encoding="utf-8").splitlines())]
    assert [row["note"] for row in table[:3]] == ["", why, ""]
    low, high = good["CIDEr-D gain 95 %"]
    ends = [float(table[0][f"CIDEr-D gain 95 % {end}"]) for end in ("low", "high")]
    assert ends == [low, high]
    assert table[1]["CIDEr-D gain 95 % low"] == ""
    assert why in Path("t.tex").read_text()
    assert r"\textbf" not in Path("t.tex").read_text()  # Of other data, no score is best.
    best, worse = compare_runs(["runs/50%_a&b", "runs/plain"]).latex().splitlines()[5:7]
    assert rf"\textbf{{{good['CIDEr-D']:.4f}}}" in best
    assert (best.count("&"), worse.count("textbf")) == (worse.count("&") + 1, 0)
    assert main(["runs", "runs/other", "--against", "runs/plain"]) == 0
    assert main(["runs", "runs", "--csv", "t.csv"]) == 2
    assert "--csv t.csv exists; --overwrite replaces it" in capsys.readouterr().err


def test_runs_of_translators_are_compared(tmp_path: Path, monkeypatch: Patch) -> None:
    metrics = pytest.importorskip("sacrebleu").metrics
    monkeypatch.chdir(tmp_path)
    for score in ("general", "dot"):
        train_run(translation_recipe(model=luong(score=score)), Path("runs", score))
    assert len(Path("runs/dot/references.txt").read_text().splitlines()) == 20
    references = [f"the dog sees the man number {number}" for number in range(20)]
    texts = [*references[:-3], "a dog", "", "the man"]
    for file, lines in (("translations", texts), ("references", references)):
        Path("runs/general", f"{file}.txt").write_text("\n".join([*lines, ""]))
    first, second = compare_runs(["runs"]).runs
    assert (first["model.luong.score"], second["model.luong.score"]) == ("dot", "general")
    expected = metrics.BLEU().corpus_score(texts, [references]).score
    assert second["BLEU"] == pytest.approx(expected)
    assert second["BLEU 95 %"][0] < expected < second["BLEU 95 %"][1]
    assert second["perplexity"] > 1
    for file in ("translations", "references"):
        Path("runs/dot", f"{file}.txt").write_text("one\ntwo\n")
    first, second = compare_runs(["runs"], "runs/general").runs
    assert first["note"].endswith("it has other validation data")
    assert (first["BLEU gain"], second["BLEU gain"], second["note"]) == (None, 0.0, None)
    theirs = ["a dog", *references[1:-3], "a cat", "two", "a man"]
    for file, lines in (("translations", theirs), ("references", references)):
        Path("runs/dot", f"{file}.txt").write_text("\n".join([*lines, ""]))
    first, second = compare_runs(["runs"], "runs/general").runs
    gain = metrics.BLEU().corpus_score(theirs, [references]).score - expected
    assert first["BLEU gain"] == pytest.approx(gain)
    assert first["BLEU gain 95 %"][0] < gain < first["BLEU gain 95 %"][1]
    assert (0 < first["BLEU p"] < 1, second["BLEU gain"], second["BLEU p"]) == (True, 0.0, 1.0)
    # Beside a run of another task, and a log of another program.
    Path("runs/captions").mkdir()
    Path("runs/captions/config.json").write_text('{"data": {"format": "table"}, "decoder": {}}')
    for folder in ("captions", ""):
        Path("runs", folder, "log.jsonl").write_text("{}")
    Path("runs/captions/results.json").write_text("[]")
    with pytest.raises(UserError, match="runs/captions is no run to compare with: it kept no ref"):
        compare_runs(["runs/dot"], "runs/captions")
    fields = [*compare_runs(["runs"]).runs[0]]
    assert fields[: fields.index("epoch")] == ["run", "data.format", "model.luong.score"]
