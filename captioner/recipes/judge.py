"""How a captioning run is judged between epochs: by captions as a user would get them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from captioner.caption import Captioner, save_model
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.evaluation.captions import evaluate_captions
from captioner.evaluation.results import write_results
from captioner.files import write_json
from captioner.recipes.config import SCORES, CaptioningRecipe
from captioner.recipes.features import Rows, annotation_batches
from captioner.render.panels import panels
from captioner.text.tokenizer import tokenize
from captioner.training import Engine, ShownExample

MODEL = "model"
"""In a run's folder: the folder of the best model."""

_SHOWN = 4
"""Photos shown in TensorBoard."""


class CaptionJudge:
    """What `captioner.training.Validation` asks for, of a captioner that is being trained."""

    def __init__(
        self,
        captioner: Captioner,
        rows: Rows,
        wanted: Sequence[int],
        source: Source,
        recipe: CaptioningRecipe,
        folder: Path,
        engine: Engine,
    ) -> None:
        """Judge by the photos of `source`, of which `wanted` are the rows in `rows`."""
        self.captioner, self.rows, self.wanted, self.source = captioner, rows, wanted, source
        self.recipe, self.folder, self.engine = recipe, folder, engine
        self.captions: list[str] = []

    def run(self) -> dict[str, float]:
        """Caption the photos together with the other processes; process 0 gives the scores."""
        batch_size = self.recipe.validation.batch_size
        self.captions = free_running(
            self.captioner, self.rows, self.wanted, batch_size, self.engine
        )
        with self.engine.fail_together():
            return scores_of(self.captions, self.source) if self.engine.is_main else {}

    def keep(self, scores: dict[str, float]) -> None:
        """Save the captioner, its scores and its captions."""
        save_model(self.captioner, self.folder / MODEL)
        write_json(self.folder / MODEL / "scores.json", scores)
        write_captions(self.folder / "results.json", self.captions, self.source)

    def save(self, folder: Path) -> None:
        """Save the captioner alone."""
        save_model(self.captioner, folder)

    def show(self) -> list[ShownExample]:
        """The first few photos with their captions, and where was looked for each word.

        A photo that can no longer be read has no picture.
        """
        shown = []
        for index, row in enumerate(self.wanted[:_SHOWN]):
            annotations = self.rows.encode(self.rows.read(torch.tensor([row])))
            references = "\n".join(f"- {caption}" for caption in self.source.captions[index])
            picture = None
            region = None
            try:
                photo = self.source.open_photo(index)
                region = self.captioner.preprocessing.region(photo.width, photo.height)
            except UserError:
                photo = None
            caption = self.captioner.caption_annotations(annotations, None, [region])[0]
            if photo is not None and region is not None and caption.words:
                picture = panels(photo, caption.words, caption.attention, region, panel_size=160)
            text = f"**{caption.text}**\n\n{references}"
            shown.append(ShownExample(f"photo {self.source.image_ids[index]}", text, picture))
        return shown


def free_running(
    captioner: Captioner,
    rows: Rows,
    wanted: Sequence[int],
    batch_size: int,
    engine: Engine,
) -> list[str]:
    """The captions a user would get for the wanted rows, each photo captioned once.

    The processes take whole batches in turn, so that the numbers do not depend on how many there
    are; each gets all captions.
    """
    batches = [wanted[first : first + batch_size] for first in range(0, len(wanted), batch_size)]
    own: dict[int, str] = {}
    with engine.fail_together():
        mine = batches[engine.rank :: engine.size]
        for batch, annotations in zip(mine, annotation_batches(rows, mine), strict=True):
            found = captioner.caption_annotations(annotations)
            own |= zip(batch, (caption.text for caption in found), strict=True)
    captions: dict[int, str] = {}
    for share in engine.gather(own):
        captions |= share
    return [captions[row] for row in wanted]


def scores_of(captions: Sequence[str], source: Source) -> dict[str, float]:
    """Scores of one caption a photo against the source's captions, by name; see `SCORES`.

    `exact match` is the share of captions that equal one of their references word for word.
    """
    found = evaluate_captions(list(captions), source.captions).as_dict()
    scores = {name: found[name] for name in (*SCORES[:-1], "brevity_penalty")}
    # As the words stand, and as the text reads: "a man 's hat" and "a man's hat".
    exact = [
        caption.split() in references or tokenize(caption) in references
        for caption, references in zip(captions, source.words, strict=True)
    ]
    scores["exact match"] = sum(exact) / len(exact)
    return scores


def write_captions(path: Path, captions: Sequence[str], source: Source) -> None:
    """Write one caption a photo in COCO's result format, by the source's own `image_ids`."""
    write_results(path, dict(zip(source.image_ids, captions, strict=True)))
