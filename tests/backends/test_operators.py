"""The operators that graphs may have are those of real exports, of every kind of model."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from samples import CONFIGS, Patch, make_captioner
from translation_samples import make_translator

from captioner.backends import graph_file
from captioner.backends.export import _graph, _of_captioner, _of_translator, _quiet
from captioner.backends.export_weights import store_weights
from captioner.backends.graph_file import OPERATORS, external_weights
from captioner.caption.folder import export_model
from captioner.errors import UserError
from captioner.model_folders import ModelFolder
from captioner.models.caption_config import DecoderConfig
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.schema import choices
from captioner.translate.folder import save_translator
from captioner.vision.encoder_config import EncoderConfig, VGGConfig
from captioner.vision.encoder_families import make_encoder

VGGS = choices(VGGConfig.model_fields["name"].annotation)
NETWORKS = {  # With the side of a photo; each brings an operator that the others lack.
    "timm/test_efficientnet_gn": 64,
    "timm/test_efficientnet_evos": 64,
    "timm/test_maxvit": 160,
    "timm/test_vit4": 64,
    "timm/eva02_tiny_patch14_224": 224,
    "torchvision/mobilenet_v3_small": 64,
    "torchvision/swin_v2_t": 64,
    "torchvision/vit_b_32": 224,
}
DECODERS: list[dict[str, Any]] = [
    {},
    {"gate": "vector", "deep_output": False, "score": {"kind": "additive", "activation": "relu"}},
    {"selection": "hard", "gate": "none", "output_tanh": True, "standardise": True},
]


def encoders() -> Iterator[Any]:
    """The graphs of encoders with random weights."""
    configs = [({"name": name, "width": 0.01, "rank": 0.5, "context": (2,)}, 64) for name in VGGS]
    configs += [({"name": name}, size) for name, size in NETWORKS.items()]
    for fields, size in configs:
        encoder = make_encoder(EncoderConfig.of_kind(fields)).eval().for_inference(torch.float32)
        with _quiet(), torch.no_grad():
            pixels = {"pixels": torch.rand(2, 3, size, size)}
            yield _graph(encoder, pixels, ["annotations"], [{0: "batch"}])


def searches(folder: Path) -> Iterator[Any]:
    """The graphs of captioners and translators."""
    for fields in DECODERS:
        sizes = DecoderConfig(hidden_size=8, attention_size=8, embedding_size=8, **fields)
        model = make_captioner().backend
        decoder = ShowAttendTellDecoder(sizes, len(model.vocabulary))
        yield from _of_captioner(replace(model, decoder=decoder)).values()
    for name in CONFIGS:
        save_translator(make_translator(name, joint=True), folder)
        yield from _of_translator(ModelFolder(folder)).values()


@pytest.mark.slow
def test_the_operators_are_those_of_exports(tmp_path: Path, monkeypatch: Patch) -> None:
    create = timm.create_model
    shallow = {"eva02_tiny_patch14_224": partial(create, depth=1)}
    monkeypatch.setattr(
        timm, "create_model", lambda name, **options: shallow.get(name, create)(name, **options)
    )
    found = set()
    for graph in (*encoders(), *searches(tmp_path)):
        halved = deepcopy(graph)
        store_weights(halved.graph)
        for stored in (graph, halved):
            assert external_weights(tmp_path, stored.SerializeToString()) == {}
            found |= {node.op_type for node in stored.graph.node}
    assert sorted(found) == sorted(OPERATORS)


@pytest.mark.slow
def test_a_graph_that_would_be_refused_is_not_exported(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(graph_file, "OPERATORS", OPERATORS - {"MaxPool"})
    with pytest.raises(UserError, match=r"graph encoder\.onnx .*the operator 'MaxPool'"):
        export_model(make_captioner(), tmp_path / "model")
    assert list(tmp_path.rglob("*.onnx")) == []
