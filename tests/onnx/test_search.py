"""The search in NumPy against the decoder loop, and its rules against `Constraints`."""

from collections.abc import Mapping
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import make_captioner, some_ngrams

from captioner.attention.memory import Memory
from captioner.caption.lstm import DecoderState, ShowAttendTellDecoder
from captioner.decoding.options import SearchOptions
from captioner.onnx.search import Array, Rules, StepOutput, beam_search

SIZE = 12
REPEATABLE = (5, 7)
ROW = st.lists(st.integers(4, SIZE - 1), min_size=6, max_size=6)
FIELDS: list[dict[str, Any]] = [
    {},
    {"block_ngrams": 2, "repeat_distance": 3},
    {"maximum_length": 3},
]


def rules_of(options: SearchOptions, known: Array | None, size: int = SIZE) -> Rules:
    repeatable = numpy.zeros(size, bool)
    repeatable[list(REPEATABLE)] = True
    return Rules(options, repeatable, known)


@given(
    history=st.lists(ROW, min_size=2, max_size=2),
    length=st.integers(0, 6),
    minimum=st.integers(0, 4),
    maximum=st.integers(4, 6),
    ngrams=st.integers(0, 3),
    distance=st.integers(0, 5),
    keys=st.none() | st.sets(st.integers(0, SIZE**4 - 1), min_size=1, max_size=800),
)
def test_rules_are_those_of_constraints(
    history: list[list[int]],
    length: int,
    minimum: int,
    maximum: int,
    ngrams: int,
    distance: int,
    keys: set[int] | None,
) -> None:
    options = SearchOptions(
        minimum_length=minimum,
        maximum_length=maximum,
        block_ngrams=ngrams,
        repeat_distance=distance,
    )
    known = None if keys is None else numpy.array(sorted(keys))
    tokens = numpy.array(history, numpy.int64)[:, :length].reshape(1, 2, length)
    terms = numpy.log(numpy.random.default_rng(len(history)).dirichlet(numpy.ones(SIZE), (1, 2)))
    wanted = torch.tensor(terms)
    tensor = None if known is None else torch.tensor(known)
    fields = {"forbidden": (0, 1, 3), "repeatable": REPEATABLE, "ngrams": tensor, "start": 1}
    options.constraints(**fields).block(wanted, torch.tensor(tokens), 2)
    rules_of(options, known).block(terms, tokens)
    numpy.testing.assert_array_equal(terms, wanted.numpy())


@pytest.mark.parametrize("beam", [1, 3, 5])
@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("has_ngrams", [False, True])
def test_hypotheses_are_those_of_the_decoder_loop(
    beam: int, fields: dict[str, Any], has_ngrams: bool
) -> None:
    model = make_captioner()
    decoder = model.decoder
    assert isinstance(decoder, ShowAttendTellDecoder)
    size = len(model.vocabulary)
    model.ngrams = some_ngrams(size, 0.4) if has_ngrams else None
    options = SearchOptions(beam=beam, n_best=beam, length_normalisation=0.7, **fields)
    annotations = torch.rand(4, 16, decoder.config.memory_size)
    wanted = model.caption_annotations(annotations, options)

    @torch.no_grad()
    def step(tokens: Array, state: Mapping[str, Array]) -> StepOutput:
        rows = [torch.tensor(state[name]) for name in ("hidden", "cell")]
        output = decoder.step(torch.tensor(tokens), DecoderState(memory, *rows))
        assert isinstance(output.state, DecoderState)
        terms = torch.log_softmax(output.logits, dim=-1)
        states = {"hidden": output.state.hidden.numpy(), "cell": output.state.cell.numpy()}
        return terms.numpy(), output.weights.numpy(), states

    with torch.no_grad():
        memory: Memory = decoder.remember(annotations)
        start = decoder.start(memory)
    state = {"hidden": start.hidden.numpy(), "cell": start.cell.numpy()}
    known = None if model.ngrams is None else model.ngrams.numpy()
    rules = Rules(options, _repeatable(model), known)
    for hypotheses, caption in zip(beam_search(step, state, 4, rules), wanted, strict=True):
        captions = [caption, *caption.alternatives]
        assert len(hypotheses) == len(captions)
        for hypothesis, one in zip(hypotheses, captions, strict=True):
            assert [model.vocabulary.words[token] for token in hypothesis.tokens] == list(one.words)
            assert hypothesis.score == pytest.approx(one.score, abs=1e-5)
            numpy.testing.assert_allclose(
                hypothesis.attention.ravel(), numpy.asarray(one.attention).ravel(), atol=1e-5
            )


def _repeatable(model: Any) -> Array:
    from captioner.text.languages import FUNCTION_WORDS

    return numpy.array([word in FUNCTION_WORDS for word in model.vocabulary.words])
