"""How many tokens a second every translation model is trained on and decodes.

`benchmark.py --only translation` takes the model of each config of subwords, with random weights
and a vocabulary of the size that the config asks for; sentences are random and all of one length,
on both sides. Training is a step as `captioner train` makes it: loss, gradient, clipping,
optimiser; in float32 and, if the machine has instructions for it, in bfloat16
(`training.precision`). What counts is tokens of the target, the end among them. Decoding is the
config's own search, held to that length, of a batch of sentences, in the precision that `captioner
translate` chooses; what counts is tokens of the best translations. The median, the least and the
largest of --repeat runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmark_machine import Machine

from captioner.cpu import choose_precision
from captioner.data.pairs import PairExample, collate_pairs
from captioner.decoding import Constraints, decode
from captioner.devices import autocast, has_bfloat16
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.optimizers import make_optimizer
from captioner.translate import TranslationLoss, TranslationModel

CONFIGS = sorted((Path(__file__).resolve().parents[1] / "configs").glob("multi30k_en_de*.yaml"))


@dataclass(frozen=True)
class Sizes:
    """What is worked on.

    vocabulary: tokens of either side, or None for as many as the config has. length: T and S, the
    end among them. training_tokens: of a step, or None for the config's. sentences: decoded at
    once.
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
        model: TranslationModel = recipe.model.make(self.vocabulary, self.vocabulary)
        self.model = model.to(machine.device)

    @property
    def parameters(self) -> int:
        """How many the model has."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def training(self, precision: torch.dtype) -> list[float]:
        """Tokens a second of every run."""
        settings = self.recipe.training
        count = max(
            1, (self.sizes.training_tokens or self.recipe.data.batch_tokens) // self.sizes.length
        )
        loss = TranslationLoss(self.model, self.recipe.objective)
        optimizer = make_optimizer(self.model, settings)
        batch = collate_pairs(self._pairs(count)).to(self.machine.device)

        def step() -> None:
            self.model.train()
            optimizer.zero_grad(set_to_none=True)
            with autocast(self.machine.device, precision):
                found = loss.loss(batch)["loss"]
            torch.autograd.backward(found)
            if settings.clip_norm > 0:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
            optimizer.step()

        (times,), _ = self.machine.seconds(step)
        return [count * self.sizes.length / each for each in times]

    def decoding(self) -> list[float]:
        """Tokens a second of every run."""
        search, device = self.recipe.search, self.machine.device
        batch = collate_pairs(self._pairs(self.sizes.sentences)).to(device)
        words = self.sizes.length - 1  # And the end.

        def translate() -> None:
            self.model.eval()
            with torch.no_grad(), autocast(device, choose_precision("auto", device)):
                found = decode(
                    self.model,
                    self.model.remember(batch.source, batch.source_mask),
                    start=Vocabulary.start,
                    end=Vocabulary.end,
                    strategy=search.strategy(),
                    constraints=Constraints(minimum_length=words, maximum_length=words),
                    length_normalisation=search.length_normalisation,
                    coverage_penalty=search.coverage_penalty,
                )
            assert all(len(hypotheses[0].tokens) == words for hypotheses in found)

        (times,), _ = self.machine.seconds(translate)
        return [self.sizes.sentences * self.sizes.length / each for each in times]

    def _pairs(self, count: int) -> list[PairExample]:
        generator = torch.Generator().manual_seed(1)
        shape = (2, count, self.sizes.length - 1)  # And the end.
        sides = torch.randint(len(SPECIAL_WORDS), self.vocabulary, shape, generator=generator)
        return [PairExample(*pair) for pair in zip(*sides.tolist(), strict=True)]


def report(machine: Machine, configs: Sequence[Path], sizes: Sizes) -> None:
    """Measure and print the models of these configs."""
    precision = str(choose_precision("auto", machine.device)).removeprefix("torch.")
    print(f"{sizes.length} tokens a sentence; {sizes.sentences} decoded at once, in {precision}")
    print("tokens a second")
    print(f"{'':<42}{'parameters':>10}{'training':>26}{'in bfloat16':>26}{'decoding':>26}")
    for path in configs:
        each = Translation(machine, path, sizes)
        low = each.training(torch.bfloat16) if has_bfloat16(machine.device) else []
        cells = (
            f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            if rates
            else "-"
            for rates in (each.training(torch.float32), low, each.decoding())
        )
        print(f"{path.stem:<42}{each.parameters / 1e6:>8.1f} M", end="")
        print("".join(f"{cell:>26}" for cell in cells), flush=True)
