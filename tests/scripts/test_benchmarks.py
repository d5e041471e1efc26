"""The benchmarks run, on small layers, models and photos; what they time is right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from samples import save_photo
from scripts_samples import ROOT

from captioner.errors import UserError

FEW = (50, 4, 8, 2)
"""Sizes of translation: words, length, tokens of a step, sentences."""


def test_the_cost_of_layers_against_length(capsys: pytest.CaptureFixture[str]) -> None:
    import benchmark_length
    import benchmark_machine

    machine = benchmark_machine.Machine(torch.device("cpu"), 1)
    benchmark_length.report(machine, (16, 32), 16)
    said = capsys.readouterr().out
    assert said.index("forward, ms") < said.index("training, ms")
    rows = [line.split() for line in said.splitlines() if line.split()[:1] in (["16"], ["32"])]
    assert [row[0] for row in rows] == ["16", "32"] * 2
    for first, second in (rows[:2], rows[2:]):
        assert first[2::2][:3] == ["1.0"] * 3
        assert all(float(second[column]) >= 0 for column in (1, 3, 5))
        # Of self-attention, with d = 16, from 4 n d^2 + 2 n^2 d: 6 / 4 that of n = 16 by n / 16.
        assert (first[-3:], second[-3:]) == (["1.0"] * 3, ["2.0", "2.0", "2.7"])


@pytest.mark.parametrize("name", ["recurrent", "convolution", "self-attention"])
def test_a_layer_looks_at_the_places_it_should(name: str) -> None:
    import benchmark_length

    layer = benchmark_length.make_layers(16)[name]
    vectors = torch.randn(2, 9, 16, requires_grad=True)
    outputs = layer.forward(vectors)
    assert outputs.shape == vectors.shape
    outputs[0, 4].sum().backward()
    seen = vectors.grad.abs().sum(dim=2).nonzero().tolist()  # (B, S): of which places
    places = {"recurrent": range(5), "convolution": range(3, 6), "self-attention": range(9)}
    assert seen == [[0, place] for place in places[name]]


@pytest.mark.slow
def test_tokens_a_second_of_every_translation_model(capsys: pytest.CaptureFixture[str]) -> None:
    import benchmark_machine
    import benchmark_translation

    machine = benchmark_machine.Machine(torch.device("cpu"), 1)
    configs = benchmark_translation.CONFIGS
    assert len(configs) >= 8
    benchmark_translation.report(machine, configs, benchmark_translation.Sizes(*FEW))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[0] for row in rows] == [config.stem for config in configs]
    for row in rows:
        assert int(row[3].replace(",", "")) > 0
        assert int(row[-4].replace(",", "")) > 0


def test_a_config_that_does_not_say_how_many_tokens_it_has_is_not_timed() -> None:
    import benchmark_translation

    with pytest.raises(UserError, match=r"numbers\.yaml is not of a translator of subwords"):
        benchmark_translation.Translation(None, ROOT / "configs/numbers.yaml", None)


@pytest.mark.slow
def test_the_benchmark_prints_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import benchmark

    options = ["--repeat", "2", "--only", "translation", "photo", "loading", "store"]
    options += ["--configs", f"{ROOT}/configs/multi30k_en_de_luong_dot.yaml", "--sentences", "2"]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *options])
    benchmark.main()
    *_, photo, loading, store, gap, title, sizes, _, _, speeds = capsys.readouterr().out.split(
        "\n"
    )[:-1]
    assert float(photo.removeprefix("one photo, warm")) > 0
    assert float(loading.removeprefix("loading, after import torch")) > 0
    assert store.startswith("reading the store")
    assert store.endswith("  the same")
    assert (gap, title) == ("", "translation")
    assert "; 2 decoded at once" in sizes
    assert speeds.startswith("multi30k_en_de_luong_dot ")


def test_an_unknown_measurement_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmark

    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--only", "nothing"])
    with pytest.raises(UserError, match=r"nothing.*is not one of .*training-float32.*, length"):
        benchmark.main()


def test_the_speed_of_captioning_and_what_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import benchmark_captioning

    photos = [save_photo(tmp_path / f"{number}.jpg", number) for number in range(2)]
    benchmark_captioning.time_encoders(photos)
    benchmark_captioning.time_large_photos(photos[:1])
    header, saved, *ways, whole, reduced, changed = capsys.readouterr().out.splitlines()
    assert header.split()[0] == "encoder"
    assert saved.split()[:2] == ["as", "saved"]
    assert saved.endswith("0 of 2")
    assert [line.split()[0] for line in ways] == ["float32", "bfloat16"]
    assert whole.startswith("12 megapixels, whole")
    assert reduced.startswith("12 megapixels, reduced")
    assert changed.endswith(" of 1")


def test_the_machine_is_named_and_runs_are_interleaved() -> None:
    import benchmark
    import benchmark_machine

    done: list[str] = []
    machine = benchmark_machine.Machine(torch.device("cpu"), 2)
    times, _ = machine.seconds(lambda: done.append("plain"), lambda: done.append("ours"))
    assert done == ["plain", "ours"] * 3  # Once to warm up.
    assert [len(each) for each in times] == [2, 2]
    result = benchmark.Result("x", [4.0, 9.0, 4.0], [2.0, 3.0, 1.0], 1.0)
    assert "4000.0    2000.0    3.0 (2.0 to 4.0)    1000.0    0.50" in str(result)
    named = benchmark_machine.described(torch.device("cpu"))
    assert torch.backends.cpu.get_cpu_capability() in named
    assert f"{torch.get_num_threads()} thread" in named
