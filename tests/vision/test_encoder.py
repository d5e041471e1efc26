"""Any encoder that follows the protocol captions and fills a feature store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from samples import make_captioner, save_photo
from torch import Tensor, nn

from captioner.caption import DecoderConfig, ShowAttendTellDecoder
from captioner.errors import UserError
from captioner.vision import encoders
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import make_encoder
from captioner.vision.vgg import VGGEncoder


@dataclass(frozen=True)
class PatchConfig:
    name: str = "patches"


class PatchEncoder(Encoder):
    """A linear projection of each 32 x 32 pixels."""

    annotation_size = 24
    stages = 1

    def __init__(self, config: PatchConfig) -> None:
        super().__init__()
        self.config = config
        self.project = nn.Conv2d(3, 24, kernel_size=32, stride=32)

    def forward(self, images: Tensor) -> Tensor:
        return self.project(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        return height // 32, width // 32

    def freeze(self, stages: int, batch_norm: bool) -> None:
        self.requires_grad_(stages == 0)

    def imagenet_weights(self) -> dict[str, Tensor]:
        raise UserError("patches have no ImageNet weights")


def test_a_captioner_takes_any_encoder(tmp_path: Path) -> None:
    plain = make_captioner()
    sizes = DecoderConfig(memory_size=24, embedding_size=8, hidden_size=12, attention_size=8)
    decoder = ShowAttendTellDecoder(sizes, len(plain.vocabulary))
    captioner = replace(plain, encoder=PatchEncoder(PatchConfig()), decoder=decoder)
    assert captioner.map_shape == (2, 2)
    caption = captioner.caption([save_photo(tmp_path / "photo.png")])[0]
    assert caption.attention.shape == (len(caption.words), 2, 2)
    with pytest.raises(UserError, match="memory_size 512 is not 24"):
        replace(plain, encoder=PatchEncoder(PatchConfig()))


def test_the_name_chooses_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_encoder(make_captioner().encoder.config), VGGEncoder)
    with pytest.raises(UserError, match="encoder name 'patches' begins with none of vgg"):
        make_encoder(PatchConfig())
    monkeypatch.setitem(encoders.FAMILIES, "patch", PatchEncoder)
    assert isinstance(make_encoder(PatchConfig()), PatchEncoder)


def test_the_digest_changes_with_every_weight_and_the_name() -> None:
    torch.manual_seed(0)
    first, second = PatchEncoder(PatchConfig()), PatchEncoder(PatchConfig("patches_b"))
    second.load_state_dict(first.state_dict())
    assert first.digest() != second.digest()
    second.config = first.config
    assert first.digest() == second.digest()
    with torch.no_grad():
        second.project.bias[3] += 1
    assert first.digest() != second.digest()
