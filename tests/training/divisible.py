"""A model and a training set to divide; run by torchrun, this trains as one of two processes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from captioner.caption import (
    DecoderConfig,
    HardAttentionLoss,
    ObjectiveConfig,
    ShowAttendTellDecoder,
)
from captioner.errors import UserError
from captioner.training import Engine, Interrupted, Part, Step, TrainingConfig, Validation, train

EXAMPLES, BATCH, EPOCHS = 13, 4, 3
"""The last of the four batches of an epoch has one example: nothing for the second process."""

STEPS = -(-EXAMPLES // BATCH)


class Batch(NamedTuple):
    inputs: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(self.inputs.to(device), self.targets.to(device))


class Divisible:
    """Thirteen examples. `before` is called with epoch, step and rank before each step is given."""

    unit = "examples"

    def __init__(self, before: Callable[[int, int, int], None] | None = None) -> None:
        self.before = before
        self.given: list[tuple[int, int]] = []

    def steps(self, epoch: int) -> int:
        return STEPS

    def shares(
        self, epoch: int, first: int, rank: int, processes: int, parts: int
    ) -> Generator[Step, None, None]:
        inputs = torch.randn(EXAMPLES, 3, generator=torch.Generator().manual_seed(7))
        order = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(epoch))
        for number in range(first, STEPS):
            if self.before is not None:
                self.before(epoch, number, rank)
            self.given.append((epoch, number))
            rows = order[number * BATCH : (number + 1) * BATCH]
            cuts = [
                rows[cut :: processes * parts] for cut in range(rank, processes * parts, processes)
            ]
            made = []
            for cut in cuts:
                own = inputs[cut] if len(cut) else torch.full((1, 3), torch.nan)
                made.append(Part(Batch(own, own.prod(dim=1, keepdim=True)), len(cut)))
            yield Step(made, len(rows))


class Model(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1)
        )
        self.spoiled = False

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        inputs = batch.inputs.nan_to_num()
        error = (self.layers(inputs) - batch.targets.nan_to_num()).square().mean()
        if self.spoiled:
            error = error * torch.nan
        known = batch.inputs.isfinite().sum()  # 0 for a dummy, whose report is NaN.
        return {"loss": error, "doubled": 2 * error.detach() * known / known}


def settings(**options: Any) -> TrainingConfig:
    return TrainingConfig(
        **{
            "epochs": EPOCHS,
            "batch_size": BATCH,
            "learning_rate": 0.02,
            "clip_norm": 1.0,
            **options,
        }
    )


class Validator:
    """A score from the weights; a second process would validator otherwise, and is not heard."""

    def __init__(self, model: Model, rank: int) -> None:
        self.model, self.rank = model, rank
        self.kept: list[dict[str, float]] = []

    def run(self) -> dict[str, float]:
        first = next(self.model.parameters())
        return {"score": float(first.sum()) + 100 * self.rank}

    def validation(self) -> Validation:
        return Validation(self.run, "score", self.kept.append)


def run(
    folder: Path,
    engine: Engine | None = None,
    data: Divisible | None = None,
    dropout: float = 0.0,
    resume: bool = False,
    **options: Any,
) -> tuple[Model, Validator, str]:
    """Train a new model; gives the model, its validator, and how the run ended for this process."""
    torch.manual_seed(0)
    model = Model(dropout)
    validator = Validator(model, 0 if engine is None else engine.rank)
    config = settings(**options)
    ended = "done"
    try:
        train(
            model,
            Divisible() if data is None else data,
            config,
            folder,
            validator.validation(),
            resume,
            engine=engine,
        )
    except (UserError, Interrupted) as error:
        ended = f"{type(error).__name__}: {error}"
    except SystemExit as error:
        ended = f"exit {error.code}"
    return model, validator, ended


def baseline(rank: int) -> float:
    """Hard attention's baseline, -1 before, after two captions at each process."""
    decoder = ShowAttendTellDecoder(
        DecoderConfig(embedding_size=2, hidden_size=2, attention_size=2, selection="hard"), 5
    )
    loss = HardAttentionLoss(decoder, ObjectiveConfig(doubly_stochastic=0.0))
    loss.baseline.fill_(-1.0)
    rewards = torch.tensor([[-4.0, -6.0], [-9.0, -50.0]])[rank]
    drawn = torch.tensor([[True, True], [True, False]])[rank]
    loss._update_baseline(rewards, torch.tensor([2, 3]), drawn)
    return float(loss.baseline)


def main(folder: Path) -> None:
    """What one of two processes does; how it went is written to `<rank>.json`."""
    seen: dict[str, Any] = {}
    with Engine("cpu") as engine:
        rank = engine.rank

        def signalled(epoch: int, step: int, rank: int) -> None:
            if (epoch, step, rank) == (1, 1, 1):
                signal.raise_signal(signal.SIGTERM)

        def failed(epoch: int, step: int, rank: int) -> None:
            if (epoch, step, rank) == (1, 1, 1):
                raise UserError("photo 7 is gone")

        for name, options in (
            ("plain", {}),
            ("parts", {"accumulate": 2}),
            ("dropout", {"dropout": 0.4}),
            ("averaged", {"average": 0.9}),
        ):
            model, validator, ended = run(folder / name, engine, **options)
            weights = [parameter.flatten().tolist() for parameter in model.parameters()]
            seen[name] = {"ended": ended, "kept": len(validator.kept), "weights": weights}

        data = Divisible(signalled)
        _, _, ended = run(folder / "stopped", engine, data, dropout=0.4)
        seen["stopped"] = {"ended": ended, "given": data.given}
        data = Divisible()
        _, _, ended = run(folder / "stopped", engine, data, dropout=0.4, resume=True)
        seen["resumed"] = {"ended": ended, "given": data.given}

        data = Divisible(failed)
        _, _, ended = run(folder / "failed", engine, data)
        seen["failed"] = {"ended": ended}

        torch.manual_seed(0)
        model = Model()

        def spoil(epoch: int, step: int, rank: int) -> None:
            model.spoiled = (epoch, step, rank) == (1, 1, 1)

        try:
            train(model, Divisible(spoil), settings(), folder / "spoiled", engine=engine)
        except UserError as error:
            seen["spoiled"] = {"ended": str(error)}
        except SystemExit as error:
            seen["spoiled"] = {"ended": f"exit {error.code}"}
        seen["baseline"] = baseline(rank)
    (folder / f"{rank}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
