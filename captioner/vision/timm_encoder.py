"""Encoders of timm: https://huggingface.co/docs/timm."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.vision.network_encoder import NetworkConfig, NetworkEncoder, check_name
from captioner.vision.preprocessing import Preprocessing


class TimmConfig(NetworkConfig):
    """A network of timm."""

    name: str = Field(description='timm/ and a name of timm\'s, which needs `"captioner[timm]"`')


class TimmEncoder(NetworkEncoder):
    """A network of timm, without its class and register tokens.

    Its final normalisation, if it has one before the pooling, is applied.
    """

    config: TimmConfig

    def make_network(self) -> nn.Module:
        """The network, pruned."""
        network: nn.Module = self._create(pretrained=False)
        if not hasattr(network, "forward_intermediates"):
            raise UserError(f"{self.config.name} has no spatial feature map")
        self._has_norm = hasattr(network, "norm")
        prune: Any = network.prune_intermediate_layers
        self._last = prune([-1], prune_norm=not self._has_norm)
        return network

    def feature_map(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> (B, D, rows, columns)."""
        network: Any = self.network
        (feature_map,) = network.forward_intermediates(
            images,
            indices=self._last,
            norm=self._has_norm,
            output_fmt="NCHW",
            intermediates_only=True,
        )
        return feature_map  # type: ignore[no-any-return]

    @classmethod
    def published_preprocessing(cls, config: Any) -> Preprocessing:
        """As timm evaluates the network."""
        timm = _timm(config)
        published = timm.get_pretrained_cfg(config.library_name).to_dict()
        data = timm.data.resolve_data_config(pretrained_cfg=published)
        size = data["input_size"][-1]
        return Preprocessing(
            size=size,
            resize="crop" if data["crop_mode"] == "center" else "squash",
            resize_shorter=math.floor(size / data["crop_pct"]),
            mean=data["mean"],
            standard_deviation=data["std"],
            interpolation=data["interpolation"],
        )

    def pretrained_weights(self) -> dict[str, Tensor]:
        """Timm's, downloaded on first use. Raises `UserError` without a network connection."""
        try:
            state: dict[str, Tensor] = self._create(pretrained=True).state_dict()
        except Exception as error:  # Any error of the network or of a damaged file.
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UserError(
                f"the weights of {self.config.name} could not be downloaded ({reason}); run this "
                "once with a network connection, or give a weights file with timm's names by path"
            ) from None
        return state

    def _create(self, pretrained: bool) -> Any:
        create = partial(
            _timm(self.config).create_model, self.config.library_name, pretrained=pretrained
        )
        try:
            return create(dynamic_img_size=True)  # Position embeddings for images of any size.
        except TypeError:  # It has none.
            return create()


def _timm(config: NetworkConfig) -> Any:
    """The package. Raises `UserError` if it is missing or does not know the name."""
    try:
        import timm
    except ImportError:
        raise UserError(
            f'the encoder {config.name} needs the package timm: pip install "captioner[timm]"'
        ) from None
    check_name(config, {*timm.list_models(), *timm.list_pretrained()})
    return timm
