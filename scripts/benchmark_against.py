"""Times this tree against another commit of it: what `benchmark.py --against REV` prints.

The commit is checked out into a temporary folder. Each side has a process of its own, which imports
the package of its tree and stays warm; the two take turns, run by run. What is timed goes through
names that a user has, so that both sides understand it. Run as a program, this file is one side.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    closing,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORDS, LENGTH, PLACES, SIZE, BEAM = 10_000, 16, 196, 512, 5
"""V, tokens of a sequence with its end, L, and E = H = A = D, and K."""

Work = Callable[[], object]


def _either(name: str, earlier: str) -> Any:
    """A module by its name, or by that of commits before the rooms `models` and `backends`."""
    try:
        return import_module(f"captioner.{name}")
    except ModuleNotFoundError:
        return import_module(f"captioner.{earlier}")


def make_search(images: int) -> Work:
    """Beam search of LENGTH steps with the paper's decoder."""
    import torch

    decoders = _either("models.show_attend_tell", "caption.lstm")
    torch.manual_seed(0)
    decoder = decoders.ShowAttendTellDecoder(decoders.DecoderConfig(dropout=0.0), WORDS).eval()
    annotations = torch.rand(images, PLACES, SIZE)  # (B, L, D)
    return _search_of(decoder, lambda: decoder.remember(annotations), 0.0)


def make_training_step(captions: int) -> Work:
    """Loss, gradient and AdamW on stored features of random photos."""
    import torch

    decoders = _either("models.show_attend_tell", "caption.lstm")
    losses = _either("models.caption_losses", "caption.losses")
    torch.manual_seed(0)
    decoder = decoders.ShowAttendTellDecoder(decoders.DecoderConfig(dropout=0.0), WORDS)
    loss = losses.CaptioningLoss(decoder, losses.ObjectiveConfig())
    optimizer = torch.optim.AdamW(decoder.parameters(), 4e-4, fused=True)
    words = torch.randint(3, WORDS, (captions, LENGTH + 1))  # (B, T)
    mask = torch.ones_like(words, dtype=torch.bool)
    batch = losses.CaptioningBatch(torch.rand(captions, PLACES, SIZE), words, words, mask)

    def step() -> None:
        optimizer.zero_grad()
        loss.loss(batch)["loss"].backward()
        optimizer.step()

    return step


def make_captioning(photos: int) -> Work:
    """The packaged model on files, the demo photo again and again."""
    import captioner

    model, photo = captioner.load(), Path(captioner.__file__).with_name("demo.jpg")
    return lambda: model.caption([photo] * photos)


def make_translation(config: str, sentences: int) -> Work:
    """Beam search of LENGTH tokens with a config's model of random weights."""
    import torch
    import yaml

    import captioner
    from captioner.schema import from_mapping

    path = Path(captioner.__file__).parents[1] / f"configs/multi30k_en_de{config}.yaml"
    config_of = _either("models.translation_config", "translate.translator").TranslationModelConfig
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    torch.manual_seed(0)
    size = fields["text"]["size"]
    chosen = from_mapping(config_of, fields["model"], config)
    try:
        from captioner.backends.torch_translations import make_model
    except ModuleNotFoundError:  # An earlier commit.
        make_model = type(chosen).make
    model = make_model(chosen, size, size).eval()
    source = torch.randint(4, size, (sentences, LENGTH))  # (B, S)
    mask = torch.ones_like(source, dtype=torch.bool)
    return _search_of(model, lambda: model.remember(source, mask), 1.0)


def random_captions(count: int) -> list[str]:
    """Captions of ten words each, of 605 words."""
    draw = random.Random(0)
    words = [a + b + c for a in "bdgklmnprst" for b in "aeiou" for c in "bdgklmnprst"]
    return [" ".join(draw.choices(words, k=10)) for _ in range(count)]


def make_scoring(images: int) -> Work:
    """`captioner score` of a caption an image against five."""
    from captioner.cli.main import main

    captions = random_captions(5 * images)
    folder = Path(tempfile.mkdtemp(dir=os.environ["BENCHMARK_FOLDER"]))
    results, references = folder / "results.json", folder / "references.json"
    each = [{"image_id": n, "caption": captions[-n]} for n in range(images)]
    results.write_text(json.dumps(each))
    annotations = [{"id": n, "image_id": n % images, "caption": c} for n, c in enumerate(captions)]
    numbers = [{"id": n, "file_name": f"{n}.jpg"} for n in range(images)]
    references.write_text(json.dumps({"images": numbers, "annotations": annotations}))

    gc.set_threshold(10_000)  # As the command has it.

    def score() -> None:
        if code := main(["score", str(results), str(references)]):
            raise RuntimeError(f"the command ended with exit code {code}")

    return score


