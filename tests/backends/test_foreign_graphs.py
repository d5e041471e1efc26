"""Graphs of strangers, damaged ones and those of another model: one sentence, or torch."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper
from onnx.numpy_helper import from_array
from photo_samples import DEMO_CAPTION
from safetensors.torch import load_file, save_file
from samples import Refused, change_config, renew_digests

import captioner
from captioner.backends.graph_file import external_weights
from captioner.backends.graphs import Graph, graph_errors
from captioner.errors import GraphError, UserError
from captioner.model_folders import DEMO_PHOTO, GRAPHS, ModelFolder, model_folder
from captioner.serve.page_without_server import has_graphs_for_browsers

X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
BODY = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "body", [X], [Y])
LARGE = 1_500_000_000


def node(operator: str, *inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [output], **attributes)


def model(*nodes: NodeProto, constants: dict[str, Any] | None = None, **fields: Any) -> ModelProto:
    values = [from_array(np.array(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", [X], [Y], values)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, **fields
    )


RELU = helper.make_function("", "Relu", ["x"], ["y"], BODY.node, [])


def elsewhere(place: str) -> ModelProto:
    """A graph whose weight lies in another file."""
    made = model(node("Add", "x", "w"), constants={"w": np.zeros(2, np.float32)})
    (weight,) = made.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    return made


def sparse() -> ModelProto:
    made = model(node("Relu", "x"))
    made.graph.sparse_initializer.append(SparseTensorProto(dims=[LARGE]))
    return made


def external_attribute() -> ModelProto:
    tensor = TensorProto(name="w", data_type=1, data_location=TensorProto.EXTERNAL)
    attribute = AttributeProto(name="value", t=tensor, type=AttributeProto.TENSOR)
    made = model(node("ConstantOfShape", "x"))
    made.graph.node[0].attribute.append(attribute)
    return made


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (model(node("Loop", "n", "", "x", body=BODY)), "operator 'Loop'"),
        (model(node("If", "x", then_branch=BODY, else_branch=BODY)), "operator 'If'"),
        (model(node("Scan", "x", body=BODY, num_scan_inputs=1)), "operator 'Scan'"),
        (model(node("Tile", "x", "n"), constants={"n": [LARGE]}), "operator 'Tile'"),
        (model(node("Relu", "x", domain="com.microsoft")), "operator 'Relu'"),
        (model(node("Relu", "x", body=BODY)), "field of number 6"),
        (model(node("Relu", "x"), functions=[RELU]), "field of number 25"),
        (sparse(), "field of number 15"),
        *((elsewhere(place), "elsewhere") for place in ("/etc/passwd", "../model.safetensors", "")),
        (external_attribute(), "field of number 14"),
    ],
)
def test_a_graph_that_no_export_makes_is_refused_unopened(made: ModelProto, reason: str) -> None:
    sentence = rf"^graph a/step\.onnx is damaged, or none .*{reason}.*; copy or export the model"
    with pytest.raises(GraphError, match=sentence):
        external_weights(Path("a/step.onnx"), made.SerializeToString())


def test_a_graph_is_one_message() -> None:
    twice = 2 * model(node("Relu", "x")).SerializeToString()  # Which protobuf would merge.
    with pytest.raises(GraphError, match="too many values"):
        external_weights(Path("a"), twice)


def test_any_bytes_are_a_graph_or_one_sentence() -> None:
    content = (model_folder() / "step.onnx").read_bytes()
    assert "decoder.embedding.weight.stored" in external_weights(Path("a"), content)
    generator = np.random.default_rng(0)
    for place in generator.integers(len(content), size=300).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(generator.integers(8))
        for damaged in (bytes(flipped), content[:place]):
            with suppress(GraphError):
                external_weights(Path("a"), damaged)


def doubled(count: int) -> ModelProto:
    """A graph whose constant is doubled so many times; opening it would fold them."""
    names = [f"c{step}" for step in range(count + 1)]
    nodes = [node("ConstantOfShape", "n", output="c0")]
    nodes += [node("Concat", one, one, output=other, axis=0) for one, other in pairwise(names)]
    return model(*nodes, node("Add", "x", names[-1]), constants={"n": [1]})


@pytest.mark.parametrize(
    "made",
    [model(node("Expand", "x", "n"), constants={"n": [LARGE]}), doubled(30)],
)
def test_a_graph_takes_no_more_memory_than_is_allowed(made: ModelProto) -> None:
    external_weights(Path("a"), made.SerializeToString())
    graph = Graph(made.SerializeToString(), 1, {})
    sentence = "there is too little memory; smaller batches take less$"
    with pytest.raises(GraphError, match=f"^a: .* run: {sentence}"), graph_errors(Path("a")):
        graph.run({"x": np.ones(1, np.float32)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged captioner."""
    return shutil.copytree(model_folder(), tmp_path / "model")


