"""Where the maps of a training caption should lie: on the boxes of what its words name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.data.examples import CaptionExample
from captioner.data.grounding import Grounding
from captioner.data.records import ImageId
from captioner.evaluation.target_cells import target_cells
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing


@dataclass(frozen=True)
class MapTargets:
    """Finds the targets of the maps of captions. image_ids: of the photos, by row."""

    grounding: Grounding
    image_ids: Sequence[ImageId]
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    map_shape: tuple[int, int]

    def __call__(self, examples: Sequence[CaptionExample], steps: int) -> Tensor:
        """The share of each place inside what a word names: (B, T, L), with T = `steps`.

        0 for a word that names nothing annotated.
        """
        rows, columns = self.map_shape
        places = torch.zeros(len(examples), steps, rows * columns)
        for number, example in enumerate(examples):
            words = [self.vocabulary.words[token] for token in example.tokens]
            targets = self.grounding.targets(self.image_ids[example.row], words)
            for step, target in enumerate(targets):
                if target is None:
                    continue
                region = self.preprocessing.region(*target.size)
                cells = target_cells(target, target.size, region, self.map_shape)
                if cells is not None:
                    places[number, step] = torch.from_numpy(cells.coverage).flatten()  # (L,)
        return places