def make_start(*arguments: str) -> Work:
    """A Python that begins, imports and ends."""
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, check=True, capture_output=True)


TRANSLATORS = {"Transformer": "", "Bahdanau": "_bahdanau", "Luong": "_luong_general"}
ROWS: dict[str, Callable[[], Work]] = {
    "beam-1": partial(make_search, 1),
    "beam-32": partial(make_search, 32),
    "training": partial(make_training_step, 80),
    "photo": partial(make_captioning, 1),
    "folder": partial(make_captioning, 40),
    **{
        f"{name}-{count}": partial(make_translation, config, count)
        for name, config in TRANSLATORS.items()
        for count in (1, 32)
    },
    "scoring": partial(make_scoring, 5_000),
    "start": partial(make_start, "-m", "captioner", "caption", "--demo"),
    "help": partial(make_start, "-m", "captioner", "--help"),
}
"""What is timed, by name; each value makes a work once, outside of the time."""


def _search_of(model: Any, remember: Callable[[], Any], normalisation: float) -> Work:
    """Search for sequences of LENGTH tokens, the memory computed within the time."""
    import torch

    from captioner import cpu
    from captioner.decoding.loop import BeamSearch, decode

    length = {"minimum_length": LENGTH - 1, "maximum_length": LENGTH - 1}
    try:
        from captioner.decoding.options import AnySearch
        from captioner.decoding.rules import Constraints

        constraints = Constraints(AnySearch(**length))
    except ImportError:  # A commit whose constraints are numbers themselves.
        from captioner.decoding import constraints as numbers

        constraints = numbers.Constraints(**length)
    region = nullcontext
    if hasattr(cpu, "pack"):  # As a loaded model is.
        if hasattr(model, "embeddings"):
            model.embeddings.pack()
        cpu.pack(model)
    elif hasattr(cpu, "packed_weights"):  # What it kept from search to search at an earlier commit.
        region = partial(cpu.packed_weights, cpu.PackedWeights())

    def search() -> None:
        with torch.no_grad(), region():
            decode(
                model,
                remember(),
                start=1,
                end=2,
                strategy=BeamSearch(BEAM),
                constraints=constraints,
                length_normalisation=normalisation,
            )

    return search


class Side:
    """The process that times works in one tree."""

    def __init__(self, tree: Path, folder: Path) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "BENCHMARK_FOLDER": str(folder),
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,
        )

    def seconds(self, row: str) -> float:
        """Run a work once."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(row, file=self.process.stdin, flush=True)
        if answer := self.process.stdout.readline():
            return float(answer)
        raise RuntimeError(f"row {row} failed; its error stands above")

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self.process.communicate()


def answer_rows() -> None:
    """One side: read the names of rows, and print the seconds that each took."""
    answers, made = os.fdopen(os.dup(1), "w"), dict[str, Work]()
    # An editable install would lend modules of here to a commit that lacks them.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in finder.__module__]
    for line in sys.stdin:
        name = line.strip()
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            if name not in made:
                made[name] = ROWS[name]()
                made[name]()  # To warm up.
            begin = time.perf_counter()
            made[name]()
            taken = time.perf_counter() - begin
        print(taken, file=answers, flush=True)


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """The tree of a commit, in a folder, for as long as the block lasts."""
    tree = folder / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(revision: str, rows: Sequence[str], repeat: int) -> None:
    """Print what each row takes at a commit and here."""
    print(f"{'milliseconds':<16}{revision[:12]:>14}{'here':>12}{'here / there':>26}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            checked_out(revision, folder) as tree,
            closing(Side(tree, folder)) as there,
            closing(Side(ROOT, folder)) as here,
        ):
            for row in rows:
                times = [(there.seconds(row), here.seconds(row)) for _ in range(repeat)]
                before, after = (1e3 * statistics.median(each) for each in zip(*times, strict=True))
                ratios = [second / first for first, second in times]
                spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
                print(f"{row:<16}{before:>14.1f}{after:>12.1f}", end="")
                print(f"{statistics.median(ratios):>10.2f} {spread}", flush=True)


if __name__ == "__main__":
    answer_rows()
