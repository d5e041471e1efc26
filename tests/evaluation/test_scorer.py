from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_samples import write_captions, write_instances
from samples import make_captioner, save_photo

from captioner.data.example import Example
from captioner.data.readers import read_examples
from captioner.errors import UserError
from captioner.evaluation.score import CaptionTexts, score_texts
from captioner.evaluation.scorer import Scorer, score_model, score_results
from captioner.evaluation.significance import NOTHING


@pytest.fixture
def examples(tmp_path: Path) -> list[Example]:
    """Five photos, the fourth of which is not one."""
    rows = ["image,caption"]
    for number in range(5):
        save_photo(tmp_path / f"{number}.png", number)
        rows += [f"{number}.png,a brown dog runs", f"{number}.png,two red dogs number {number}"]
    (tmp_path / "3.png").write_bytes(b"not a photo")
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    return read_examples("table", tmp_path / "captions.csv")


def kept(path: Path) -> dict[str, str]:
    return {record["image_id"]: record["caption"] for record in json.loads(path.read_text())}


def test_a_photo_that_cannot_be_read_is_left_out_on_request(
    examples: list[Example], tmp_path: Path
) -> None:
    left_out: dict[str, str] = {}
    report = score_model(
        make_captioner(), examples, None, 2, tmp_path / "kept.json", left_out=left_out
    )
    assert list(left_out) == ["3.png"]
    assert "3.png" in left_out["3.png"]
    assert report.images == 4
    good = [examples[row] for row in (0, 1, 2, 4)]
    assert score_model(make_captioner(), good).as_dict() == report.as_dict()
    assert list(kept(tmp_path / "kept.json")) == [each.image_id for each in good]


