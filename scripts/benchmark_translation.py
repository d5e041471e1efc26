"""Tokens a second of translation models; `benchmark.py --only translation` prints them.

Each config of subwords gives a model, with random weights and a vocabulary of the size that the
config asks for; sentences are random and of one length, on both sides. Training is a step as
`captioner train` makes it, in float32 and, where the machine has instructions for it, in bfloat16.
Decoding is the config's own search, held to that length, in float32, of a batch and of one sentence
alone. Tokens are those of the target, with the end: medians of --repeat runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmark_machine import Machine, has_bfloat16

from captioner.backends.torch_translations import make_model
from captioner.decoding.loop import decode, make_strategy
from captioner.decoding.options import AnySearch
from captioner.decoding.rules import Constraints
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.models.translation_model import TranslationLoss, TranslationModel
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.translation_task import TranslationRecipe
from captioner.text.token_batches import PairExample, collate_pairs
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.optimizer import make_optimizer

CONFIGS = sorted((Path(__file__).resolve().parents[1] / "configs").glob("multi30k_en_de*.yaml"))


@dataclass(frozen=True)
class Sizes:
    """Sizes of the work.

    vocabulary: tokens of either side, or None for as many as the config has. length: T and S, with
    the end. training_tokens: of a step, or None for the config's. sentences: decoded at once.
    """

    vocabulary: int | None = None
    length: int = 16
    training_tokens: int | None = None
    sentences: int = 32


class Translation:
    """The model of a config, to be timed."""

    def __init__(self, machine: Machine, config: Path, sizes: Sizes) -> None:
        """Raises `UserError` for a config of another kind."""
        recipe = read_any_recipe(config)
        if not isinstance(recipe, TranslationRecipe) or recipe.text.kind == "words":
            raise UserError(f"config {config} is not of a translator of subwords")
        self.machine, self.recipe, self.sizes = machine, recipe, sizes
        self.vocabulary = sizes.vocabulary or recipe.text.size
        torch.manual_seed(0)
        model: TranslationModel = make_model(recipe.model, self.vocabulary, self.vocabulary)
        self.model = model.to(machine.device)

    def training(self, precision: torch.dtype) -> list[float]:
        """Tokens a second of every run."""
        settings = self.recipe.training
        tokens = self.sizes.training_tokens or self.recipe.data.batch_tokens
        count = max(1, tokens // self.sizes.length)
        loss = TranslationLoss(self.model, self.recipe.objective)
        optimizer = make_optimizer(self.model, settings)
        batch = collate_pairs(self._pairs(count)).to(self.machine.device)

        def step() -> None:
            self.model.train()
            optimizer.zero_grad(set_to_none=True)
            with autocast(self.machine.device, precision):
                value = loss.loss(batch)["loss"]
            torch.autograd.backward(value)
            if settings.clip_norm > 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
            optimizer.step()

        (times,), _ = self.machine.seconds(step)
        return [count * self.sizes.length / each for each in times]

    def decoding(self, sentences: int) -> list[float]:
        """Tokens a second of every run, of so many sentences at once."""
        search = self.recipe.search
        batch = collate_pairs(self._pairs(sentences)).to(self.machine.device)
        words = self.sizes.length - 1  # And the end.

        def translate() -> None:
            self.model.eval()
            with torch.no_grad():
                decode(
                    self.model,
                    self.model.remember(batch.source, batch.source_mask),
                    start=Vocabulary.start,
                    end=Vocabulary.end,
                    strategy=make_strategy(search),
                    constraints=Constraints(AnySearch(minimum_length=words, maximum_length=words)),
                    length_normalisation=search.length_normalisation,
                    coverage_penalty=search.coverage_penalty,
                )

        (times,), _ = self.machine.seconds(translate)
        return [sentences * self.sizes.length / each for each in times]

    def _pairs(self, count: int) -> list[PairExample]:
        generator = torch.Generator().manual_seed(1)
        shape = (2, count, self.sizes.length - 1)  # And the end.
        sides = torch.randint(len(SPECIAL_WORDS), self.vocabulary, shape, generator=generator)
        return [PairExample(*pair) for pair in zip(*sides.tolist(), strict=True)]


def report(machine: Machine, configs: Sequence[Path], sizes: Sizes = Sizes()) -> None:
    """Print tokens a second of these configs, and the gain of bfloat16 and of batches."""
    print(f"tokens a second; sentences of {sizes.length}, decoded in float32")
    print(f"{'':<38}{'weights':>9}{'trained':>10}{'in bfloat16':>18}{'one alone':>12}", end="")
    print(f"{f'{sizes.sentences} at once':>18}")
    for path in configs:
        model = Translation(machine, path, sizes)
        trained = statistics.median(model.training(torch.float32))
        weights = sum(weight.numel() for weight in model.model.parameters())
        cells = f"{path.stem:<38}{weights / 1e6:>7.1f} M{trained:>10,.0f}"
        low = "-"
        if has_bfloat16(machine.device):
            rate = statistics.median(model.training(torch.bfloat16))
            low = f"{rate:,.0f} ({rate / trained:.1f} x)"
        alone, together = (statistics.median(model.decoding(n)) for n in (1, sizes.sentences))
        cells += f"{low:>18}{alone:>12,.0f}{f'{together:,.0f} ({together / alone:.1f} x)':>18}"
        print(cells, flush=True)
