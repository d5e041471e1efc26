"""Features of a recipe by several processes: the same rows as by one, whatever happens to them."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from samples import save_photo

from captioner.errors import UserError
from captioner.runs import feature_extraction, feature_workers
from captioner.runs.annotation_rows import StoredRows
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_workers import default_processes, store_recipe_features
from captioner.schema import from_mapping
from captioner.vision.feature_store import FeatureStore, read_states

PHOTOS = {"train": 6, "val": 2}


@pytest.fixture
def mapping(tmp_path: Path) -> dict[str, object]:
    """A recipe of eight small photos, six of them to train on, mirrored as well."""
    lines = []
    for split, count in PHOTOS.items():
        for number in range(count):
            name = f"{split}{number}.png"
            save_photo(tmp_path / "photos" / name, seed=len(lines))
            lines.append(json.dumps({"image": name, "caption": "a photo", "split": split}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return {
        "data": {
            "format": "table",
            "annotations": str(tmp_path / "captions.jsonl"),
            "images": str(tmp_path / "photos"),
        },
        "preprocessing": {"size": 32, "resize": "squash"},
        "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "random"},
        "features": {"folder": str(tmp_path / "store"), "mirror": True, "batch_size": 2},
    }


def recipe_in(mapping: dict[str, object], folder: Path | None = None) -> CaptioningRecipe:
    features = {**mapping["features"]}  # type: ignore[dict-item]
    if folder is not None:
        features["folder"] = str(folder)
    return from_mapping(CaptioningRecipe, {**mapping, "features": features}, "recipe")


def wait_for(condition: Callable[[], object], running: Callable[[], object]) -> None:
    """Wait until the condition holds, which it must while something is still running."""
    end = time.monotonic() + 120
    while not condition():
        assert running()
        assert time.monotonic() < end
        time.sleep(0.02)


def done_rows(folder: Path) -> int:
    """How many rows of the training photos are done."""
    return int(numpy.count_nonzero(read_states(folder / "train", 12)))


def command(mapping: dict[str, object], tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    (tmp_path / "config.json").write_text(json.dumps(mapping))  # JSON is YAML.
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "captioner", "features", str(tmp_path / "config.json")),
            *("--device", "cpu", *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def children(process: int) -> list[int]:
    """The spawned processes of a process, but for the one that Python starts to clean up."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [
        int(child)
        for child in listed
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text(errors="replace")
    ]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_the_command_stops_its_workers_and_keeps_what_is_done(
    mapping: dict[str, object], tmp_path: Path, number: signal.Signals
) -> None:
    with command(mapping, tmp_path, "--processes", "2") as run:
        wait_for(lambda: len(children(run.pid)) == 2, lambda: run.poll() is None)
        workers = children(run.pid)
        os.kill(workers[0], signal.SIGSTOP)
        wait_for(lambda: done_rows(tmp_path / "store") == 6, lambda: run.poll() is None)
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # As a terminal does: every process gets it.
        else:
            run.send_signal(number)
        if number == signal.SIGKILL:
            run.wait(60)
        os.kill(workers[0], signal.SIGCONT)
        output, errors = run.communicate(timeout=60)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), lambda: True)
    assert output == ""
    if number == signal.SIGKILL:
        assert run.returncode == -number
    else:
        assert run.returncode == 130
        assert errors.splitlines()[-1] == "captioner: interrupted"
    assert "Traceback" not in errors
    assert 6 <= done_rows(tmp_path / "store") < 12


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc here")
def test_a_killed_worker_is_reported_and_the_next_run_equals_one_by_one_process(
    mapping: dict[str, object], tmp_path: Path
) -> None:
    with command(mapping, tmp_path, "--processes", "2") as run:
        wait_for(lambda: len(children(run.pid)) == 2, lambda: run.poll() is None)
        worker = children(run.pid)[0]
        os.kill(worker, signal.SIGSTOP)
        wait_for(lambda: done_rows(tmp_path / "store") == 6, lambda: run.poll() is None)
        os.kill(worker, signal.SIGKILL)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 2
    assert errors.splitlines()[-1] == (
        "captioner: a process of the extraction was ended by signal 9; what was done is kept: run "
        "the same command again to go on"
    )
    with pytest.raises(UserError, match="unfinished: 6 of 12"):
        FeatureStore(tmp_path / "store" / "train")
    stores = store_recipe_features(recipe_in(mapping), processes=2)
    alone = store_recipe_features(recipe_in(mapping, tmp_path / "alone"))
    assert stores.keys() == alone.keys()
    for name, store in stores.items():
        rows = range(len(store))
        assert store.record == alone[name].record
        assert torch.equal(store.read(rows), alone[name].read(rows))


