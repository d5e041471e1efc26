"""A model and a training set to divide; run by torchrun, this trains as one of two processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import captioner
from captioner.errors import UserError
from captioner.training.batches import Batches, Place
from captioner.training.checkpoint import Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Processes
from captioner.training.loop import Interrupted, Trainer, Validated, Validation
from captioner.training.optimizer import make_optimizer

EXAMPLES, BATCH, EPOCHS = 13, 4, 3
"""The last of the four batches of an epoch has one example: nothing for the second process."""

STEPS = -(-EXAMPLES // BATCH)
ALL_STEPS = [(epoch, number) for epoch in range(EPOCHS) for number in range(STEPS)]


class Batch(NamedTuple):
    inputs: Tensor
    targets: Tensor
    share: float

    def to(self, device: torch.device) -> "Batch":
        return self


class Data(Batches[int, Batch]):
    """Thirteen examples. `before` is called with epoch, step and rank before each step is given."""

    def __init__(self, before: Callable[[int, int, int], object] = lambda *_: None) -> None:
        self.before = before
        self.given: list[tuple[int, int]] = []

    def plan(self, epoch: int) -> list[list[int]]:
        order = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(epoch))
        return [rows.tolist() for rows in order.split(BATCH)]

    def part(self, examples: list[int], part: int, part_count: int, place: Place) -> Batch:
        self.before(*place, part)
        if place not in self.given[-1:]:
            self.given.append(place)
        inputs = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(7))
        own = examples[part::part_count]
        values = inputs[own] if own else torch.full((1, 3), torch.nan)
        return Batch(values, values.sum(dim=1, keepdim=True), len(own) / len(examples))


def trainer_of(model: nn.Module, config: TrainingConfig, folder: Path) -> Trainer:
    """A trainer at its first step, on the model's device."""
    device = next(model.parameters()).device
    optimizer = make_optimizer(model, config)
    return Trainer(model, Data(), config, folder, optimizer, Processes(device))


def at(
    epoch: int, step: int, happen: Callable[[], object], rank: int = 0
) -> Callable[[int, int, int], None]:
    """`before` of `Data`: something that happens before one step."""

    def before(*moment: int) -> None:
        if moment == (epoch, step, rank):
            happen()

    return before


interrupt = partial(signal.raise_signal, signal.SIGINT)


def raising(error: BaseException) -> Callable[..., Any]:
    return Mock(side_effect=error)


class Model(nn.Module):
    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1)
        )
        self.register_buffer("calls", torch.zeros(()))
        self.spoil: Callable[[Tensor], Tensor] = lambda loss: loss

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        assert self.training
        assert torch.is_grad_enabled()
        self.calls += 1
        error = (self.layers(batch.inputs.nan_to_num()) - batch.targets.nan_to_num()).square()
        known = batch.inputs.isfinite().sum()  # 0 for a dummy, whose report is NaN.
        loss = error.mean()
        return {"loss": self.spoil(loss), "doubled": 2 * loss.detach() * known / known}


def make_model(dropout: float = 0.3) -> Model:
    torch.manual_seed(0)
    return Model(dropout)


class Validator:
    """Scores by the weights, or as scripted; counts and keeps what it is asked to.

    A second process would score otherwise, and is not heard.
    """

    def __init__(
        self,
        model: Model,
        scripted: list[float] | None = None,
        rank: int = 0,
        perplexities: list[float] | None = None,
    ) -> None:
        self.model, self.scripted, self.rank = model, scripted, rank
        self.perplexities = perplexities
        self.kept: list[float] = []
        self.kept_epochs: list[int] = []
        self.runs = 0

    def run(self) -> Validated:
        assert not self.model.training
        assert not torch.is_grad_enabled()
        self.runs += 1
        torch.rand(1)  # The state of torch's own generator must come back too.
        if self.scripted is not None:
            scores = {"score": self.scripted[self.runs - 1]}
            if self.perplexities is not None:
                scores["perplexity"] = self.perplexities[self.runs - 1]
            return Validated(scores)
        score = float(next(self.model.parameters()).sum()) + 100 * self.rank
        return Validated({"score": score, "other": 1.0})

    def keep(self, validated: Validated, epoch: int) -> None:
        self.kept.append(validated.scores["score"])
        self.kept_epochs.append(epoch)


def run(
    folder: Path,
    data: Data | None = None,
    *,
    model: Model | None = None,
    validator: Validator | None = None,
    processes: Processes | None = None,
    resume: bool = False,
    **options: Any,
) -> tuple[Model, Validator, Position]:
    """Train a new model, as a command that is started would."""
    model = make_model() if model is None else model
    if validator is None:
        validator = Validator(model, rank=0 if processes is None else processes.rank)
    plateau = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": 0.05, "decay_patience": 1}
    config = TrainingConfig(**{**plateau, **options})
    validation = Validation(validator.run, "score", validator.keep)
    data = Data() if data is None else data
    optimizer, processes = make_optimizer(model, config), processes or Processes()
    trainer = Trainer(model, data, config, folder, optimizer, processes, validation, resume=resume)
    return model, validator, trainer.train()


def content_of(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = folder / "last.safetensors"
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["position"]), load_file(path)


def as_two(folder: Path) -> None:
    """Two processes that torchrun starts do what stands below; each writes `<rank>.json`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", __file__, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(captioner.__file__).parents[1])}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr[-3000:]


def ending(work: Callable[[], object]) -> str:
    try:
        work()
    except (UserError, Interrupted, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def spoiled(extra: Callable[[Tensor], Tensor], rank: int = 0) -> dict[str, Any]:
    """A model and data for `run`; the loss of one process is spoiled from a step on."""
    model = make_model()
    data = Data(at(1, 1, partial(setattr, model, "spoil", extra), rank))
    return {"model": model, "data": data}


def train_all(folder: Path, seen: dict[str, Any]) -> None:
    """Trains, and notes by name how it ended; the last run fails while processes wait."""
    with Processes("cpu") as processes:

        def note(name: str, to: str | None = None, **options: Any) -> None:
            data = options.setdefault("data", Data())
            noted: dict[str, Any] = {}

            def train_and_note() -> None:
                model, validator, _ = run(folder / (to or name), processes=processes, **options)
                noted["kept"] = len(validator.kept)
                noted["weights"] = [each.flatten().tolist() for each in model.parameters()]

            seen[name] = {"ended": ending(train_and_note), **noted, "given": data.given}

        note("plain", model=make_model(0.0))
        note("averaged in parts", model=make_model(0.0), accumulate=2, average=0.9)
        note("dropout")
        end = partial(signal.raise_signal, signal.SIGTERM)
        note("stopped", data=Data(at(1, 1, end, rank=1)))
        note("resumed", to="stopped", resume=True)
        note("spoiled", **spoiled(lambda loss: loss * torch.nan, rank=1))
        no_memory = torch.OutOfMemoryError("out of memory")
        run(folder / "within", processes=processes, **spoiled(raising(no_memory), rank=1))


if __name__ == "__main__":
    found: dict[str, Any] = {}
    found["within a step"] = {"ended": ending(partial(train_all, Path(sys.argv[1]), found))}
    path = Path(sys.argv[1]) / f"{os.environ['RANK']}.json"
    path.write_text(json.dumps(found), encoding="utf-8")
