"""How many tokens a second every translation model is trained on and decodes.

Each model is that of a config of subwords, with random weights and a vocabulary of the size that
the config asks for; sentences are random and all of one length, on both sides. Training is a step
as `captioner train` makes it: loss, gradient, clipping, optimiser; in float32 and, if the machine
has instructions for it, in bfloat16 (`training.precision`). What counts is tokens of the target,
the end among them. Decoding is the config's own search, held to that length, of a batch of
sentences, in the precision that `captioner translate` chooses; what counts is tokens of the best
translations. The median, the least and the largest of --repeat runs.

  OMP_NUM_THREADS=1 python scripts/benchmark_translation.py
  python scripts/benchmark_translation.py configs/multi30k_en_de.yaml --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from benchmark_machine import Machine, add_machine_options, chosen_machine, described

from captioner.cli.program import run_program
from captioner.cpu import choose_precision
from captioner.data.pairs import PairExample, collate_pairs
from captioner.decoding import Constraints, decode
from captioner.devices import autocast, has_bfloat16
from captioner.errors import UserError
from captioner.files import check_writable, write_json
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.training.optimizers import make_optimizer
from captioner.translate import TranslationLoss, TranslationModel

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@dataclass(frozen=True)
class Speed:
    """What was measured of the model of a config.

    parameters: of the model. training, training_bfloat16, decoding: tokens a second, of every run;
        none in bfloat16 where it would not be faster.
    """

    config: str
    parameters: int
    training: list[float]
    training_bfloat16: list[float]
    decoding: list[float]


@dataclass(frozen=True)
class Sizes:
    """What is worked on.

    vocabulary: tokens of either side, or None for as many as the config has. length: T and S, the
    end among them. training_tokens: of a step, or None for the config's. sentences: decoded at
    once.
    """

    vocabulary: int | None
    length: int
    training_tokens: int | None
    sentences: int


SIZES = Sizes(None, 16, None, 32)


def measure(machine: Machine, path: Path, sizes: Sizes) -> Speed:
    """Both speeds of the model of a config. Raises `UserError` for one of another kind."""
    recipe = read_any_recipe(path)
    if not isinstance(recipe, TranslationRecipe):
        raise UserError(f"config {path} is of a captioner, not of a translator")
    if sizes.vocabulary is None and recipe.text.kind == "words":
        raise UserError(
            f"config {path} is of words, and does not say how many: give one of subwords"
        )
    tokens = sizes.vocabulary or recipe.text.size
    torch.manual_seed(0)
    model = recipe.model.make(tokens, tokens).to(machine.device)
    step_tokens = sizes.training_tokens or recipe.data.batch_tokens
    pairs = max(1, step_tokens // sizes.length)
    training: dict[torch.dtype, Sequence[float]] = {torch.bfloat16: []}
    for precision in [torch.float32, *[torch.bfloat16] * has_bfloat16(machine.device)]:
        step = _training(machine, model, recipe, _pairs(pairs, tokens, sizes), precision)
        (training[precision],), _ = machine.seconds(step)
    sources = _pairs(sizes.sentences, tokens, sizes)
    (decoding,), _ = machine.seconds(_decoding(machine, model, recipe, sources, sizes.length))
    return Speed(
        path.stem,
        sum(parameter.numel() for parameter in model.parameters()),
        [pairs * sizes.length / each for each in training[torch.float32]],
        [pairs * sizes.length / each for each in training[torch.bfloat16]],
        [sizes.sentences * sizes.length / each for each in decoding],
    )


def _pairs(count: int, tokens: int, sizes: Sizes) -> list[PairExample]:
    generator = torch.Generator().manual_seed(1)
    shape = (2, count, sizes.length - 1)  # And the end.
    source, target = torch.randint(len(SPECIAL_WORDS), tokens, shape, generator=generator)
    return [PairExample(*pair) for pair in zip(source.tolist(), target.tolist(), strict=True)]


def _training(
    machine: Machine,
    model: TranslationModel,
    recipe: TranslationRecipe,
    pairs: list[PairExample],
    precision: torch.dtype,
) -> Callable[[], None]:
    loss = TranslationLoss(model, recipe.objective)
    optimizer = make_optimizer(model, recipe.training)
    batch = collate_pairs(pairs).to(machine.device)

    def step() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        with autocast(machine.device, precision):
            found = loss.loss(batch)["loss"]
        torch.autograd.backward(found)
        if recipe.training.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.training.clip_norm)
        optimizer.step()

    return step


def _decoding(
    machine: Machine,
    model: TranslationModel,
    recipe: TranslationRecipe,
    pairs: list[PairExample],
    length: int,
) -> Callable[[], None]:
    batch = collate_pairs(pairs).to(machine.device)
    words = length - 1  # And the end.
    search = recipe.search
    precision = choose_precision("auto", machine.device)

    def translate() -> None:
        model.eval()
        with torch.no_grad(), autocast(machine.device, precision):
            found = decode(
                model,
                model.remember(batch.source, batch.source_mask),
                start=Vocabulary.start,
                end=Vocabulary.end,
                strategy=search.strategy(),
                constraints=Constraints(minimum_length=words, maximum_length=words),
                length_normalisation=search.length_normalisation,
                coverage_penalty=search.coverage_penalty,
            )
        assert all(len(hypotheses[0].tokens) == words for hypotheses in found)

    return translate


def line(speed: Speed) -> str:
    """A result as a line of the table."""
    name, count = speed.config, speed.parameters / 1e6
    training, low, decoding = (
        f"{statistics.median(each):,.0f} ({min(each):,.0f} to {max(each):,.0f})" if each else "-"
        for each in (speed.training, speed.training_bfloat16, speed.decoding)
    )
    return f"{name:<42}{count:>8.1f} M{training:>26}{low:>26}{decoding:>26}"


def report(machine: Machine, sizes: Sizes = SIZES, configs: Sequence[Path] = ()) -> list[Speed]:
    """Measure and print the models of these configs, by default all of Multi30k's."""
    precision = str(choose_precision("auto", machine.device)).removeprefix("torch.")
    print(f"{sizes.length} tokens a sentence; {sizes.sentences} decoded at once, in {precision}")
    print("tokens a second")
    print(f"{'':<42}{'parameters':>10}{'training':>26}{'in bfloat16':>26}{'decoding':>26}")
    speeds = []
    for path in configs or sorted(CONFIGS.glob("multi30k_en_de*.yaml")):
        speeds.append(measure(machine, path, sizes))
        print(line(speeds[-1]), flush=True)
    return speeds


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "configs",
        nargs="*",
        type=Path,
        metavar="CONFIG",
        help="of translators of subwords (default: all of Multi30k from English to German)",
    )
    add_machine_options(parser)
    parser.add_argument(
        "--length",
        type=int,
        default=SIZES.length,
        help="tokens of a sentence (default: %(default)s)",
    )
    parser.add_argument(
        "--sentences",
        type=int,
        default=SIZES.sentences,
        help="decoded at once (default: %(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few short sentences, few words: whether it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as well")
    arguments = parser.parse_args()
    for name, least in (("length", 2), ("sentences", 1)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name} {getattr(arguments, name)} is not at least {least}")
    if arguments.json is not None:
        check_writable("--json", arguments.json.parent)
    machine = chosen_machine(arguments)
    sizes = Sizes(None, arguments.length, None, arguments.sentences)
    if arguments.quick:
        machine, sizes = Machine(machine.device, 1), Sizes(50, 4, 8, 2)
    print(described(machine.device))
    speeds = report(machine, sizes, arguments.configs)
    if arguments.json is not None:
        write_json(arguments.json, [asdict(speed) for speed in speeds])
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
