from __future__ import annotations

import json
from pathlib import Path

import pytest
from coco_samples import write_instances

from captioner.errors import UserError
from captioner.evaluation.caption_scorer import Scorer
from captioner.evaluation.texts import CaptionTexts


@pytest.fixture
def instances(tmp_path: Path) -> Path:
    """Two photos with a person in the first, of three categories that there could be."""
    things = {1: ["person"], 2: []}
    return write_instances(tmp_path / "instances.json", things, ["person", "dog", "car"])


def test_only_categories_of_the_instance_file_can_be_hallucinated(instances: Path) -> None:
    texts = CaptionTexts.of(
        {1: "a man on a bench", 2: "a dog beside a bench"}, {1: ["a park"], 2: ["a park"]}
    )
    report = Scorer(instances=[instances]).report(texts, "the captions")
    found = report.hallucination
    assert found.mentioned == ({"person"}, {"dog"})
    assert found.hallucinated == (set(), {"dog"})
    assert found.categories == {"person", "dog", "car"}
    assert len(found.dropped) == 77
    assert "bench" in found.dropped
    assert "3 of the word list's 80" in report.table()


def test_a_word_list_is_judged_by_all_categories(instances: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    files = {"instances": [instances], "synonyms": words}
    words.write_text("bench: seat\n")
    texts = CaptionTexts.of({1: "a puppy", 2: "a kitten"}, {1: ["a park"], 2: ["a park"]})
    with pytest.raises(UserError, match=r"none of the categories of instance file .*instances"):
        Scorer(**files).report(texts, "the captions")  # type: ignore[arg-type]
    words.write_text("dog: puppy\ncat: kitten\n")  # No dog is annotated, but one could be.
    found = Scorer(**files).report(texts, "the captions").hallucination  # type: ignore[arg-type]
    assert found.hallucinated == ({"dog"}, set())
    assert found.dropped == ("cat",)


def test_few_images_are_said_to_be_no_evidence(tmp_path: Path) -> None:
    note = "NOTE: {} images are too few for intervals and p values to be evidence: "
    for images, few in ((4, True), (29, True), (30, False)):
        other = tmp_path / "other.json"
        other.write_text(json.dumps([{"image_id": n, "caption": "a cat"} for n in range(images)]))
        texts = CaptionTexts.of(
            {n: f"a dog {n}" for n in range(images)}, {n: ["a dog"] for n in range(images)}
        )
        asked = ({"intervals": True}, {"against": other}, {"intervals": True, "against": other})
        for place, options in enumerate(asked):
            scorer = Scorer(**options)  # type: ignore[arg-type]
            report = scorer.report(texts, "the captions")
            assert report.as_dict()["too_few_images"] is few
            assert report.table().count(note.format(images)) == few * (1 + (place == 2))
        plain = Scorer().report(texts, "the captions")
        assert "too_few_images" not in plain.as_dict()
        assert "NOTE" not in plain.table()


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps([{"image_id": 1, "caption": "a cat"}]))
    texts = CaptionTexts.of(dict.fromkeys((1, 2, 3), "a dog"), {n: ["a dog"] for n in (1, 2, 3)})
    with pytest.raises(UserError, match=r"other\.json lacks 2 of the captions, image 2 for one"):
        Scorer(against=other).report(texts, "the captions")
    with pytest.raises(UserError, match=r"absent\.json"):
        Scorer(document_frequency="absent.json").report(texts, "the captions")
