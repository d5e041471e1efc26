"""Runs side by side."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from run_samples import Config, luong, recipe_of, translation_recipe
from samples import Output, Patch, log_of

from captioner.cli.main import main
from captioner.errors import UserError
from captioner.evaluation.corpus import compare, confidence_intervals
from captioner.evaluation.score import evaluate_captions
from captioner.runs.compare_runs import compare_runs
from captioner.runs.run import train_run
from captioner.training.run_log import best_record

REFERENCES = [[f"photo of the number {number}", "a photo of a colour"] for number in (6, 7)]
GOOD, BAD = ["a photo of the number 6", "a photo of a colour"], ["two dogs", "a photo of a dog"]


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
    made_run("runs/50%_a&b", REFERENCES, GOOD, rate=2e-5)
    made_run("runs/other", [["one"], ["two"], ["three"]], ["one", "two", "four"], rate=0.01)
    made_run("runs/plain", REFERENCES, BAD, rate=0.01)
    made_run("runs/torn", REFERENCES, BAD, rate=0.01)


def test_a_run_of_captions_is_in_the_table(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config), tmp_path / "run")
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    scores = evaluate_captions([record["caption"] for record in found], REFERENCES)
    (row,) = compare_runs([str(tmp_path), str(tmp_path / "run")]).runs
    best = best_record(log_of(tmp_path / "run"), "CIDEr-D")
    assert (row["epoch"], row["perplexity"]) == (best["epoch"], best["perplexity"])
    assert row["CIDEr-D"] == scores.by_name()["CIDEr-D"]
    assert 0 < row["minutes"] < 1


@pytest.mark.usefixtures("made_runs")
def test_scores_and_gains_are_those_of_the_captions() -> None:
    Path("runs/torn/references.json").unlink()  # As of an earlier version.
    good, _, plain, old = rows = compare_runs(["runs"], "runs/plain").runs
    differing = [*good][1 : [*good].index("epoch")]
    assert differing == ["rate"]  # As it is written, not rounded.
    assert [row["rate"] for row in rows] == ["2e-05", "0.01", "0.01", "0.01"]
    ours, theirs = (evaluate_captions(captions, REFERENCES) for captions in (GOOD, BAD))
    intervals, gains = confidence_intervals(ours.metrics), compare(ours.metrics, theirs.metrics)
    for name in ("BLEU-4", "CIDEr-D"):
        assert (good[name], good[f"{name} 95 %"]) == (ours.by_name()[name], intervals[name])
        found = [good[f"{name} {part}"] for part in ("gain", "gain 95 %", "p")]
        assert found == [gains[name][part] for part in ("difference", "interval", "p_bootstrap")]
        assert (plain[f"{name} gain"], plain[f"{name} p"]) == (0.0, 1.0)
    assert (old["CIDEr-D"], old["CIDEr-D 95 %"], old["CIDEr-D gain"]) == (0.5, None, None)
    assert old["note"] == f"not compared with {Path('runs/plain')}: it kept no references"
    with pytest.raises(UserError, match="runs/torn is no run to compare with: it kept no ref"):
        compare_runs(["runs"], "runs/torn")


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
    assert damaged["note"] in err
    assert (damaged["epoch"], damaged["CIDEr-D"], damaged["CIDEr-D 95 %"]) == (1, 0.5, None)
    table = [*csv.DictReader(Path("t.csv").read_text(encoding="utf-8").splitlines())]
    ends = [float(table[0][f"CIDEr-D gain 95 % {end}"]) for end in ("low", "high")]
    assert ends == good["CIDEr-D gain 95 %"]
    assert (table[1]["CIDEr-D gain 95 % low"], table[1]["note"]) == ("", why)
    assert why in Path("t.tex").read_text()
    assert r"\textbf" not in Path("t.tex").read_text()  # Of other data, no score is best.
    best, worse = compare_runs(["runs/50%_a&b", "runs/plain"]).latex().splitlines()[5:7]
    assert rf"\textbf{{{good['CIDEr-D']:.4f}}}" in best
    assert (best.count("&"), worse.count("textbf")) == (worse.count("&") + 1, 0)


@pytest.mark.usefixtures("made_runs")
def test_a_folder_without_a_run_is_named(capsys: Output, refused: Any) -> None:
    Path("empty").mkdir()
    needs = "no folder of a run here, which has log.jsonl and config.json"
    nothing = ["empty", "nowhere", "runs/x*", "runs/plain/log.jsonl"]
    assert refused(["runs", *nothing]).endswith(f": {', '.join(nothing)}: {needs}")
    assert main(["runs", "runs/plain", *nothing]) == 2
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == "".join(f"captioner: {name}: {needs}\n" for name in nothing)
    sentence = refused(["runs", "runs", "--against", "nowhere"])
    assert "--against nowhere is no run to compare with: config of the run nowhere" in sentence
    log = Path("runs/plain/log.jsonl")
    log.write_text(log.read_text() + '{"epoch": 2, "step": 2, "CIDEr-D": null}')
    assert f"run log {log} cannot be used (" in compare_runs(["runs/plain"]).runs[0]["note"]
    Path("runs/plain/config.json").write_text("[]")
    assert compare_runs(["runs/plain"]).runs[0]["note"].endswith("has no validation by score yet")


def test_runs_of_translators_are_compared(tmp_path: Path, monkeypatch: Patch) -> None:
    metrics = pytest.importorskip("sacrebleu").metrics
    monkeypatch.chdir(tmp_path)
    for score in ("general", "dot"):
        train_run(translation_recipe(model=luong(score=score)), Path("runs", score))
    assert len(Path("runs/dot/references.txt").read_text().splitlines()) == 20
    references = [f"the dog sees the man number {number}" for number in range(20)]
    ours = ["a dog", *references[1:-3], "a cat", "two", "a man"]
    theirs = [*references[:-3], "a dog", "", "the man"]
    for name, texts in (("dot", ours), ("general", theirs)):
        for file, lines in (("translations", texts), ("references", references)):
            Path("runs", name, f"{file}.txt").write_text("\n".join([*lines, ""]))
    first, second = compare_runs(["runs"], "runs/general").runs
    assert (first["model.luong.score"], second["model.luong.score"]) == ("dot", "general")
    expected = metrics.BLEU().corpus_score(theirs, [references]).score
    assert second["BLEU"] == pytest.approx(expected)
    assert second["BLEU 95 %"][0] < expected < second["BLEU 95 %"][1]
    gain = metrics.BLEU().corpus_score(ours, [references]).score - expected
    assert first["BLEU gain"] == pytest.approx(gain)
    assert first["BLEU gain 95 %"][0] < gain < first["BLEU gain 95 %"][1]
    assert (0 < first["BLEU p"] < 1, second["BLEU gain"], second["BLEU p"]) == (True, 0.0, 1.0)
    # Beside a run of another task, and a log of another program.
    made_run("runs/captions", REFERENCES, GOOD, data={"format": "table"})
    Path("runs/log.jsonl").write_text("{}")
    fields = [*compare_runs(["runs"]).runs[0]]
    names = ["run", "data.format", "validation.score", "model.luong.score"]
    assert sorted(fields[: fields.index("epoch")]) == sorted(names)
