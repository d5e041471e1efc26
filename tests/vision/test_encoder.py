"""Any encoder that follows the protocol captions and fills a feature store."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field
from samples import make_captioner, save_photo
from torch import Tensor, nn

import captioner
from captioner.errors import UserError
from captioner.runs.read_recipe import read_recipe
from captioner.runs.run import train_run
from captioner.vision import encoders
from captioner.vision.encoder import Encoder, EncoderConfig


class PatchConfig(EncoderConfig):
    name: Literal["patches"] = "patches"
    patch: int = Field(32, ge=1)


class PatchEncoder(Encoder):
    """A linear projection of each patch."""

    annotation_size = 24
    stages = 1
    config: PatchConfig

    def __init__(self, config: PatchConfig) -> None:
        super().__init__(config)
        self.project = nn.Conv2d(3, 24, kernel_size=config.patch, stride=config.patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.project(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        return height // self.config.patch, width // self.config.patch

    def pretrained_weights(self) -> dict[str, Tensor]:
        raise UserError("patches have no ImageNet weights")


@pytest.fixture(autouse=True)
def _patches(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*encoders.FAMILIES, encoders.Family(PatchEncoder, PatchConfig)]
    monkeypatch.setattr(encoders, "FAMILIES", rows)


CONFIG = """
data: {format: shapes, shapes: {train: 4, validation: 2}}
minimum_count: 1
preprocessing: {size: 64, resize: squash}
encoder: {name: patches, patch: 16, weights: random, train: true}
decoder: {memory_size: 24, embedding_size: 8, hidden_size: 8, attention_size: 8}
training: {epochs: 1, batch_size: 20}
search: {beam: 1, maximum_length: 4}
"""


def test_a_config_trains_saves_and_loads_any_family(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    folder = train_run(read_recipe(tmp_path / "config.yaml"), tmp_path / "run")
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert saved["encoder"] == {"name": "patches", "patch": 16}
    model = captioner.load(folder)
    assert isinstance(model.encoder, PatchEncoder)
    caption = model.caption([save_photo(tmp_path / "photo.png")])[0]
    assert caption.attention.shape == (len(caption.words), 4, 4)
    with pytest.raises(UserError, match="memory_size 512 is not 24"):
        replace(make_captioner(), encoder=model.encoder)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("{name: patchs}", "encoder.name 'patchs' is not one of .*; did you mean 'patches'"),
        ("{name: patches, width: 0.5}", "unknown field 'encoder.width'"),
        ("{name: patches, train: true, train_from: 2}", "encoder.train_from 2 is not at most 1"),
    ],
)
def test_the_name_chooses_the_fields(tmp_path: Path, encoder: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(f"data: {{format: shapes}}\nencoder: {encoder}")
    with pytest.raises(UserError, match=message):
        read_recipe(tmp_path / "config.yaml")
