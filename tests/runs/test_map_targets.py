from __future__ import annotations

from pathlib import Path

import pytest
from coco_samples import write_instances

from captioner.data.instances import read_instances
from captioner.data.synonyms import read_synonyms
from captioner.runs.batches import MapTargets
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing


def instances(folder: Path) -> Path:
    """A photo of 80x40 pixels with a dog in its right half."""
    sizes = {"size": (80, 40), "box": (40, 0, 40, 40), "file_name": "a.jpg"}
    return write_instances(folder / "instances.json", {7: ["dog"]}, ["dog", "cat"], **sizes)


def test_a_map_should_lie_on_the_boxes_of_what_the_word_names(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["a", "dog", "puppy", "cat"])  # 4 to 7
    targets = MapTargets(
        read_instances([instances(tmp_path)]).grounding(read_synonyms()),
        ["photos/a.jpg", "photos/b.jpg"],
        vocabulary,
        Preprocessing(size=32, resize="squash"),
        (2, 2),
    )
    dog, of_another = (0, [4, 5, 6, 7]), (1, [5])
    places = targets([dog, of_another], 5)
    assert places.shape == (2, 5, 4)
    right = [0.0, 1.0, 0.0, 1.0]
    nothing = [0.0] * 4
    assert places[0].tolist() == [nothing, right, right, nothing, nothing]
    assert not places[1].any()
    # The middle square, a half of the photo's width, is seen: half of it is in the box.
    cropped = Preprocessing(size=32, resize="crop", resize_shorter=32)
    assert MapTargets(targets.grounding, targets.image_ids, vocabulary, cropped, (1, 4))([dog], 5)[
        0, 1
    ].tolist() == pytest.approx([0, 0, 1, 1])
