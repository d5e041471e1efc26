"""The benchmarks run, on small layers, models and photos; what they time is right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from samples import save_photo
from scripts_samples import ROOT, run

from captioner.errors import UserError


@pytest.fixture
def benchmark_length(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark_length

    return benchmark_length


def test_the_cost_of_layers_against_length(tmp_path: Path) -> None:
    said = run(tmp_path, f"{ROOT}/scripts/benchmark_length.py", "--quick", "--json", "costs.json")
    assert "forward, ms" in said
    assert "training, ms" in said
    costs = json.loads((tmp_path / "costs.json").read_text())
    found = {(cost["work"], cost["layer"], cost["length"]): cost for cost in costs}
    layers = ("recurrent", "convolution", "self-attention")
    wanted = {(w, la, n) for w in ("forward", "training") for la in layers for n in (16, 32)}
    assert found.keys() == wanted
    assert len(costs) == len(wanted)
    for (work, layer, length), cost in found.items():
        first = found[work, layer, 16]
        assert cost["seconds"] > 0
        assert cost["ratio"] == pytest.approx(cost["seconds"] / first["seconds"])
        # Of self-attention, with d = 16, from 4 n d^2 + 2 n^2 d: 6 / 4 that of n = 16 by n / 16.
        expected = {16: 1.0, 32: 8 / 3 if layer == "self-attention" else 2.0}[length]
        assert cost["by_products"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "12"], "--size 12 cannot be divided among 8 heads"),
        (["--batch-size", "0"], "--batch-size 0 is not at least 1"),
        (["--repeat", "0"], "--repeat is not at least 1"),
    ],
)
def test_what_cannot_be_measured(
    benchmark_length: ModuleType,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark_length.py", *options])
    with pytest.raises(UserError, match=message):
        benchmark_length.main()


@pytest.mark.parametrize("layer", ["recurrent", "convolution", "self-attention"])
def test_a_layer_looks_at_the_places_it_should(benchmark_length: ModuleType, layer: str) -> None:
    torch.manual_seed(0)
    module = benchmark_length.LAYERS[layer](16)
    vectors = torch.randn(2, 9, 16, requires_grad=True)
    outputs = module(vectors)
    assert outputs.shape == vectors.shape
    outputs[0, 4].sum().backward()
    seen = vectors.grad.abs().sum(dim=2).nonzero().tolist()  # (B, S): of which places
    places = {"recurrent": range(5), "convolution": range(3, 6), "self-attention": range(9)}
    assert seen == [[0, place] for place in places[layer]]


@pytest.mark.slow
def test_tokens_a_second_of_every_translation_model(tmp_path: Path) -> None:
    said = run(
        tmp_path, f"{ROOT}/scripts/benchmark_translation.py", "--quick", "--json", "speeds.json"
    )
    speeds = json.loads((tmp_path / "speeds.json").read_text())
    configs = sorted(path.stem for path in (ROOT / "configs").glob("multi30k_en_de*.yaml"))
    assert [speed["config"] for speed in speeds] == configs
    assert len(configs) >= 8
    for speed in speeds:
        assert min(speed["training"]) > 0
        assert min(speed["decoding"]) > 0
        assert f"{speed['config']} " in said


def test_a_config_that_does_not_say_how_many_tokens_it_has_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark_machine
    import benchmark_translation

    machine = benchmark_machine.Machine(torch.device("cpu"), 1)
    with pytest.raises(UserError, match=r"numbers\.yaml is of words, and does not say how many"):
        benchmark_translation.report(machine, configs=[ROOT / "configs/numbers.yaml"])


def test_the_benchmark_of_captioning_prints_those_of_translation_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark
    import benchmark_length
    import benchmark_translation

    few = benchmark_translation.Sizes(50, 4, 8, 2)
    config = ROOT / "configs/multi30k_en_de_luong_dot.yaml"
    monkeypatch.setitem(
        benchmark.SECTIONS, "length", lambda machine: benchmark_length.report(machine, (4, 8), 2, 8)
    )
    monkeypatch.setitem(
        benchmark.SECTIONS,
        "translation",
        lambda machine: benchmark_translation.report(machine, few, [config]),
    )
    file = str(tmp_path / "found.json")
    arguments = ["benchmark.py", "--repeat", "1", "--json", file, "--only"]
    monkeypatch.setattr(sys, "argv", [*arguments, "translation", "length"])
    assert benchmark.main() == 0
    said = capsys.readouterr().out
    assert said.index("training, ms") < said.index("multi30k_en_de_luong_dot")
    found = json.loads(Path(file).read_text())
    assert [cost["layer"] for cost in found["length"]].count("recurrent") == 4
    (speed,) = found["translation"]
    assert min(speed["decoding"]) > 0
    monkeypatch.setattr(sys, "argv", [*arguments, "nothing"])
    with pytest.raises(UserError, match=r"nothing.*is not one of training.*, packaged, length"):
        benchmark.main()


@pytest.mark.slow
def test_the_packaged_model_is_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark

    file = tmp_path / "found.json"
    options = ["--repeat", "2", "--only", "packaged", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *options])
    assert benchmark.main() == 0
    found = json.loads(file.read_text())["packaged"]
    assert [(each["limit"], each["times"]) for each in found] == [(0.15, 2), (0.1, 2)]
    header, *lines = capsys.readouterr().out.splitlines()[-3:]
    assert header.split()[-4:] == ["median", "largest", "limit", "of"]
    for each, line in zip(found, lines, strict=True):
        assert 0 < each["median"] <= each["largest"]
        assert line.startswith(each["name"])
        assert line.split()[-4:-2] == [f"{each['median']:.3f}", f"{each['largest']:.3f}"]


def test_the_median_and_the_largest_of_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark_packaged

    seconds = iter([0.3, 0.1, 0.9])
    found = benchmark_packaged.timing("x", 0.5, 3, lambda: next(seconds))
    assert (found.median, found.largest, found.limit, found.times) == (0.3, 0.9, 0.5, 3)


def test_the_speed_of_captioning_and_what_it_changes(tmp_path: Path) -> None:
    for number in range(2):
        save_photo(tmp_path / "photos" / f"{number}.jpg", number)
    script = f"{ROOT}/scripts/benchmark_captioning.py"
    said = run(tmp_path, script, "photos", "--large", "1", "--only", "encoder", "large")
    _, header, saved, *ways = said.splitlines()[:5]
    assert header.split()[0] == "encoder"
    assert saved.split()[:2] == ["as", "saved"]
    assert saved.endswith("0 of 2")
    assert [line.split()[0] for line in ways] == ["float32", "bfloat16"]
    assert "12 megapixels, reduced" in said
    assert "captions changed: " in said


def test_the_machine_is_named_and_runs_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import benchmark
    import benchmark_machine

    done: list[str] = []
    machine = benchmark_machine.Machine(torch.device("cpu"), 2)
    times, _ = machine.seconds(lambda: done.append("plain"), lambda: done.append("ours"))
    assert done == ["plain", "ours"] * 3  # Once to warm up.
    assert [len(each) for each in times] == [2, 2]
    result = benchmark.Result("x", "step", [4.0, 9.0, 4.0], [2.0, 3.0, 1.0], 0, 0, 1.0, "")
    assert "4000.0    2000.0    3.0 (2.0 to 4.0)" in benchmark.line(result)
    named = benchmark_machine.described(torch.device("cpu"))
    assert torch.backends.cpu.get_cpu_capability() in named
    assert f"{torch.get_num_threads()} thread" in named