Change = Callable[[Path], object]


def map_shape(value: str) -> Change:
    def do(folder: Path) -> None:
        path = folder / "encoder.onnx"
        path.write_bytes(path.read_bytes().replace(b"[14, 14]", value.ljust(8).encode()))

    return do


SHAPES = ("[13, 14]", "[14]", "null", "[1e9, 1]", "abcdefgh", "[-1,196]", "[[1],2]")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: shutil.copy(folder / "start.onnx", folder / "step.onnx"),
        lambda folder: shutil.copy(folder / "step.onnx", folder / "encoder.onnx"),
        lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 8),
        *map(map_shape, SHAPES),
        lambda folder: (folder / "step.onnx").write_bytes(b""),
        lambda folder: os.truncate(folder / "vocabulary.json", 900),
    ],
)
def test_a_folder_that_does_not_fit_is_named_in_one_sentence(
    folder: Path, refused: Refused, change: Change
) -> None:
    change(folder)
    renew_digests(folder, *GRAPHS, "vocabulary.json")
    sentence = refused(["caption", str(DEMO_PHOTO), "--model", str(folder), "--engine", "graphs"])
    assert str(folder) in sentence
    assert "onnxruntime_src" not in sentence


@pytest.mark.parametrize(
    ("output", "operator", "value"),
    [
        ("tokens", "Add", 10**6),
        ("tokens", "Sub", 10**6),
        ("parents", "Add", 10**6),
        ("terms", "Mul", np.float32(np.nan)),
        ("scores", "Mul", np.float32(np.inf)),
        ("weights", "Mul", np.float32(2)),
        ("weights", "Mul", np.float32(-1)),
        ("weights", "Add", np.zeros((1, 1, 7, 1), np.float32)),
        ("is_end", "And", False),
        ("live_counts", "Mul", 0),
    ],
)
def test_a_step_that_answers_what_no_search_gives_is_named_in_one_sentence(
    folder: Path, refused: Refused, output: str, operator: str, value: Any
) -> None:
    path = folder / "step.onnx"
    made = onnx.load(path, load_external_data=False)
    for before in made.graph.node:
        before.output[:] = ["right" if name == output else name for name in before.output]
        before.input[:] = ["right" if name == output else name for name in before.input]
    made.graph.node.append(node(operator, "right", "changed", output=output))
    made.graph.initializer.append(from_array(np.array(value), "changed"))
    path.write_bytes(made.SerializeToString())
    renew_digests(folder, "step.onnx")
    command = ["caption", str(DEMO_PHOTO), "--model", str(folder), "--engine", "graphs"]
    assert f"captioner: {folder}: its graphs cannot be run" in refused(command)


def test_weights_written_again_elsewhere_or_behind_a_link_are_read_by_name(folder: Path) -> None:
    path = folder / "model.safetensors"
    assert has_graphs_for_browsers(ModelFolder(folder))
    save_file(load_file(path), path)
    # They read by offsets, which are others now.
    assert not has_graphs_for_browsers(ModelFolder(folder))
    assert captioner.load(folder, engine="graphs").caption(DEMO_PHOTO).text == DEMO_CAPTION
    path.rename(folder.parent / "blob")
    path.symlink_to(folder.parent / "blob")
    assert captioner.load(folder, engine="graphs").caption(DEMO_PHOTO).text == DEMO_CAPTION
    path.unlink()
    with pytest.raises(UserError, match=r"^model weights .*model\.safetensors does not exist$"):
        captioner.load(folder, engine="graphs")


def test_torch_computes_where_graphs_do_not_fit(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["decoder.gate.bias"] += 1e-3
    save_file(tensors, path)
    change_config(folder, lambda config: config["files"].pop("model.safetensors"))
    assert captioner.load(folder).caption(DEMO_PHOTO).text == DEMO_CAPTION
    with pytest.raises(GraphError, match="are of other weights, or these are damaged; copy or"):
        captioner.load(folder, engine="graphs")
    encoder = folder / "encoder.onnx"
    content = bytearray(encoder.read_bytes())
    content[-30] ^= 1
    encoder.write_bytes(content)
    sentence = rf"^{encoder} is damaged, or of another model than config"
    with pytest.raises(GraphError, match=sentence):
        captioner.load(folder, engine="graphs")
    assert captioner.load(folder).caption(DEMO_PHOTO).text == DEMO_CAPTION
