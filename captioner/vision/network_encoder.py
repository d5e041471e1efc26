"""Encoders of other libraries: any network with a feature map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from captioner.errors import UserError, did_you_mean, near_names
from captioner.vision.encoder import Encoder, EncoderConfig
from captioner.vision.preprocessing import Preprocessing

LONGEST = 1_024
"""The largest L."""


class NetworkConfig(EncoderConfig):
    """A network by its name in a library, behind the name of the library: `timm/resnet101`."""

    @property
    def library_name(self) -> str:
        """Its name in the library."""
        return self.name.partition("/")[2]


class NetworkEncoder(Encoder):
    """A network cut behind its last feature map.

    D and L are measured, without computing.
    """

    stages = 10
    config: NetworkConfig

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self._shapes: dict[tuple[int, int], tuple[int, int, int]] = {}
        # Not on `meta`: buffers that are not saved would stay there.
        with torch.device("cpu"):
            self.network = self.make_network()
        size = self.published_preprocessing(config).size
        self.annotation_size = self._measure(size, size)[0]

    @abstractmethod
    def make_network(self) -> nn.Module:
        """The network with random weights. Raises `UserError` if it has no feature map."""

    @classmethod
    @abstractmethod
    def published_preprocessing(cls, config: Any) -> Preprocessing:
        """The preprocessing of the published weights. Raises `UserError` for an unknown name."""

    @abstractmethod
    def feature_map(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> (B, D, rows, columns)."""

    def forward(self, images: Tensor, flatten: bool = True) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, D).

        flatten: without it, (B, D, rows, columns).
        """
        feature_map = self.feature_map(images)
        return feature_map.flatten(start_dim=2).transpose(1, 2) if flatten else feature_map

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns. Raises `UserError` for L above 1,024 and a size that it cannot read."""
        size, rows, columns = self._measure(height, width)
        if rows * columns > LONGEST:
            raise UserError(
                f"{self.config.name} makes {rows} x {columns} annotation vectors of an image of "
                f"{height} x {width} pixels, {rows * columns * size * 2:,} bytes in a feature "
                f"store; at most {LONGEST:,} are supported: lower preprocessing.size"
            )
        return rows, columns

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a file in the library's names, or of a model folder."""
        names = {name: f"network.{name.removeprefix('encoder.network.')}" for name in state}
        own = self.state_dict().keys()
        return {new: state[old] for old, new in names.items() if new in own}

    @torch.no_grad()
    def _measure(self, height: int, width: int) -> tuple[int, int, int]:
        """D, rows and columns of an image's feature map, by a pass on the device `meta`."""
        if (height, width) not in self._shapes:
            tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
            on_meta = {name: tensor.to("meta") for name, tensor in tensors.items()}
            dtype = next(self.parameters()).dtype
            try:
                with torch.device("meta"):
                    images = torch.zeros(2, 3, height, width, dtype=dtype)
                    options = {"flatten": False}
                    # Untied, or a layer with two names would stay on `meta`.
                    call = partial(torch.func.functional_call, self, tie_weights=False)
                    shape = call(on_meta, images, options).shape
            except Exception as error:  # Networks raise many types of errors.
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UserError(
                    f"{self.config.name} cannot read images of {height} x {width} pixels ({reason})"
                ) from None
            if len(shape) != 4:
                raise UserError(f"{self.config.name} has no spatial feature map")
            self._shapes[height, width] = (shape[1], shape[2], shape[3])
        return self._shapes[height, width]


def check_name(config: NetworkConfig, known: Iterable[str]) -> None:
    """Raise `UserError` with the five nearest names unless the library knows the name."""
    known = sorted(known)
    if config.library_name not in known:
        library = config.name.partition("/")[0]
        near = near_names(config.library_name, known, count=5, cutoff=0)
        nearest = did_you_mean([f"{library}/{name}" for name in near])
        raise UserError(f"{library} has no network {config.library_name!r}{nearest}")
