"""Rebuild the model in the package, step by step.

Each step is a program, whose command is printed, and leaves its run in a folder of OUT. A step that
is done is not done again; one that was stopped goes on where it was. What each step gave on
validation photos is printed when it is done. `done.txt` in its folder keeps its time, over all its
beginnings, and its command; other data or settings than those are refused.

  python scripts/default_model/build.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --out runs/m
  python scripts/default_model/build.py ... --only tables words

The folder of Flickr8k holds Flickr8k.token.txt, images/, train.txt and val.txt (one photo name a
line); that of the everyday photos captions_train.json and captions_val.json (COCO's format),
photos/, unlabelled/ and text/coco_captions.txt.gz; that of the teachers teachers.py and its
networks. OUT/features and OUT/teacher_maps hold annotation vectors, 200 kB a photo. OUT/model is
packaged, with the card in captioner/models/default.

The eyes start from ImageNet's weights by default, and learn twice: the captioners that come of
both are averaged. Those of the packaged model started from the encoder of the package's first
model, which is in the repository's history; so a rebuild gives a model like it, not the same.
`--start-from random` only tries the steps out: the first two stages stay as they are.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from photos import folder_parser
from teachers import SCALES, add_precision

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import atomic_folder, read_json, read_text, real_path, write_bytes, write_text
from captioner.vision.weights import IMAGENET, NAMED

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parents[1] / "configs"
SCORES = (
    *("Flickr8k block 10", "Flickr8k block 15"),
    *("everyday block 10", "everyday block 15", "everyday things"),
    *("BLEU-4", "CIDEr-D"),
)
RUN, EVALUATION, CALIBRATION = "log.jsonl", "evaluation.json", "calibration.json"
DONE, BEGUN = "done.txt", "begun.txt"
"""In the folder of a step: how long it took, or so far had, in the first line; then what it is."""


@dataclass(frozen=True)
class Step:
    """A step: its name, its purpose in a line, and the command of Python that does it.

    command: one with --out is told --resume where the step's checkpoint is there.
    figures: files in the step's folder, keys of `FIGURES`.
    copied: a model folder that the step first copies into its own, for its command to change.
    """

    name: str
    purpose: str
    command: list[str]
    figures: tuple[str, ...] = (RUN,)
    copied: Path | None = None


@dataclass(frozen=True)
class Inputs:
    """What the model is made from.

    start_from: what the eyes start from, as `build_encoder` takes it. changes: `FIELD=VALUE`, of
    the configs of all trainings of the decoder.
    """

    flickr: Path
    everyday: Path
    teachers: Path
    start_from: str = IMAGENET
    precision: str = "bfloat16"
    changes: tuple[str, ...] = ()

    def resolved(self) -> Inputs:
        """The same with whole paths."""
        named = self.start_from in NAMED
        return replace(
            self,
            flickr=Path(real_path(self.flickr)),
            everyday=Path(real_path(self.everyday)),
            teachers=Path(real_path(self.teachers)),
            start_from=self.start_from if named else real_path(self.start_from),
        )


def steps_of(inputs: Inputs, out: Path) -> list[Step]:
    """All steps, in order."""
    tables, maps, words, mean, confidence = (
        out / name for name in ("tables", "teacher_maps", "words", "mean", "confidence")
    )
    photos = ["--flickr", str(inputs.flickr), "--everyday", str(inputs.everyday)]
    teachers = ["--teachers", str(inputs.teachers)]
    precision = ["--precision", inputs.precision]
    people = tables / "people.jsonl"

    def script(*command: object) -> list[str]:
        name, *options = map(str, command)
        return [str(SCRIPTS / name), *options]

    def changes(weights: Path, features: Path, *more: str) -> list[str]:
        return [
            f"data.annotations={people}",
            f"data.validation_annotations={tables / 'validation.jsonl'}",
            f"data.instances={tables / 'instances.json'}",
            f"encoder.weights={weights}",
            f"features.folder={features}",
            *(f"{section}.precision={inputs.precision}" for section in ("training", "features")),
            *(*more, *inputs.changes),
        ]

    def train(folder: Path, config: str, changed: list[str]) -> list[str]:
        return [
            *("-m", "captioner", "train", str(CONFIGS / f"{config}.yaml")),
            *(f"--set={change}" for change in changed),
            *("--out", str(folder)),
        ]

    def go_on(
        folder: Path, config: str, source: Path, seen: tuple[Path, Path], *more: str
    ) -> list[str]:
        changed = changes(*seen, f"start_from={source / 'model'}", *more)
        return train(folder, f"default_model_{config}", changed)

    of_teachers = changes(maps / "stand_in.safetensors", maps / "store")
    steps = [
        Step(
            "tables",
            "captions are retrieved for photos without captions",
            script("tables.py", *photos, *teachers, *precision, "--out", tables),
            (EVALUATION,),
        ),
        Step(
            "teacher_maps",
            "what the teachers see in people's photos is stored",
            script(
                *("teacher_features.py", CONFIGS / "default_model.yaml", *teachers, *precision),
                *("--scales", tables / SCALES, "--set", *of_teachers),
            ),
            (),
        ),
        Step(
            "words",
            "a decoder learns to caption what the teachers see",
            train(words, "default_model", of_teachers),
        ),
    ]
    start, epochs, models = inputs.start_from, 5, []
    for again in ("", "_again"):
        eyes, fine_tuning, self_critical, truthful = (
            out / f"{name}{again}" for name in ("eyes", "fine_tuning", "self_critical", "truthful")
        )
        seen = (eyes / "model", out / f"features{again}")
        steps += [
            Step(
                eyes.name,
                "a VGG-11 learns to see what they see, and that decoder to say the same of it",
                script(
                    *("distill.py", *photos, *teachers, "--boxes", tables),
                    *("--words", words / "model", "--captions", tables / "all.jsonl"),
                    *("--start-from", start, "--context", 2, 4, "--freeze", 2),
                    *("--epochs", epochs, *precision, "--out", eyes),
                ),
            ),
            Step(
                fine_tuning.name,
                "the decoder goes on with what these eyes see and with people's captions",
                go_on(fine_tuning, "fine_tuning", eyes, seen),
            ),
            Step(
                self_critical.name,
                "its own captions are rewarded by CIDEr-D and by true words",
                go_on(self_critical, "self_critical", fine_tuning, seen),
            ),
            Step(
                truthful.name,
                "the same again, with another seed and twice the reward of true words",
                go_on(
                    *(truthful, "self_critical", fine_tuning, seen, "training.seed=2"),
                    "objective.self_critical.word_precision_weight=1.0",
                ),
            ),
        ]
        start, epochs = str(eyes / "model"), 4
        models += [str(self_critical / "model"), str(truthful / "model")]
    return [
        *steps,
        Step(
            "mean",
            "the weights of the four are averaged",
            ["-m", "captioner", "average", *models, "--out", str(mean / "model")],
            (),
        ),
        Step(
            "confidence",
            "a copy of it gets a confidence, calibrated on both worlds",
            [
                *("-m", "captioner", "calibrate", "--model", str(confidence / "model")),
                *("--format", "table", "--annotations", str(people)),
                *("--split", "flickr", "everyday", "--training-split", "train"),
                *("--training-photos", "1000", "--unsure-below", "0.45"),
                *("--json", str(confidence / CALIBRATION)),
            ],
            (CALIBRATION,),
            mean / "model",
        ),
    ]


def of_run(file: Path) -> str:
    """The scores of the best validation of a run, from its log.

    Raises `UserError` where there is no log, or one without scores.
    """
    records = []
    for number, line in enumerate(read_text(file, "run log").splitlines(), start=1):
        try:
            records.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            raise UserError(f"run log {file}: line {number} is not a record in JSON") from None
    judged = [record for record in records if {"CIDEr-D", "mean"} & record.keys()]
    if not judged:
        raise UserError(f"run log {file} has no scores of validation photos")
    try:
        best = max(judged, key=lambda record: float(record.get("CIDEr-D", record.get("mean"))))
        found = ", ".join(f"{name} {best[name]:.3f}" for name in SCORES if name in best)
        return f"epoch {best['epoch']} of {records[-1]['epoch']}: {found}"
    except (KeyError, TypeError, ValueError):
        raise UserError(f"run log {file} has scores that are not numbers of an epoch") from None


def of_evaluation(file: Path) -> str:
    """What `captioner evaluate --json` wrote. Raises `UserError` as `read_json` does."""
    scores = read_json(file, "scores")
    names = ("BLEU-4", "CIDEr-D", "word-precision", "captions with none")
    return _shown(file, lambda: ", ".join(f"{name} {scores[name]:.3f}" for name in names))


def of_calibration(file: Path) -> str:
    """What `captioner calibrate --json` wrote. Raises `UserError` as `read_json` does."""
    found = read_json(file, "calibration")
    return _shown(
        file,
        lambda: "; ".join(
            f"{name}: confidence {split['expected']:.3f} where {split['observed']:.3f} is true, "
            f"not sure of {split['unsure']:.1%} of photos"
            for name, split in found["splits"].items()
        ),
    )


def _shown(file: Path, show: Callable[[], str]) -> str:
    try:
        return show()
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{file} does not hold the figures of this step") from None


FIGURES = {RUN: of_run, EVALUATION: of_evaluation, CALIBRATION: of_calibration}
"""What reads each kind of file that a step leaves its figures in."""


def figures(step: Step, folder: Path) -> str:
    """What a step gave on validation photos. Raises `UserError` where it left no such figures."""
    return "; ".join(FIGURES[name](folder / name) for name in step.figures)


def described(step: Step) -> str:
    """What a step does, in a line, whatever Python does it and wherever the repository lies."""
    return shlex.join(step.command).replace(f"{SCRIPTS.parents[1]}/", "") + "\n"


def copy_model(source: Path, target: Path) -> None:
    """Copy a model folder, whole or not at all. Raises `UserError` where that cannot be done."""
    if not source.is_dir():
        raise UserError(f"model folder {source} does not exist")
    with atomic_folder(target) as temporary:
        for file in sorted(path for path in source.iterdir() if path.is_file()):
            write_bytes(temporary / file.name, file.read_bytes())


def time_of(step: Step, wanted: Step, record: Path) -> str:
    """How long a step took, from its record, whose first line says it.

    wanted: the step with the whole paths of data and teachers, and `OUT` for the folder of runs.
    Raises `UserError` where the record is of something else than what is wanted.
    """
    first, _, recorded = read_text(record, "record of a step").partition("\n")
    if not recorded:
        raise UserError(
            f"{record} does not say what was done; delete it, and the step goes on where it was"
        )
    if recorded != described(wanted):
        raise UserError(
            f"step {step.name} was {record.stem} with other data, teachers or settings than are "
            f"asked for now (see {record}); give those, another --out, or delete {record.parent}"
        )
    return first


def do(step: Step, wanted: Step, out: Path) -> None:
    """Do a step, unless it is done.

    wanted: as `time_of` takes it; what is recorded. Time is added up over all beginnings, but for
    what a kill that no program can catch cuts off.
    Raises `UserError` where its program fails, and where another such step was begun or done.
    """
    folder = out / step.name
    done, begun = folder / DONE, folder / BEGUN
    print(f"{step.name}: {step.purpose}", flush=True)
    if not done.exists():
        before = 0.0
        if begun.exists():
            had = time_of(step, wanted, begun)
            try:
                before = float(had.removesuffix(" seconds"))
            except ValueError:
                raise UserError(f"{begun} begins with {had!r}, which are no seconds") from None
        start = time.monotonic()
        spent = before
        write_text(begun, f"{spent:.1f} seconds\n{described(wanted)}")
        try:
            run_command(step, folder)
        finally:
            spent = before + time.monotonic() - start
            write_text(begun, f"{spent:.1f} seconds\n{described(wanted)}")
        figures(step, folder)  # A step that leaves none is not done.
        write_text(done, f"{spent / 60:.0f} minutes\n{described(wanted)}")
        begun.unlink()
    taken = time_of(step, wanted, done)
    print("  " + "; ".join(filter(None, (figures(step, folder), taken))), flush=True)


def run_command(step: Step, folder: Path) -> None:
    """Run what a step consists of. Raises `UserError` where a program fails."""
    if step.copied is not None:
        if not (step.copied.parent / DONE).is_file():  # Of one under way it is the best so far.
            raise UserError(f"step {step.name} needs the model of step {step.copied.parent.name}")
        # What a stopped calibration leaves may be half changed.
        shutil.rmtree(folder / "model", ignore_errors=True)
        copy_model(step.copied, folder / "model")
    command = [sys.executable, *step.command]
    if "--out" in command and (folder / "last.safetensors").exists():
        command.append("--resume")
    print("  " + shlex.join(command), flush=True)
    code = subprocess.run(command).returncode
    if code:
        raise UserError(f"step {step.name} ended with exit code {code}; see what it said above")


def main() -> None:
    """Build."""
    parser = folder_parser(__doc__, teachers="folder of the teachers", out="folder of the runs")
    parser.add_argument(
        "--start-from",
        default=IMAGENET,
        metavar="WEIGHTS",
        help="of the eyes: imagenet (the default), random, a weights file or a model folder",
    )
    add_precision(parser, "bfloat16")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="FIELD=VALUE",
        help="change a field of the decoder's configs; may be repeated",
    )
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these steps only")
    arguments = parser.parse_args()
    inputs = Inputs(
        *(arguments.flickr, arguments.everyday, arguments.teachers, arguments.start_from),
        *(arguments.precision, tuple(arguments.changes)),
    )
    steps = steps_of(inputs, arguments.out)
    recorded = steps_of(inputs.resolved(), Path("OUT"))
    names = [step.name for step in steps]
    for name in arguments.only or []:
        if name not in names:
            raise UserError(f"--only {name} is not one of {', '.join(names)}")
    for step, wanted in zip(steps, recorded, strict=True):
        if arguments.only is None or step.name in arguments.only:
            do(step, wanted, arguments.out)
    last, model = arguments.out / steps[-1].name, arguments.out / "model"
    if not (last / DONE).exists():
        return
    if model.is_dir() and any(model.iterdir()):  # Someone may have given it a card.
        print(f"the model is in {model}, as it was")
        return
    copy_model(last / "model", model)
    print(f"the model is in {model}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