def test_a_refused_photo_loses_no_caption(examples: list[Example], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3\.png"):
        score_model(make_captioner(), examples, None, 2, tmp_path / "kept.json")
    assert list(kept(tmp_path / "kept.json")) == ["0.png", "1.png", "2.png"]


def test_captions_are_written_before_they_are_scored(
    examples: list[Example], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="CIDEr-D"):  # Which is not defined for one photo.
        score_model(make_captioner(), examples[:1], results=tmp_path / "kept.json")
    assert list(kept(tmp_path / "kept.json")) == ["0.png"]


def test_photos_none_of_which_can_be_read_are_refused(examples: list[Example]) -> None:
    with pytest.raises(UserError, match="not one of 1 photos could be read"):
        score_model(make_captioner(), examples[3:4], left_out={})


CAPTIONS = {1: "a dog runs", 2: "a cat sleeps on a mat", 3: "two birds", 4: "a horse"}
REFERENCES = {
    1: ["The dog runs.", "a dog running"],
    2: ["a cat on a mat", "one cat sleeping"],
    3: ["three birds fly", "two birds"],
    4: ["a man with a hat"],
    5: ["nobody captioned this one"],
}


def reference_texts(captions: dict[int, str]) -> CaptionTexts:
    references = [REFERENCES[n] for n in captions]
    further = len(REFERENCES) - len(captions)
    return CaptionTexts.of(list(captions.values()), references, list(captions), further)


def write_results(path: Path, captions: dict[Any, str]) -> Path:
    records = [{"image_id": name, "caption": caption} for name, caption in captions.items()]
    path.write_text(json.dumps(records))
    return path


@pytest.fixture
def references(tmp_path: Path) -> Path:
    return write_captions(tmp_path / "references.json", REFERENCES, "photo {}.png")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results.json", CAPTIONS)


def test_results_are_scored_as_their_captions_are(results: Path, references: Path) -> None:
    report = score_results(results, references)
    expected = score_texts(reference_texts(CAPTIONS))
    found = report.as_dict()
    diversity = found.pop("diversity")
    assert found == expected.as_dict()
    assert found["references_without_caption"] == 1
    assert diversity["distinct_captions"] == 4
    assert diversity["seen_in_training"] is None
    assert report.table().startswith(expected.table() + "\n\ndistinct captions  4")


def test_results_may_call_images_by_text(references: Path, tmp_path: Path) -> None:
    by_text = write_results(tmp_path / "text.json", {str(n): CAPTIONS[n] for n in (4, 2, 1)})
    report = score_results(by_text, references)
    assert [row["image_id"] for row in report.per_image()] == [4, 2, 1]


def test_results_of_an_image_without_references(references: Path, tmp_path: Path) -> None:
    path = write_results(tmp_path / "other.json", {1: "a dog", 9: "a cat"})
    with pytest.raises(UserError, match=r"other\.json: image 9 has no references in"):
        score_results(path, references)
    table = tmp_path / "t.csv"
    table.write_text("image,caption,split\n1,a dog,val\n9,a cat,train\n")
    with pytest.raises(
        UserError, match=r"image 9 has no references in the split 'val' of .*t\.csv"
    ):
        score_results(path, table, format="table", split="val")


def test_references_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,split\na.png,a dog,val\nb.png,a cat,val\n")
    path = write_results(tmp_path / "other.json", {"b.png": "a cat", "a.png": "a dog"})
    report = score_results(path, tmp_path / "t.csv", format="table", split="val")
    assert report.as_dict()["ROUGE-L"] == pytest.approx(1)


def test_intervals_and_a_comparison(results: Path, references: Path, tmp_path: Path) -> None:
    turned = {4: "a man with a hat", 3: "birds", 2: "a cat", 1: "dog"}
    other = write_results(tmp_path / "other.json", turned)
    report = score_results(results, references, Scorer(confidence=0.9, against=other))
    found = report.as_dict()
    assert found["confidence"] == 0.9
    assert list(found["intervals"]) == list(report.by_name())
    low, high = found["intervals"]["ROUGE-L"]
    assert low < found["ROUGE-L"] < high
    comparison = found["comparison"]
    assert (comparison["first"], comparison["second"]) == (str(results), str(other))
    second = score_texts(reference_texts(turned)).by_name()
    for name, each in comparison["scores"].items():
        assert each["first"] == pytest.approx(found[name])
        assert each["second"] == pytest.approx(second[name])
        assert each["difference"] == pytest.approx(found[name] - second[name], abs=NOTHING)
        assert each["interval"][0] <= each["difference"] <= each["interval"][1]
        assert each["p_bootstrap"] > 0
    lines = report.table().splitlines()
    brackets = "0.9000  confidence, 1,000 bootstrap resamples of the images"
    assert f"in brackets         {brackets}" in lines
    assert lines[-10].split() == [*("first", "second", "difference", "90", "%", "p", "bootstrap")]
    assert lines[-4].startswith(f"CIDEr-D             {found['CIDEr-D']:.4f}")
    json.dumps(found, allow_nan=False)


def test_only_the_same_images_are_compared(results: Path, references: Path, tmp_path: Path) -> None:
    fewer = write_results(tmp_path / "fewer.json", {n: CAPTIONS[n] for n in (1, 2)})
    for here, there in ((results, fewer), (fewer, results)):
        with pytest.raises(UserError, match=r"fewer\.json lacks 2 of .*results\.json, image 3"):
            score_results(here, references, Scorer(against=there))


def test_captions_seen_in_training(results: Path, references: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,split\na.png,a dog runs,val\nb,a horse,train\n")
    coco = write_captions(tmp_path / "captions_val2014.json", {70: ["A dog runs!", "a dog"]})
    for training, name in ((tmp_path / "t.csv", "table"), (coco, "coco")):
        options = Scorer(training=training, format=name)
        assert score_results(results, references, options).diversity["seen_in_training"] == 1 / 4


def test_things_that_are_not_there(results: Path, references: Path, tmp_path: Path) -> None:
    things, categories = {1: ["dog"], 2: ["dog"], 3: [], 4: []}, ("bird", "cat", "dog", "horse")
    path = write_instances(tmp_path / "instances.json", things, categories)
    report = score_results(results, references, Scorer(instances=[path]))
    found = report.as_dict()["hallucination"]
    # Of dog, cat, bird and horse, all but the horse is annotated or in a reference.
    assert (found["mentions"], found["hallucinated_mentions"]) == (4, 1)
    assert found["most_hallucinated"] == {"horse": 1}
    assert len(found["dropped_categories"]) == 80 - 4  # of the packaged word list
    assert found["CHAIR-s"] == 1 / 4
    assert "CHAIR-i       0.2500  1 of 4 mentions" in report.table()
    del things[4]
    few = write_instances(tmp_path / "few.json", things, categories)
    with pytest.raises(UserError, match=r"image 4 is not in instance file .*few\.json"):
        score_results(results, references, Scorer(instances=[few]))


def test_a_word_list_is_judged_by_all_categories(tmp_path: Path) -> None:
    things = {1: ["person"], 2: []}
    instances = write_instances(tmp_path / "instances.json", things, ["person", "dog", "car"])
    words = tmp_path / "words.txt"
    words.write_text("dog: puppy\ncat: kitten\n")  # No dog is annotated, but one could be.
    texts = CaptionTexts.of(["a puppy", "a kitten"], [["a park"]] * 2, [1, 2])
    scorer = Scorer(instances=[instances], synonyms=words)
    found = scorer.score(texts, "the captions").hallucination
    assert found["most_hallucinated"] == {"dog": 1}
    assert found["dropped_categories"] == ["cat"]


def test_few_images_are_said_to_be_no_evidence(tmp_path: Path) -> None:
    note = "NOTE: 29 images are too few for intervals and p values to be evidence: there should be"
    for images, few in ((29, True), (30, False)):
        other = write_results(tmp_path / "other.json", dict.fromkeys(range(images), "a cat"))
        texts = CaptionTexts.of([f"a dog {n}" for n in range(images)], [["a dog"]] * images)
        report = Scorer(confidence=0.95, against=other).score(texts, "the captions")
        assert report.as_dict()["too_few_images"] is few
        assert report.table().count(note) == 2 * few  # Below the intervals, and the comparison.
    plain = Scorer().score(texts, "the captions")
    assert "too_few_images" not in plain.as_dict()


def test_a_model_is_compared(examples: list[Example], tmp_path: Path) -> None:
    good = [examples[row] for row in (0, 1, 2, 4)]
    other = write_results(tmp_path / "o.json", {f"{n}.png": "a brown dog" for n in (4, 2, 1, 0)})
    report = score_model(make_captioner(), good, scorer=Scorer(against=other), name="runs/x")
    assert (report.comparison.first, report.comparison.second) == ("runs/x", str(other))
