"""The decoder against the equations of Show, Attend and Tell; standardised annotation vectors."""

import itertools
from typing import Any

import pytest
import torch
from caption_samples import MEMORY, PLACES, WORDS, captions, photos, small_decoder, stepped
from torch import Tensor

from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.attention.scores import Score
from captioner.cpu import SWITCH
from captioner.decoding.protocol import select_rows
from captioner.errors import UserError
from captioner.models.caption_decoder import Standardisation
from captioner.models.show_attend_tell import ShowAttendTellDecoder


def by_the_paper(
    decoder: ShowAttendTellDecoder, a: Tensor, words: list[int]
) -> tuple[Tensor, Tensor]:
    """One photo (L, D) and T words -> logits (T, V) and weights (T, L) after each word."""
    score: Any = decoder.attention.score
    # Section 3.1.2, last equations: the initial state from the mean annotation vector.
    mean = torch.stack([a[i] for i in range(PLACES)]).sum(dim=0) / PLACES
    c = torch.tanh(decoder.initial_cell.weight @ mean + decoder.initial_cell.bias)
    h = torch.tanh(decoder.initial_hidden.weight @ mean + decoder.initial_hidden.bias)
    logits, looked = [], []
    for word in words:
        # Equation 4: e_i = f_att(a_i, h), a perceptron with one hidden layer.
        of_state = score.query_projection.weight @ h + score.key_projection.bias
        e = [
            score.energy.weight[0] @ torch.tanh(of_state + score.key_projection.weight @ a[i])
            for i in range(PLACES)
        ]
        # Equation 5.
        total = torch.stack([torch.exp(term) for term in e]).sum()
        alpha = [torch.exp(term) / total for term in e]
        # Equation 13, and section 4.2.1 for the gate: z = beta sum_i alpha_i a_i.
        z = torch.stack([alpha[i] * a[i] for i in range(PLACES)]).sum(dim=0)
        if decoder.config.gate != "none":
            z = torch.sigmoid(decoder.gate.weight @ h + decoder.gate.bias) * z
        # Equations 1 to 3, with the four rows of T in torch's order: i, f, g, o.
        embedded = decoder.embedding.weight[word]
        total_in = decoder.lstm.weight_ih @ torch.cat([embedded, z]) + decoder.lstm.bias_ih
        total_in = total_in + decoder.lstm.weight_hh @ h + decoder.lstm.bias_hh
        i, f, g, o = total_in.view(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        # Equation 7.
        seen = h
        if decoder.config.deep_output:
            seen = embedded + decoder.output_hidden.weight @ h + decoder.output_hidden.bias
            seen = seen + decoder.output_context.weight @ z
        if decoder.config.output_tanh:
            seen = torch.tanh(seen)
        logits.append(decoder.output.weight @ seen + decoder.output.bias)
        looked.append(torch.stack(alpha))
    return torch.stack(logits), torch.stack(looked)


@torch.no_grad()
@pytest.mark.parametrize("gate", ["scalar", "vector", "none"])
@pytest.mark.parametrize(("deep", "tanh"), [(True, False), (True, True), (False, False)])
def test_forcing_and_stepping_are_the_paper_s_equations(gate: str, deep: bool, tanh: bool) -> None:
    decoder = small_decoder(gate=gate, deep_output=deep, output_tanh=tanh).eval()
    a, words = photos(), captions(rows=2)
    memory = decoder.remember(a)
    found = decoder(memory, words)
    torch.testing.assert_close(stepped(decoder, memory, words), found)
    for photo, row in itertools.product(range(3), range(2)):
        expected = by_the_paper(decoder, a[photo], words[photo, row].tolist())
        torch.testing.assert_close((found.logits[photo, row], found.weights[photo, row]), expected)
    rows = torch.zeros(3, 2, dtype=torch.long)
    assert select_rows(decoder.start(memory), rows).memory is memory


class NearScore(Score):
    """Of another package, or set by a subclass."""

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        return -torch.cdist(query, memory.keys)  # (..., Q, L)


class NearDecoder(ShowAttendTellDecoder):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.attention = Attention(NearScore(), self.attention.selection)


@pytest.mark.parametrize("kind", ["dot", "general", "scaled_dot", "cosine", "concat", "near"])
@pytest.mark.parametrize("selection", ["soft", "hard"])
def test_other_scores_are_trained_and_stepped_on_a_cpu(kind: str, selection: str) -> None:
    score = {"kind": "additive" if kind == "near" else kind}
    make = NearDecoder if kind == "near" else ShowAttendTellDecoder
    decoder = small_decoder(make, score=score, selection=selection, dropout=0.0)
    memory, words = decoder.remember(photos()), captions()
    decoder(memory, words).weights.square().sum().backward()
    assert float(decoder.lstm.weight_hh.grad.abs().sum()) > 0
    forced, by_steps = decoder.eval()(memory, words), stepped(decoder, memory, words)
    torch.testing.assert_close(by_steps[:2], forced[:2])


@pytest.mark.parametrize("options", [{"hidden_size": 7}, {"activation": "relu"}])
def test_what_a_score_does_not_take_is_named(options: dict[str, Any]) -> None:
    score = {"kind": "dot", "activation": options.pop("activation", "tanh")}
    with pytest.raises(UserError, match=r"the score 'dot' cannot be made .*(general|activation)"):
        small_decoder(score=score, **options)


@torch.no_grad()
def test_hard_attention_looks_at_one_place_in_evaluation_the_likeliest() -> None:
    decoder, words = small_decoder(selection="hard", gate="none").eval(), captions()
    memory = decoder.remember(photos())
    found = decoder(memory, words)
    likeliest = found.weights.max(dim=-1).values
    torch.testing.assert_close(found.log_probability, likeliest.log())
    by_hand = -(found.weights * found.weights.log()).sum(dim=-1)
    torch.testing.assert_close(found.entropy, by_hand)
    torch.testing.assert_close(stepped(decoder, memory, words).logits, found.logits)


def test_memory_dropout_blanks_whole_channels_in_training_only() -> None:
    decoder = small_decoder(memory_dropout=0.5)
    a = torch.ones(50, PLACES, MEMORY).double()
    values = decoder.remember(a).values
    assert torch.equal(values, values[:, :1].expand_as(values))  # the same in every place
    assert set(values.unique().tolist()) == {0.0, 2.0}  # what is kept makes up for the rest
    assert len(values[:, 0].unique(dim=0)) > 10  # each photo has its own
    assert torch.equal(decoder.eval().remember(a).values, a)


@pytest.mark.parametrize("selection", ["soft", "hard"])
def test_states_and_weights_stay_float32_in_autocast(
    monkeypatch: pytest.MonkeyPatch, selection: str
) -> None:
    """As sums over words should be."""
    monkeypatch.setenv(SWITCH, "0")  # As on a GPU.
    decoder = small_decoder(selection=selection).float()
    with torch.autocast("cpu", torch.bfloat16):
        memory = decoder.remember(photos().float())
        forced = decoder(memory, captions())
        step = decoder.step(captions()[..., 0], decoder.start(memory))
    assert forced.logits.dtype == torch.bfloat16
    assert forced.weights.dtype == step.weights.dtype == torch.float32
    assert [each.dtype for each in step.state[1:]] == [torch.float32] * 2
    if selection == "hard":
        assert forced.log_probability.dtype == forced.entropy.dtype == torch.float32


def test_standardisation_by_hand() -> None:
    first = torch.tensor([[[1.0, 10.0], [3.0, 10.0]]])  # (B, L, D) = (1, 2, 2)
    second = torch.tensor([[[5.0, 40.0], [7.0, 40.0]]])
    found = Standardisation(2)
    found.fit([first, second])
    torch.testing.assert_close(found.mean, torch.tensor([4.0, 25.0]))
    torch.testing.assert_close(found.deviation, torch.tensor([5.0**0.5, 15.0]))
    expected = torch.tensor([[[1 / 5.0**0.5, 1.0], [3 / 5.0**0.5, 1.0]]])
    torch.testing.assert_close(found(second), expected)
    photos = torch.randn(4, 9, 5)
    photos[..., 2] = 3.0
    photos[0, 0, 2] = 3.0001  # A number that hardly differs does not become large.
    found = Standardisation(5)
    found.fit([photos])
    assert float(found(photos)[..., 2].abs().max()) < 0.01


def test_the_decoder_takes_them_as_one_without_it_takes_standardised_ones() -> None:
    decoder = small_decoder(dropout=0.0, standardise=True)
    plain = small_decoder(dropout=0.0)  # With the same weights.
    photos = 3 * torch.rand(2, 7, MEMORY).double() + 1
    words = torch.randint(WORDS, (2, 1, 5))
    as_made = decoder(decoder.remember(photos), words)
    torch.testing.assert_close(as_made, plain(plain.remember(photos), words))
    decoder.standardisation.fit([photos])
    expected = plain(plain.remember(decoder.standardisation(photos)), words)
    torch.testing.assert_close(decoder(decoder.remember(photos), words), expected)
