"""Encoders of torchvision."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.vision.network_encoder import NetworkConfig, NetworkEncoder, check_name
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.torchvision_weights import torchvision_weights

_POOLINGS = {"avgpool", "adaptive_avg_pool2d", "mean"}
"""The node behind the last feature map."""

_TOKENS = "encoder.ln"
"""The node of a ViT's tokens, the class token first."""

_NORMALISE_AGAIN = {"googlenet", "inception_v3"}
"""Networks whose published weights need another preprocessing than torchvision gives."""


class TorchvisionConfig(NetworkConfig):
    """A network of torchvision."""

    name: str = Field(description="torchvision/ and a name of torchvision's classifiers")


class TorchvisionEncoder(NetworkEncoder):
    """A network of torchvision, cut before its pooling; a ViT without its class token."""

    config: TorchvisionConfig

    def make_network(self) -> nn.Module:
        """The network up to its last feature map, by torchvision's feature extractor."""
        from torchvision.models import get_model
        from torchvision.models.feature_extraction import (
            create_feature_extractor,
            get_graph_node_names,
        )
        from torchvision.ops import StochasticDepth

        name = self.config.library_name
        is_transformer = name.startswith("vit_")
        size = self.published_preprocessing(self.config).size
        options = {"image_size": size} if is_transformer else {}
        network = get_model(name, weights=None, **options)
        # As a module it keeps its mode when it is frozen.
        leaves = {"leaf_modules": [StochasticDepth]}
        nodes = get_graph_node_names(network, leaves, suppress_diff_warning=True)[1]
        ends = [before for before, after in pairwise(nodes) if after in _POOLINGS]
        if not is_transformer and not ends:
            raise UserError(f"{self.config.name} has no spatial feature map before a pooling")
        node = _TOKENS if is_transformer else ends[0]
        extractor: nn.Module = create_feature_extractor(
            network, {node: "map"}, tracer_kwargs=leaves, suppress_diff_warning=True
        )
        return extractor

    def feature_map(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> (B, D, rows, columns)."""
        features: Tensor = self.network(images)["map"]
        if features.ndim == 3:
            side = math.isqrt(features.shape[1] - 1)
            features = features[:, 1:].transpose(1, 2).reshape(len(features), -1, side, side)
        return features

    @classmethod
    def published_preprocessing(cls, config: Any) -> Preprocessing:
        """As torchvision evaluates the network."""
        import torchvision.models

        known = torchvision.models.list_models(module=torchvision.models)
        check_name(config, set(known) - _NORMALISE_AGAIN)
        weights: Any = torchvision.models.get_model_weights(config.library_name)
        transforms = weights.DEFAULT.transforms()
        return Preprocessing(
            size=transforms.crop_size[0],
            resize_shorter=transforms.resize_size[0],
            mean=tuple(transforms.mean),
            standard_deviation=tuple(transforms.std),
            interpolation=transforms.interpolation.value,
        )

    def pretrained_weights(self) -> dict[str, Tensor]:
        """Torchvision's newest, checked by the digest in the file's name."""
        return torchvision_weights(self.config.library_name)
