"""The steps that train the packaged captioner with its encoder."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

from samples import Patch

from captioner.text.vocabulary import Vocabulary


def everyday_captions(folders: Any, split: str) -> dict[Path, list[str]]:
    folder = folders.everyday / "photos"
    return {
        folder / f"{split}{n}.jpg": ["a cup", f"A umbrella, a close-up of {n}"] for n in range(9)
    }


def flickr_captions(folders: Any, split: str) -> dict[Path, list[str]]:
    return {Path(f"flickr/of_{split}{n}.jpg"): ["a dog"] for n in range(5)}


def test_photos_kept_out_are_in_no_training_table(monkeypatch: Patch, tmp_path: Path) -> None:
    import tables as script

    kinds = ["question", "question, loose grammar", "captioner", "question"]
    weak = {
        "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(4)],
        "annotations": [
            {"image_id": n, "caption": f"photo {n}", "kind": kind} for n, kind in enumerate(kinds)
        ],
    }
    (tmp_path / "captions_weak.json").write_text(json.dumps(weak), encoding="utf-8")
    (tmp_path / "text").mkdir()
    texts = "a dog on a sofa\na close up of 3\nno image was shown\na dog\n"
    (tmp_path / "text" / "coco_captions.txt.gz").write_bytes(gzip.compress(texts.encode()))
    monkeypatch.setattr(script, "KEPT_OUT", {"everyday": 3, "flickr": 2})
    monkeypatch.setattr(script.Folders, "everyday_captions", everyday_captions)
    monkeypatch.setattr(script.Folders, "flickr_captions", flickr_captions)
    script.write_tables(script.Folders(tmp_path, tmp_path), None, tmp_path)
    tables = {}
    for file in tmp_path.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        tables[file.stem] = [
            (Path(row["image"]).name, row["caption"], row["split"]) for row in rows
        ]
    drawn = {*random.Random(28).sample([f"train{n}.jpg" for n in range(9)], 3)}
    kept = {name for name, *_ in tables["chosen"]}
    assert len(kept) == 5
    assert drawn < kept
    learned = {
        step: [(name, caption) for name, caption, split in tables[step] if split == "train"]
        for step in ("frozen", "whole", "rewarded")
    }
    assert not {name for rows in learned.values() for name, _ in rows} & kept
    people, weak_rows = learned["rewarded"], [(f"{n}.jpg", f"photo {n}") for n in (0, 2, 3)]
    assert len({*people}) == len(people) == 6 * 2 + 3
    assert any("An umbrella, a close up of" in caption for _, caption in people)
    assert learned["frozen"] == people * 2 + weak_rows
    assert learned["whole"] == people + weak_rows[1::2]
    assert {split for *_, split in tables["frozen"]} == {
        *("train", "everyday", "everyday_kept", "flickr", "flickr_kept")
    }
    said = (tmp_path / "texts.txt").read_text(encoding="utf-8").splitlines()
    assert said[0] == "a dog on a sofa"
    assert ("a close up of 3" in said) == ("train3.jpg" not in drawn)
    assert not {"no image was shown", "a dog"} & {*said}


def test_a_class_is_what_people_do_not_name_together() -> None:
    from mean import word_classes

    words = "a man men woman bike bikes bicycle motorcycle truck pickup calf cow"
    vocabulary = Vocabulary(words.split())
    texts = ["a man bike", "a woman bicycle", "a motorcycle", "a pickup truck", "a cow calf"]
    classes = word_classes(vocabulary, [text.split() for text in texts * 40])
    named = {word: classes[vocabulary.encode([word])[0]] for word in words.split()}
    assert named["man"] == named["men"] != named["woman"]
    assert len({named[word] for word in ("bike", "bikes", "bicycle", "motorcycle")}) == 1
    assert len({named[word] for word in ("truck", "pickup", "calf", "cow", "a")}) == 5
