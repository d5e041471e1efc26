"""Captions as strings, in results files and by a model, scored as a `Scorer` says."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import make_captioner, save_photo, write_captions, write_instances

from captioner.data.example import Example
from captioner.errors import UserError
from captioner.evaluation import score
from captioner.evaluation.coco_metrics import bleu, cider_d, rouge_l
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.score import CaptionScores, Scorer, read_results, write_results
from captioner.text.tokenizer import tokenize

# Strings

HYPOTHESES = ["A dog runs.", "Two cats sleep on a mat"]
TEXTS = [["A brown dog runs!", "The dog, it runs."], ["Two cats on a mat.", "cats sleeping"]]
WORDS = [tokenize(text) for text in HYPOTHESES]
REFERENCE_WORDS = [[tokenize(text) for text in texts] for texts in TEXTS]
BLEU = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")


def test_every_metric_by_name_for_all_and_image_by_image() -> None:
    scores, corpus = score.evaluate_captions(HYPOTHESES, TEXTS), Corpus(WORDS, REFERENCE_WORDS)
    found = scores.to_dict()
    expected = dict(zip(BLEU, bleu(corpus).scores, strict=True))
    expected |= {"ROUGE-L": rouge_l(corpus).scores[0], "CIDEr-D": cider_d(corpus).scores[0]}
    expected |= {"word-precision": 1, "captions with none": 0, "brevity_penalty": 1, "images": 2}
    expected |= {"hypothesis_length": 9, "reference_length": 9, "references_without_caption": 0}
    assert found == pytest.approx(expected)
    lines = scores.table().splitlines()
    names = [name.replace("_", " ") for name in found]
    names[names.index("captions with none")] = "captions with no true word"
    assert [line[:27].strip() for line in lines] == names
    first, second = score.evaluate_captions(HYPOTHESES, TEXTS, images=[7, "b.jpg"]).rows()
    names = ["image_id", "caption", *BLEU, "ROUGE-L", "CIDEr-D", "word-precision"]
    assert list(first) == names
    assert (first["image_id"], first["caption"]) == (7, "A dog runs.")
    alone = bleu(Corpus(WORDS[1:], REFERENCE_WORDS[1:]))
    assert second["BLEU-2"] == pytest.approx(alone.scores[1])
    assert (first["CIDEr-D"] + second["CIDEr-D"]) / 2 == pytest.approx(found["CIDEr-D"])


# Models


def test_a_photo_that_cannot_be_read_is_left_out_on_request(tmp_path: Path) -> None:
    examples = []
    for number in range(5):
        path = save_photo(tmp_path / f"{number}.png", number)
        captions = ("a brown dog runs", f"two red dogs number {number}")
        examples.append(Example(path.name, path, captions))
    (tmp_path / "3.png").write_bytes(b"not a photo")
    kept = tmp_path / "kept.json"
    left_out: dict[str, str] = {}
    options: Any = {"results": kept, "batch_size": 2}
    scores = score.score_model(make_captioner(), examples, **options, left_out=left_out)
    assert list(left_out) == ["3.png"]
    good = [examples[row] for row in (0, 1, 2, 4)]
    assert score.score_model(make_captioner(), good).to_dict() == scores.to_dict()
    assert list(read_results(kept)) == [each.name for each in good]
    with pytest.raises(UserError, match=r"3\.png"):  # A refused photo loses no caption.
        score.score_model(make_captioner(), examples, **options)
    assert list(read_results(kept)) == ["0.png", "1.png", "2.png"]
    with pytest.raises(UserError, match="CIDEr-D"):  # Written before they are scored.
        score.score_model(make_captioner(), examples[:1], results=kept)
    assert list(read_results(kept)) == ["0.png"]


# Results files

text = st.text(st.characters(exclude_categories=["Cs"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    captions=st.dictionaries(st.integers(-(10**18), 10**18), text, min_size=1, max_size=5)
    | st.dictionaries(text, text, min_size=1, max_size=5)
)
def test_written_results_are_read_back(tmp_path: Path, captions: dict[int | str, str]) -> None:
    write_results(tmp_path / "results.json", captions)
    read = read_results(tmp_path / "results.json")
    assert list(read.items()) == [(str(image), text) for image, text in captions.items()]


def test_names_are_matched_composed_and_decomposed(tmp_path: Path) -> None:
    names = ["a/Ba\u0308r.jpg", "b/Bär.jpg", "c/Ku\u0308he.jpg"]
    images = [Example(name, Path(name), ("a bear",)) for name in names]
    write_results(tmp_path / "r.json", {"a/Bär.jpg": "1", "b/Bär.jpg": "2", "Kühe.jpg": "3"})
    assert list(read_results(tmp_path / "r.json", images)) == names
    write_results(tmp_path / "r.json", {"Bär.jpg": "of two"})
    assert list(read_results(tmp_path / "r.json", images)) == ["Bär.jpg"]


CAPTIONS = {1: "a dog runs", 2: "a cat sleeps on a mat", 3: "two birds", 4: "a horse"}
REFERENCES = {
    1: ["The dog runs.", "a dog running"],
    2: ["a cat on a mat", "one cat sleeping"],
    3: ["three birds fly", "two birds"],
    4: ["a man with a hat"],
    5: ["nobody captioned this one"],
}


def scored(captions: dict[int, str]) -> CaptionScores:
    references = [REFERENCES[n] for n in captions]
    return score.evaluate_captions(list(captions.values()), references, images=list(captions))


def saved(path: Path, captions: dict[Any, str]) -> Path:
    write_results(path, captions)
    return path


@pytest.fixture
def references(tmp_path: Path) -> Path:
    return write_captions(tmp_path / "references.json", REFERENCES, "photo {}.png")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return saved(tmp_path / "results.json", CAPTIONS)


def test_results_score_as_captions_do(results: Path, references: Path, tmp_path: Path) -> None:
    scores = score.score_results(results, references)
    expected = scored(CAPTIONS)
    expected.details["references_without_caption"] = 1
    found = scores.to_dict()
    assert found.pop("diversity")["distinct_captions"] == 4
    assert found == expected.to_dict()
    assert scores.table().startswith(expected.table() + "\n\ndistinct captions  4")
    scores = score.score_results(results, references, Scorer(document_frequency=references))
    assert scores.by_name()["CIDEr-D"] != expected.by_name()["CIDEr-D"]
    assert "document frequency          images 5" in scores.table()
    by_text = saved(tmp_path / "text.json", {str(n): CAPTIONS[n] for n in (4, 2, 1)})
    rows = score.score_results(by_text, references).rows()
    assert [row["image_id"] for row in rows] == [4, 2, 1]


def test_captions_of_the_command_are_scored_by_names(references: Path, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"image": f"trip/photo {number}.png", "caption": text, "log_probability": -1.0}
        for number, text in CAPTIONS.items()
    ]
    file = tmp_path / "captions.json"
    failed = {"image": "trip/photo 5.png", "model": "m", "error": "damaged"}
    file.write_text(json.dumps([*records, failed]))
    scores = score.score_results(file, references, Scorer(against=file))
    assert [row["image_id"] for row in scores.rows()] == [1, 2, 3, 4]
    assert scores.by_name() == scored(CAPTIONS).by_name()
    assert scores.details["references_without_caption"] == 1
    file.write_text(json.dumps([*records, {**records[0], "image": "home/photo 1.png"}]))
    with pytest.raises(UserError, match=r"image 'home/photo 1\.png' already has a caption"):
        score.score_results(file, references)


def test_an_empty_reference_is_left_out_on_request(results: Path, tmp_path: Path) -> None:
    texts = {**REFERENCES, 1: ["", *REFERENCES[1]], 4: [" "]}
    references = write_captions(tmp_path / "references.json", texts)
    with pytest.raises(UserError, match=r"2 empty captions .*--on-problem skip"):
        score.score_results(results, references)
    scorer = Scorer(on_problem="skip")
    scores = score.score_results(results, references, scorer)
    assert [row["image_id"] for row in scores.rows()] == [1, 2, 3]
    of_references, of_results = (list(each.kinds) for each in scorer.problems)
    assert of_references == ["empty caption"]
    assert of_results == [f"image without references in {references}"]


def test_captions_seen_in_training(results: Path, references: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("image,caption,split\na.png,a dog runs,val\nb,a horse,train\n")
    (tmp_path / "u.csv").write_text("image,caption\na,One\nb,a horse\nc,Two\nd,Three\n")
    tables = [(tmp_path / name, None) for name in ("t.csv", "u.csv")]  # No split is drawn.
    coco = write_captions(tmp_path / "captions_val2014.json", {70: ["A dog runs!", "a dog"]})
    for training, name in (*tables, (coco, "coco"), (coco, None)):
        scores = score.score_results(results, references, Scorer(training=training, format=name))
        assert scores.details["diversity"]["seen_in_training"] == 1 / 4


def test_things_that_are_not_there(results: Path, references: Path, tmp_path: Path) -> None:
    things, categories = {1: ["dog"], 2: ["dog"], 3: [], 4: []}, ("bird", "cat", "dog", "horse")
    path = write_instances(tmp_path / "instances.json", things, categories)
    scores = score.score_results(results, references, Scorer(instances=[path]))
    found = scores.details["hallucination"]
    # Of dog, cat, bird and horse, all but the horse is annotated or in a reference.
    assert (found["mentions"], found["hallucinated_mentions"]) == (4, 1)
    assert len(found["dropped_categories"]) == 80 - 4  # of the packaged word list
    assert "most hallucinated       horse 1" in scores.table()
    words = tmp_path / "words.txt"
    words.write_text("dog: puppy\nlion: cub\n")
    options = Scorer(instances=[path], synonyms=words)
    found = score.score_results(results, references, options).details["hallucination"]
    assert (found["mentions"], found["categories"]) == (1, 1)
    assert found["dropped_categories"] == ["lion"]
