"""Run by torchrun, this trains as one of two processes, of which the second alone fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from divisible import Batch, Divisible, Model, settings
from torch import Tensor

from captioner.errors import UserError
from captioner.training import Engine, train

ERRORS = {
    "no number": UserError("the model's output is not a number; its weights are damaged"),
    "no memory": torch.OutOfMemoryError("CUDA out of memory."),
    "bad batch": UserError("the batch does not say which photos it is of"),
}


class Failing(Model):
    """Raises an error in a forward pass when it is told to."""

    error: Exception | None = None

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        if self.error is not None:
            raise self.error
        return super().loss(batch)


def main(folder: Path, which: str) -> None:
    """What one of the two does; how it ended is written to `<rank>.json`."""
    torch.manual_seed(0)
    model = Failing()

    def fail(epoch: int, step: int, rank: int) -> None:
        if (epoch, step, rank) == (1, 1, 1):
            model.error = ERRORS[which]

    with Engine("cpu") as engine:
        rank = engine.rank
        try:
            train(model, Divisible(fail), settings(), folder, engine=engine)
            ended = "done"
        except UserError as error:
            ended = str(error)
        except SystemExit as error:
            ended = f"exit {error.code}"
    (folder / f"{rank}.json").write_text(json.dumps(ended), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
