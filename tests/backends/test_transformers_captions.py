"""Captioners of transformers: tiny ones with random weights, against `generate`."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers_samples import FAMILIES, save_tiny

import captioner
from captioner.caption.captioner import Captioner

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
transformers_families = pytest.importorskip("captioner.backends.transformers_families")


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A family, its model as transformers has it, and the folder."""
    folder = tmp_path_factory.mktemp("tiny") / request.param
    save_tiny(request.param, folder)
    name = transformers_families.FAMILIES[request.param][0]
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager")
    return request.param, model.eval(), folder


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    colours = np.random.default_rng(0).integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    return [Image.fromarray(each).resize((48, 40)) for each in colours]


def inputs_of(family: str, model: Any, captions: Captioner, photos: list[Image.Image]) -> Any:
    """What transformers' users give to `generate`."""
    seen = [torch.from_numpy(captions.preprocessing.pixels(photo)) for photo in photos]
    inputs = {"pixel_values": captions.preprocessing.normalise(torch.stack(seen))}
    tokenizer = transformers.AutoTokenizer.from_pretrained(captions.backend.tokenizer.name_or_path)
    if family == "blip":
        inputs["input_ids"] = None
    if family == "florence2":
        processor = transformers.Florence2Processor(
            transformers.CLIPImageProcessor(image_seq_length=17), tokenizer
        )
        text = processor(text=["<CAPTION>"] * len(photos), images=photos, return_tensors="pt")
        inputs |= {name: text[name] for name in ("input_ids", "attention_mask")}
    return inputs, tokenizer


def test_texts_and_scores_are_those_of_generate(tiny: Any, photos: list[Image.Image]) -> None:
    family, model, folder = tiny
    captions = captioner.load(folder)
    inputs, tokenizer = inputs_of(family, model, captions, photos)
    for options, given in [
        ({}, {}),
        ({"beam": 4, "n_best": 3}, {"num_beams": 4, "num_return_sequences": 3}),
        (
            {"beam": 2, "maximum_length": 7, "minimum_length": 5, "length_normalisation": 0.5},
            {"num_beams": 2, "max_new_tokens": 7, "min_new_tokens": 5, "length_penalty": 0.5},
        ),
    ]:
        with torch.no_grad():
            found = model.generate(
                **inputs, **given, return_dict_in_generate=True, output_scores=True
            )
        expected = tokenizer.batch_decode(found.sequences, skip_special_tokens=True)
        results = captions.caption(photos, **options)
        versions = [version for each in results for version in (each, *each.alternatives)]
        assert [version.text for version in versions] == [text.strip() for text in expected]
        assert [version.text.split() for version in versions] == [
            [*each.words] for each in versions
        ]
        if captions.search.override(**options).beam > 1 and family != "florence2":
            # A caption of special tokens alone has no words to score.
            pairs = zip(versions, found.sequences_scores.tolist(), strict=True)
            pairs = [(version.score, score) for version, score in pairs if version.words]
            assert np.ptp(pairs, axis=1) == pytest.approx(0, abs=1e-4)
            assert len(pairs) > 2
        assert len({version.text for version in results}) > 1
