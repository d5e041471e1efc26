"""The families of encoders, those of timm and torchvision among them, and building one."""

import copy
import logging
import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from captioner.errors import UserError, did_you_mean, near_names, refuse_errors, refuse_missing
from captioner.model_folders import WEIGHTS, complete_folder, model_folder
from captioner.module_weights import fill
from captioner.vision.efficientnet import EfficientNetEncoder
from captioner.vision.encoder import Encoder, VGGEncoder, read_weights, torchvision_weights
from captioner.vision.encoder_config import (
    EfficientNetConfig,
    EncoderConfig,
    NetworkConfig,
    TimmConfig,
    TorchvisionConfig,
    VGGConfig,
)
from captioner.vision.preprocessing import Preprocessing

# Nodes of torchvision's networks behind the last feature map, and of a ViT's tokens.
_POOLINGS, _TOKENS = {"avgpool", "adaptive_avg_pool2d", "mean"}, "encoder.ln"


class NetworkEncoder(Encoder):
    """A network cut behind its last feature map, whose shape is measured."""

    stages = 10
    config: NetworkConfig

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self._shapes: dict[tuple[int, int], tuple[int, int, int]] = {}
        # Not on `meta`: buffers that are not saved would stay there.
        with torch.device("cpu"):
            self.network = self._make_network()
        size = self.published_preprocessing(config).size
        self.annotation_size = self._measure(size, size)[0]

    @abstractmethod
    def _make_network(self) -> Any:
        """The network with random weights."""

    @abstractmethod
    def _feature_map(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> (B, D, rows, columns)."""

    def forward(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, D)."""
        return self._pooled_map(images).flatten(start_dim=2).transpose(1, 2)

    def _pooled_map(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> (B, D, rows, columns), `map_size` if set."""
        features = self._feature_map(images)
        size = self.config.map_size
        return features if size is None else functional.adaptive_avg_pool2d(features, size)

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns. Raises `UserError` for a size that the network cannot read."""
        return self._measure(height, width)[1:]

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a file in the library's names, or of a model folder."""
        library = {name.removeprefix("encoder.network."): state[name] for name in state}
        names = self.network.state_dict().keys()
        return {f"network.{name}": library[name] for name in library if name in names}

    @torch.no_grad()
    def _measure(self, height: int, width: int) -> tuple[int, int, int]:
        """D, rows and columns of an image's feature map, by a pass on the device `meta`."""
        if (height, width) not in self._shapes:
            tensors = [*self.parameters(), *self.buffers()]
            on_meta = copy.deepcopy(self, {id(tensor): tensor.to("meta") for tensor in tensors})
            refusal = f"{self.config.name} cannot read images of {height} x {width} pixels"
            with refuse_errors(refusal), torch.device("meta"):
                images = torch.zeros(2, 3, height, width, dtype=tensors[0].dtype)
                shape = on_meta._pooled_map(images).shape
            if len(shape) != 4:
                raise UserError(f"{self.config.name} has no spatial feature map")
            self._shapes[height, width] = shape[1], shape[2], shape[3]
        return self._shapes[height, width]


class TimmEncoder(NetworkEncoder):
    """A network of timm up to its last normalisation, without class and register tokens."""

    def _make_network(self) -> Any:
        network = self._create(pretrained=False)
        if not hasattr(network, "forward_intermediates"):
            raise UserError(f"{self.config.name} has no spatial feature map")
        self._has_norm = hasattr(network, "norm")
        self._last = network.prune_intermediate_layers([-1], prune_norm=not self._has_norm)
        return network

    def _feature_map(self, images: Tensor) -> Tensor:
        maps: list[Tensor] = self.network.forward_intermediates(
            images, self._last, norm=self._has_norm, output_fmt="NCHW", intermediates_only=True
        )
        return maps[0]

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
        """Timm's, downloaded on first use."""
        advice = "run this once with a network, or give a file of weights with timm's names"
        with refuse_errors(f"the weights of {self.config.name} could not be downloaded", advice):
            logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # It tells each retry.
            return dict(self._create(pretrained=True).state_dict())

    def _create(self, pretrained: bool) -> Any:
        timm, name = _timm(self.config), self.config.library_name
        try:  # Position embeddings for images of any size.
            return timm.create_model(name, pretrained=pretrained, dynamic_img_size=True)
        except TypeError:  # It has none.
            return timm.create_model(name, pretrained=pretrained)


class TorchvisionEncoder(NetworkEncoder):
    """A network of torchvision, cut before its pooling; a ViT without its class token."""

    def _make_network(self) -> Any:
        from torchvision.models import feature_extraction, get_model
        from torchvision.ops import StochasticDepth

        name = self.config.library_name
        is_transformer = name.startswith("vit_")
        size = self.published_preprocessing(self.config).size
        network = get_model(name, **({"image_size": size} if is_transformer else {}))
        # As a module it keeps its mode when it is frozen.
        leaves = {"leaf_modules": [StochasticDepth]}
        options = {"tracer_kwargs": leaves, "suppress_diff_warning": True}
        _, nodes = feature_extraction.get_graph_node_names(network, **options)
        ends = [before for before, after in pairwise(nodes) if after in _POOLINGS]
        node = _TOKENS if is_transformer else next(iter(ends), None)
        if node is None:
            raise UserError(f"{self.config.name} has no spatial feature map before a pooling")
        return feature_extraction.create_feature_extractor(network, {node: "map"}, **options)

    def _feature_map(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)["map"]
        if features.ndim == 3:  # Tokens (B, 1 + L, D).
            side = math.isqrt(features.shape[1] - 1)
            features = features[:, 1:].transpose(1, 2).reshape(features.shape[0], -1, side, side)
        return features

    @classmethod
    def published_preprocessing(cls, config: Any) -> Preprocessing:
        """As torchvision evaluates the network."""
        import torchvision.models

        known = torchvision.models.list_models(module=torchvision.models)
        # The published weights of two need another preprocessing than torchvision gives.
        _check_name(config, set(known) - {"googlenet", "inception_v3"})
        weights = torchvision.models.get_model_weights(config.library_name).DEFAULT
        transforms = weights.transforms()
        return Preprocessing(
            size=transforms.crop_size[0],
            resize_shorter=transforms.resize_size[0],
            mean=tuple(transforms.mean),
            standard_deviation=tuple(transforms.std),
            interpolation=transforms.interpolation.value,
        )

    def pretrained_weights(self) -> dict[str, Tensor]:
        """Torchvision's newest."""
        return torchvision_weights(self.config.library_name)


def _timm(config: NetworkConfig) -> Any:
    """The package, which knows the network."""
    with refuse_missing(f"the encoder {config.name} needs the package timm", "timm"):
        import timm
    _check_name(config, {*timm.list_models(), *timm.list_pretrained()})
    return timm


def _check_name(config: NetworkConfig, known: Iterable[str]) -> None:
    if config.library_name not in known:
        library = config.name.partition("/")[0]
        near = near_names(config.library_name, sorted(known), count=5, least=0)
        nearest = did_you_mean([f"{library}/{name}" for name in near])
        raise UserError(f"{library} has no network {config.library_name!r}{nearest}")


RANDOM = "random"  # Fresh weights, without a file.
ENCODERS: dict[type[EncoderConfig], type[Encoder]] = {
    VGGConfig: VGGEncoder,
    EfficientNetConfig: EfficientNetEncoder,
    TimmConfig: TimmEncoder,
    TorchvisionConfig: TorchvisionEncoder,
}


def make_encoder(config: EncoderConfig) -> Encoder:
    """An encoder with fresh weights."""
    return ENCODERS[type(config)](config)


def build_encoder(config: EncoderConfig, weights: str) -> Encoder:
    """An encoder with its weights, in evaluation mode.

    weights: `pretrained`, `imagenet`, `random`, a `.safetensors` or `.pth` file with the library's
        names (`features.0.weight`, ...; others are ignored), or a model, by name or by folder.
    """
    encoder = make_encoder(config)
    if weights == RANDOM:
        return encoder.eval()
    if weights in ("pretrained", "imagenet"):  # The same: the published ones.
        state, source = encoder.pretrained_weights(), "the published weights"
    else:
        path = Path(weights)
        if not os.path.isfile(path) and path.suffix not in (".safetensors", ".pth", ".pt"):
            path = complete_folder(model_folder(path)) / WEIGHTS
        state, source = read_weights(path), str(path)
    sizes = config.model_dump(exclude={"name"}, exclude_defaults=True)
    description = ", ".join([config.name, *(f"{name} {value}" for name, value in sizes.items())])
    fill(encoder, encoder.own_tensors(state), f"{source} does not fit {description}")
    return encoder.eval()
