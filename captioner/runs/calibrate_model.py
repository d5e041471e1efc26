"""Calibrates the confidence of a saved model."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from captioner.caption.folder import save_confidence
from captioner.data.example import Example
from captioner.errors import counted
from captioner.evaluation.calibration import CalibrationReport, calibrate
from captioner.evaluation.score import read_results
from captioner.loading import load
from captioner.model_folders import MODEL
from captioner.runs.caption_scores import RESULTS


def calibrate_folder(
    folder: Path,
    training: Sequence[Example],
    validation: Mapping[str, Sequence[Example]],
    device: torch.device,
    unsure_below: float,
    batch_size: int,
    note: Callable[[str], None],
    file: str | None = None,
) -> CalibrationReport:
    """`calibrate` a model's confidence and write it to its folder, or to a file.

    note: takes a sentence about photos that chose the epoch of the model.
    """
    results = folder.parent / RESULTS  # In a run: the photos that chose the epoch.
    if folder.name == MODEL and results.is_file():
        names = {photo.name for photos in validation.values() for photo in photos}
        if chosen := len(names & read_results(results).keys()):
            photos = f"{counted(chosen, 'photo')} of {' and '.join(validation)}"
            advice = "its confidence may be too high; give photos that training did not use"
            note(f"{photos} chose the epoch of this model: {advice}")
    model = load(folder, device)
    report = calibrate(model, training, validation, unsure_below, batch_size)
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder, file)
    return report
