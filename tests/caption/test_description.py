from __future__ import annotations

from pathlib import Path

from captioner.caption import load_model
from captioner.caption.folder import describe
from captioner.cpu import choose_precision
from captioner.devices import choose_device


def test_a_model_is_described_with_its_sizes_and_card(tiny_model: Path) -> None:
    captioner = load_model(tiny_model)
    lines = describe(captioner, tiny_model).splitlines()
    assert lines[0].split() == ["model", "folder", str(tiny_model)]
    size = (tiny_model / "model.safetensors").stat().st_size
    assert lines[1] == f"weights        {size / 1e6:.1f} MB, checked: as when saved, by digest"
    assert lines[2].split() == ["vocabulary", f"{len(captioner.vocabulary)}", "words"]
    device = choose_device()
    kind = str(choose_precision("auto", device)).removeprefix("torch.")
    assert lines[3] == f"runs on        {device}, in {kind}"
    count = sum(parameter.numel() for parameter in captioner.decoder.parameters())
    assert f"decoder        {count:,} parameters" in lines
    assert "  hidden_size: 12" in lines
    assert "  name: vgg11_bn" in lines
    assert "  size: 64" in lines
    assert "  beam: 3" in lines
    assert lines[-1] == captioner.card


def test_of_a_long_card_the_start_is_shown(tiny_model: Path) -> None:
    card = "---\nlicense: mit\n---\n\n# A model\n\nIt sees.\n\n## Data\n\nMany photos.\n"
    (tiny_model / "README.md").write_text(card)
    described = describe(load_model(tiny_model), tiny_model)
    assert "license" not in described
    assert described.endswith(
        f"\n\n# A model\n\nIt sees.\n\n(the whole card: {tiny_model / 'README.md'})"
    )