@pytest.mark.slow
def test_two_commands_at_once_make_one_store(mapping: dict[str, object], tmp_path: Path) -> None:
    with command(mapping, tmp_path, "--processes", "2") as first:
        second = command(mapping, tmp_path)
        outputs = [run.communicate(timeout=120) for run in (first, second)]
    for run, (output, errors) in zip((first, second), outputs, strict=True):
        assert run.returncode == 0, errors
        for line in ("train: 12 images in", "validation: 2 images in"):
            assert line in output
        assert "Traceback" not in errors
    alone = store_recipe_features(recipe_in(mapping, tmp_path / "alone"))
    for name, store in alone.items():
        rows = range(len(store))
        assert torch.equal(FeatureStore(tmp_path / "store" / name).read(rows), store.read(rows))


@pytest.mark.slow
def test_what_a_worker_refuses_is_one_sentence(
    mapping: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos" / "train4.png").write_bytes(b"no photo")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(UserError, match=r"train4\.png"):
        store_recipe_features(recipe_in(mapping), processes=2)
    assert multiprocessing.active_children() == []
    mapping["data"] = {**mapping["data"], "on_problem": "skip"}  # type: ignore[dict-item]
    store = store_recipe_features(recipe_in(mapping), processes=2)["train"]
    assert store.unreadable == {4, 10}
    assert "features: 14/14 images" in stream.getvalue()


def test_photos_loaded_ahead_for_a_gpu_give_the_same_rows(
    mapping: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = store_recipe_features(recipe_in(mapping, tmp_path / "alone"))
    monkeypatch.setattr(feature_extraction, "loading_workers", lambda device, ranks: 2)
    ahead = store_recipe_features(recipe_in(mapping))
    for name, store in alone.items():
        rows = range(len(store))
        assert torch.equal(ahead[name].read(rows), store.read(rows))
    (tmp_path / "photos" / "train4.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match=r"train4\.png"):
        store_recipe_features(recipe_in(mapping, tmp_path / "refused"))
    mapping["data"] = {**mapping["data"], "on_problem": "skip"}  # type: ignore[dict-item]
    store = store_recipe_features(recipe_in(mapping, tmp_path / "refused"))["train"]
    assert store.unreadable == {4, 10}


def test_there_is_a_process_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert default_processes(torch.device("cuda")) == 3
    assert default_processes(torch.device("cuda:1")) == 1
    assert default_processes(torch.device("cpu")) == 1
    devices = [str(feature_workers._device_of(torch.device("cuda"), number)) for number in range(4)]
    assert devices == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert feature_workers._device_of(torch.device("cuda:1"), 2) == torch.device("cuda:1")


def test_rows_are_of_the_type_asked_for(mapping: dict[str, object]) -> None:
    store = store_recipe_features(recipe_in(mapping))["train"]
    rows = torch.tensor([3, 0])
    assert StoredRows(store).read(rows).dtype == torch.float32
    half = StoredRows(store, torch.float16).read(rows)
    assert half.dtype == torch.float16
    assert torch.equal(half.float(), store.read([3, 0]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_fills_a_store_as_a_cpu_does(mapping: dict[str, object], tmp_path: Path) -> None:
    alone = store_recipe_features(recipe_in(mapping, tmp_path / "alone"))
    both = store_recipe_features(recipe_in(mapping), "cuda", processes=2)
    for name, store in alone.items():
        rows = range(len(store))
        torch.testing.assert_close(both[name].read(rows), store.read(rows), rtol=0.02, atol=0.02)


@pytest.mark.slow
def test_a_photo_that_one_of_several_trainings_cannot_read_ends_all_soon(
    mapping: dict[str, object], tmp_path: Path
) -> None:
    """Nobody writes the rows of that process; the other does not wait for them."""
    (tmp_path / "photos" / "train3.png").write_bytes(b"no photo")
    (tmp_path / "config.json").write_text(json.dumps(mapping), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "captioner", "train"]
    command += [str(tmp_path / "config.json"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    path = str(Path(feature_workers.__file__).parents[2])
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode != 0
    said = [line for line in ended.stderr.splitlines() if line.startswith("captioner: ")]
    assert len(said) == 1, ended.stderr
    assert "train3.png" in said[0]
