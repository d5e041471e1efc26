"""Tokens a second of translation models; `benchmark.py --only translation` prints them.

Each config of subwords gives a model, with random weights and a vocabulary of the size that the
config asks for; sentences are random and of one length, on both sides. Training is a step as
`captioner train` makes it, in float32 and, where the machine has instructions for it, in bfloat16.
Decoding is the config's own search, held to that length, in float32, of a batch and of one sentence
alone, by torch and by graphs in turns. Tokens are those of the target, with the end: medians of
--repeat runs.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmark_machine import Machine, has_bfloat16

import captioner
from captioner import cpu
from captioner.backends.export import add_graphs
from captioner.backends.protocol import TranslationBackend, translation_constraints
from captioner.backends.torch_translations import TorchTranslations, make_model
from captioner.decoding.loop import decode, make_strategy
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.models.translation_model import TranslationLoss, TranslationModel
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.translation_task import TranslationRecipe
from captioner.text import WordVocabulary
from captioner.text.token_batches import PairExample, collate_pairs
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.optimizer import make_optimizer
from captioner.translate.folder import save_translator
from captioner.translate.translator import Translator

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

    def decoding(self, sentences: int) -> tuple[list[float], list[float]]:
        """Tokens a second of every run, of so many sentences at once: by torch, and by graphs."""
        self.model.eval()
        batch = collate_pairs(self._pairs(sentences)).to(self.machine.device)
        words = self.sizes.length - 1  # And the end.
        length = {"minimum_length": words, "maximum_length": words}
        search = self.recipe.search.override(**length)
        graphs = self.graphs()
        finished = deepcopy(self.model)  # As a loaded model has it.
        finished.embeddings.pack()
        cpu.pack(finished)

        def by_torch() -> None:
            with torch.no_grad():
                decode(
                    finished,
                    finished.remember(batch.source, batch.source_mask),
                    start=Vocabulary.start,
                    end=Vocabulary.end,
                    strategy=make_strategy(search),
                    constraints=translation_constraints(search),
                    length_normalisation=search.length_normalisation,
                    coverage_penalty=search.coverage_penalty,
                )

        sources = batch.source[:, :-1].tolist()
        times, _ = self.machine.seconds(by_torch, lambda: graphs.search(sources, search))
        by_torch_rate, by_graphs_rate = (
            [sentences * self.sizes.length / each for each in of_way] for of_way in times
        )
        return by_torch_rate, by_graphs_rate

    def graphs(self) -> TranslationBackend:
        """The model as graphs, with words in place of subwords."""
        count = self.vocabulary - len(SPECIAL_WORDS)
        words = WordVocabulary.learn([" ".join(map("w{}".format, range(count)))], 1)
        networks = TorchTranslations(self.recipe.model, self.model, words, words)
        with tempfile.TemporaryDirectory() as name:
            save_translator(Translator(networks, 100, self.recipe.search), name)
            add_graphs(Path(name))
            return captioner.load_translator(name, engine="graphs").backend

    def _pairs(self, count: int) -> list[PairExample]:
        generator = torch.Generator().manual_seed(1)
        shape = (2, count, self.sizes.length - 1)  # And the end.
        sides = torch.randint(len(SPECIAL_WORDS), self.vocabulary, shape, generator=generator)
        return [PairExample(*pair) for pair in zip(*sides.tolist(), strict=True)]


def report(machine: Machine, configs: Sequence[Path], sizes: Sizes = Sizes()) -> None:
    """Print tokens a second of these configs, and the gain of bfloat16 and of graphs."""
    print(f"tokens a second; sentences of {sizes.length}, decoded in float32")
    print(f"{'':<38}{'weights':>9}{'trained':>10}{'in bfloat16':>18}", end="")
    for count in ("one alone", f"{sizes.sentences} at once"):
        print(f"{count:>12}{'by graphs':>18}", end="")
    print()
    for path in configs:
        model = Translation(machine, path, sizes)
        trained = statistics.median(model.training(torch.float32))
        weights = sum(weight.numel() for weight in model.model.parameters())
        cells = f"{path.stem:<38}{weights / 1e6:>7.1f} M{trained:>10,.0f}"
        low = "-"
        if has_bfloat16(machine.device):
            rate = statistics.median(model.training(torch.bfloat16))
            low = f"{rate:,.0f} ({rate / trained:.1f} x)"
        cells += f"{low:>18}"
        for count in (1, sizes.sentences):
            by_torch, by_graphs = map(statistics.median, model.decoding(count))
            cells += f"{by_torch:>12,.0f}{f'{by_graphs:,.0f} ({by_graphs / by_torch:.1f} x)':>18}"
        print(cells, flush=True)
