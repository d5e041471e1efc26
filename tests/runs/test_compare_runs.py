"""Runs side by side."""

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
    first, second, old = rows = compare_runs(["runs", "runs/a"], "runs/b")
    names = ("a", "b", "of an earlier version")
    assert [row["run"] for row in rows] == [str(Path("runs", name)) for name in names]
    differing = [*first][1 : [*first].index("epoch")]
    assert differing == ["training.learning_rate"]  # As it is written, not rounded.
    rates = [row["training.learning_rate"] for row in rows]
    assert rates == ["2e-05", "0.01", "2e-05"]
    log = log_of(Path("runs/a"))
    best = max(log, key=lambda record: record["CIDEr-D"])
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
        assert old[f"{name} 95 %"] is None
    assert old["CIDEr-D"] == best["CIDEr-D"]
    capsys.readouterr()
    assert main(["runs", "runs"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "run"
    assert len(lines) == 3
    assert "gain" not in header
    sentence = refused(["runs", "photos"])
    assert sentence.endswith("photos: no folder of a run here, which has log.jsonl and config.json")
    Path("runs/of an earlier version/config.json").write_text("[]")
    assert compare_runs(["runs/of an earlier version"])[0]["run"]
    results = json.loads(Path("runs/b/results.json").read_text())[:1]
    Path("runs/b/results.json").write_text(json.dumps(results))
    sentence = refused(["runs", "runs/a", "--against", "runs/b"])
    assert "differ in 1, image 7.png for one, and cannot be compared" in sentence


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
    first, second = compare_runs(["runs"])
    assert (first["model.luong.score"], second["model.luong.score"]) == ("dot", "general")
    expected = metrics.BLEU().corpus_score(texts, [references]).score
    assert second["BLEU"] == pytest.approx(expected)
    assert second["BLEU 95 %"][0] < expected < second["BLEU 95 %"][1]
    assert second["perplexity"] > 1
    for file in ("translations", "references"):
        Path("runs/dot", f"{file}.txt").write_text("one\ntwo\n")
    with pytest.raises(UserError, match="runs/dot and runs/general differ in their validation"):
        compare_runs(["runs"], "runs/general")
    theirs = ["a dog", *references[1:-3], "a cat", "two", "a man"]
    for file, lines in (("translations", theirs), ("references", references)):
        Path("runs/dot", f"{file}.txt").write_text("\n".join([*lines, ""]))
    first, second = compare_runs(["runs"], "runs/general")
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
    with pytest.raises(UserError, match="runs/captions: no run to compare with it has scores of"):
        compare_runs(["runs/dot"], "runs/captions")
    fields = [*compare_runs(["runs"])[0]]
    assert fields[: fields.index("epoch")] == ["run", "data.format", "model.luong.score"]
