"""The steps towards a captioner for everyday photos: boxes as maps, retrieval, tables, words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import save_photo
from scripts_samples import ROOT

from captioner.caption import Captioner, DecoderConfig, ShowAttendTellDecoder, save_model
from captioner.data.instances import read_instances
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoders import make_encoder
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

NAMES = (
    *("photos", "teachers", "pseudo_captions"),
    *("fold", "teacher_words", "muon", "distill", "tables"),
)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    return SimpleNamespace(**{name: __import__(name) for name in NAMES})


def test_a_box_covers_the_cells_whose_centres_it_holds(scripts: Any) -> None:
    boxes = scripts.teachers.Boxes(
        torch.tensor([3, 3, 7]),
        torch.tensor([0.5, 0.9, 0.4]),
        # Half of the photo; its lower right quarter; a speck in the second cell of the first row.
        torch.tensor([[0, 0, 1, 0.5], [0.5, 0.5, 1, 1], [0.3, 0.1, 0.32, 0.12]]),
    )
    nothing = scripts.teachers.Boxes(torch.tensor([]).long(), torch.tensor([]), torch.zeros(0, 4))
    maps = scripts.teachers.paint([boxes, nothing], 4)
    assert maps.shape == (2, 80, 4, 4)
    expected = torch.tensor([[0.5] * 4, [0.5] * 4, [0, 0, 0.9, 0.9], [0, 0, 0.9, 0.9]])
    assert torch.allclose(maps[0, 3], expected)
    assert maps[0, 7].nonzero().tolist() == [[0, 1]]
    assert int(maps[1].count_nonzero()) == 0


def test_targets_are_of_photos_and_of_their_mirror_images(scripts: Any) -> None:
    photos = torch.zeros(3, 3, 32, 32, dtype=torch.uint8)
    for row in range(3):
        photos[row, :, :, 4 * row : 4 * row + 8] = 85 * (row + 1)
    boxes = [
        scripts.teachers.Boxes(
            torch.tensor([0]), torch.tensor([1.0]), torch.tensor([[row / 8, 0, row / 8 + 0.25, 1]])
        )
        for row in range(3)
    ]

    def teacher(pixels: torch.Tensor, found: Any) -> torch.Tensor:
        """The photo, 2x2, in the first channel, and left and right of its box in the next."""
        maps = torch.zeros(len(pixels), 512, 2, 2)
        maps[:, 0] = torch.nn.functional.adaptive_avg_pool2d(pixels[:, 0], 2)
        for row, things in enumerate(found):
            maps[row, 1] = things.corners[0, 0]
            maps[row, 2] = things.corners[0, 2]
        return maps

    def classifier(pixels: torch.Tensor, names: list[str]) -> dict[str, torch.Tensor]:
        return {"logits": pixels[:, 0, 0, 0].view(-1, 1).expand(-1, 1001)}

    targets = scripts.distill.make_targets(photos, boxes, teacher, classifier)
    for row in range(3):
        pixels = photos[row].float() / 255
        for view, image in enumerate((pixels, pixels.flip(-1))):
            maps = targets["maps"][row + 3 * view]
            expected = torch.nn.functional.adaptive_avg_pool2d(image[:1], 2)[0]
            torch.testing.assert_close(maps[0].float(), expected, atol=1e-3, rtol=0)
            left, right = int(maps[1, 0, 0] * 32), int(maps[2, 0, 0] * 32)
            assert image[0, 0, left:right].tolist() == pytest.approx([(row + 1) / 3] * 8)
    assert targets["classes"].shape == (6, 1001)
    assert targets["classes"].float().exp().sum(dim=1).tolist() == pytest.approx(
        [1.0] * 6, rel=5e-3
    )

    class Words:
        def read(self, maps: torch.Tensor, rows: list[int], generator: Any) -> list[int]:
            return rows

    batches = scripts.distill.Photos(photos, targets, Words(), 2)
    views: list[set[int]] = []
    for epoch in range(2):
        steps = [*batches.batches(epoch, 0, 0, 1, 1)]
        assert len(steps) == batches.steps(epoch) == 1
        batch = steps[0].micro_batches[0].batch
        mirrored = set()
        for row, pixels, target in zip(batch.reading, batch.pixels, batch.target, strict=True):
            pooled = torch.nn.functional.adaptive_avg_pool2d(pixels[:1], 2)[0]
            torch.testing.assert_close(target[0], pooled, atol=1e-3, rtol=0)
            if not torch.equal(pixels, photos[row].float() / 255):
                mirrored.add(row)
        views.append({row for row in batch.reading if row not in mirrored})
        views.append(mirrored)
    assert not views[0] & views[2]
    assert not views[1] & views[3]


def test_what_the_detector_is_sure_of_becomes_instances(scripts: Any, tmp_path: Path) -> None:
    photo = save_photo(tmp_path / "a.png", 0, (40, 20))
    boxes = scripts.teachers.Boxes(
        torch.tensor([1, 0]),
        torch.tensor([0.9, 0.2]),
        torch.tensor([[0.5, 0, 1, 0.5], [0, 0, 1, 1]]),
    )
    scripts.tables.write_instances(tmp_path / "i.json", {photo: boxes}, ["dog", "cat"])
    instances = read_instances([tmp_path / "i.json"])
    assert instances.categories("a.png") == {"cat"}
    target = instances.target("a.png", "cat")
    assert (target.size, target.boxes) == ((40, 20), ((20, 0, 40, 10),))


def test_a_folded_decoder_says_what_it_said_of_the_linear_layer(scripts: Any) -> None:
    torch.manual_seed(0)
    config = DecoderConfig(
        embedding_size=8, hidden_size=8, attention_size=8, memory_size=6, standardise=True
    )
    decoder = ShowAttendTellDecoder(config, 12).eval()
    vectors = torch.randn(5, 16, 6) * 3 + 1  # of the encoder
    readout = torch.nn.Conv2d(6, 6, kernel_size=1)
    with torch.no_grad():
        readout.weight.normal_()
        wanted = vectors @ readout.weight.flatten(1).T + readout.bias
    decoder.standardisation.fit([wanted])
    words = torch.randint(12, (5, 1, 4))
    with torch.no_grad():
        before = decoder(decoder.remember(wanted), words).logits
        scripts.fold.fold(decoder, readout, vectors)
        after = decoder(decoder.remember(vectors), words).logits
    assert torch.allclose(before, after, atol=1e-4)


@pytest.fixture
def words_of_teachers(scripts: Any, tmp_path: Path) -> Any:
    """A decoder of random weights, and two photos with captions to read."""
    rows = [
        {"image": str(save_photo(tmp_path / f"{name}.png", 0).resolve()), "caption": caption}
        for name, captions in {"a": ["a dog runs"], "b": ["a man", "a man runs"]}.items()
        for caption in captions
    ]
    table = tmp_path / "all.jsonl"
    table.write_text("".join(json.dumps({**row, "split": "train"}) + "\n" for row in rows))
    torch.manual_seed(0)
    vocabulary = Vocabulary.build([row["caption"].split() for row in rows], 1)
    config = DecoderConfig(embedding_size=8, hidden_size=8, attention_size=8)
    save_model(
        Captioner(
            make_encoder(VGGConfig(width=0.125)),
            ShowAttendTellDecoder(config, len(vocabulary)),
            vocabulary,
            Preprocessing(size=32),
        ),
        tmp_path / "model",
    )
    photos = [tmp_path / "b.png", tmp_path / "a.png"]
    return scripts.teacher_words.TeacherWords(tmp_path / "model", table, photos, "float32")


def test_a_student_learns_what_the_teachers_decoder_says(
    scripts: Any, words_of_teachers: Any
) -> None:
    maps = torch.rand(2, 512, 3, 3)
    reading = words_of_teachers.read(maps, [0, 1], torch.Generator().manual_seed(0))
    assert reading.words.shape == reading.mask.shape == reading.said.shape[:3]
    assert reading.mask[1].sum(dim=1).tolist() == [4, 4]  # "a dog runs" and the end, twice
    student = words_of_teachers.student()
    divergence = scripts.teacher_words.divergence
    assert divergence(student, maps, reading).item() == pytest.approx(0, abs=1e-6)

    other = torch.rand(2, 512, 3, 3, requires_grad=True)
    apart = divergence(student, other, reading)
    said = scripts.teacher_words.say(student, other, reading.words)
    wanted = torch.nn.functional.kl_div(
        said[reading.mask], reading.said[reading.mask], reduction="none", log_target=True
    ).sum(-1)
    torch.testing.assert_close(apart, wanted.mean())
    (slope,) = torch.autograd.grad(apart, other)
    assert (slope != 0).any(dim=(1, 2, 3)).all()
    step = other.detach() - 0.1 / float(slope.norm()) * slope
    assert divergence(student, step, reading).item() < apart.item()
    assert all(weight.requires_grad for weight in student.parameters())
    assert not any(weight.requires_grad for weight in words_of_teachers.decoder.parameters())


@pytest.mark.parametrize("shape", [(6, 2, 3, 3), (40, 2, 3, 3)], ids=["wide", "tall"])
def test_muon_moves_all_directions_of_a_kernel_alike(
    scripts: Any, shape: tuple[int, int, int, int]
) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(shape[1], shape[0], 3), torch.nn.Conv2d(shape[0], 3, 1)
    )
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = scripts.muon.Muon(model, 0.01, 0.0, slow=model[1])
    gradients = {name: torch.randn_like(weight) for name, weight in model.named_parameters()}
    for name, weight in model.named_parameters():
        weight.grad = gradients[name].clone()
    optimizer.step()
    steps = {name: before[name] - weight.detach() for name, weight in model.named_parameters()}
    left, sizes, right = torch.linalg.svd(gradients["0.weight"].flatten(1), full_matrices=False)
    directions = (left.T @ steps["0.weight"].flatten(1) @ right.T).diagonal()
    size = 0.01 * scripts.muon.SIZE * max(shape[0], shape[1] * 9) ** 0.5
    assert sizes.max() / sizes.min() > 2
    assert 0.6 * size < directions.min() <= directions.max() < 1.3 * size
    for name in ("0.bias", "1.weight", "1.bias"):  # Adam's first step: the gradient's sign.
        assert torch.allclose(steps[name], 0.01 * gradients[name].sign(), atol=1e-4)
    assert torch.equal(model[0].weight.grad, gradients["0.weight"])


def test_new_context_changes_nothing_in_training_either(scripts: Any) -> None:
    torch.manual_seed(0)
    plain, deeper = (
        scripts.distill.Student(VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05, context=c)), None)
        for c in ((), (2, 4))
    )
    deeper.load_state_dict(plain.state_dict(), strict=False)
    pixels, targets = [torch.rand(4, 3, 64, 64)], [torch.randn(4, 512, 4, 4)]
    for student in (plain, deeper):
        student.eval()
        student.begin(pixels, targets)
    expected = plain.annotations(pixels[0])
    torch.testing.assert_close(deeper.annotations(pixels[0]), expected, rtol=1e-3, atol=1e-3)
    statistics = deeper.encoder.context[1].running_mean.clone()
    assert statistics.abs().max() > 0.1
    deeper.encoder.context.train()  # The rest as in evaluation: batch and sample are the same.
    torch.testing.assert_close(deeper.annotations(pixels[0]), expected, rtol=0.02, atol=0.02)
