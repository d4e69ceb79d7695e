"""Test the helpers of `images` against plain loops, their errors, and the checkers."""

from __future__ import annotations

import builtins

import numpy as np
import PIL.Image
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms.v2 import functional as F2
from verdicts import expect, seeding

from helpers import images
from helpers.demos import images as demos
from helpers.exercises import images as exercises

# ---------------------------------------------------------------- photos


def test_photos_are_uint8_rgb_images():
    for name in demos.PHOTOS:
        x = demos.photo(name)
        assert x.shape == (3, 427, 640) and x.dtype == torch.uint8 and x.is_contiguous()
    flower = demos.photo("flower")[:, 200:240, 300:320].float().mean((1, 2))
    assert flower[0] > flower[1] > flower[2]  # an orange flower, so red comes first
    with pytest.raises(ValueError, match="china, flower, got 'cat'"):
        demos.photo("cat")


def test_patches_are_crops_of_the_photos():
    squares, labels, names = demos.patches(16)
    assert squares.shape == (378, 3, 16, 16) and squares.dtype == torch.uint8
    assert labels.bincount().tolist() == [100, 100, 100, 78] and labels.dtype == torch.int64
    assert names == ("petals", "leaves", "sky", "trees")
    flower, china = demos.photo("flower"), demos.photo("china")
    assert torch.equal(squares[0], flower[:, 136:152, 232:248])
    assert torch.equal(squares[1], flower[:, 136:152, 248:264])
    assert torch.equal(squares[10], flower[:, 152:168, 232:248])
    assert torch.equal(squares[300], china[:, 320:336, 384:400])


@pytest.mark.parametrize("size", [0, -1, 105])
def test_patches_rejects_an_invalid_size(size):
    with pytest.raises(ValueError, match="size must be from 1 to 104"):
        demos.patches(size)


def test_draw_images_shows_every_image(caplog):
    shown = {
        "bytes": torch.full((3, 4, 6), 255, dtype=torch.uint8),
        "floats": torch.tensor([-1.0, 0.5, 2.0]).expand(3, 2, 3),
        "grey": torch.full((1, 4, 6), 7, dtype=torch.uint8),
    }
    figure = demos.draw_images(shown, columns=2)
    drawn = [a for a in figure.axes if a.images]
    assert [a.get_title(loc="left") for a in drawn] == list(shown)
    assert len(figure.axes) == 3 and not any(a.axison for a in figure.axes)
    assert drawn[0].images[0].get_array().min() == 255
    assert np.allclose(drawn[1].images[0].get_array()[0, :, 0], [0.0, 0.5, 1.0])
    assert drawn[2].images[0].get_array().shape == (4, 6)
    assert drawn[2].images[0].get_clim() == (0, 255)
    assert not caplog.records  # nothing left to clip


@pytest.mark.parametrize(
    ("shown", "columns", "says"),
    [
        ({}, None, "at least one image"),
        ({"a": torch.zeros(4, 6, 3)}, None, r"must be \(3, H, W\)"),
        ({"a": torch.zeros(4, 6)}, None, r"got \(4, 6\)"),
        ({"a": torch.zeros(3, 4, 6)}, 0, "columns must be at least 1"),
    ],
)
def test_draw_images_rejects_invalid_arguments(shown, columns, says):
    with pytest.raises(ValueError, match=says):
        demos.draw_images(shown, columns)


# ---------------------------------------------------------------- region confusion


def shuffle_blocks(x: Tensor, source: Tensor) -> Tensor:
    """Put block `source[i, j]` of a (C, H, W) image at place (i, j)."""
    blocks = len(source)
    h, w = x.shape[1] // blocks, x.shape[2] // blocks
    out = torch.empty_like(x)
    for place, origin in enumerate(source.flatten().tolist()):
        (i, j), (k, m) = divmod(place, blocks), divmod(origin, blocks)
        out[:, i * h : (i + 1) * h, j * w : (j + 1) * w] = x[
            :, k * h : (k + 1) * h, m * w : (m + 1) * w
        ]
    return out


@settings(max_examples=40, deadline=None)
@given(
    blocks=st.integers(2, 6),
    h=st.integers(1, 3),
    w=st.integers(1, 3),
    n=st.integers(1, 3),
    c=st.integers(1, 4),
    data=st.data(),
)
def test_region_confusion_moves_blocks_within_the_bound(blocks, h, w, n, c, data):
    neighbour = data.draw(st.integers(1, blocks - 1))
    x = torch.arange(n * c * blocks * h * blocks * w).view(n, c, blocks * h, blocks * w)
    kept = x.clone()
    shuffled, source = images.region_confusion(x, blocks, neighbour)
    assert shuffled.shape == x.shape and shuffled.dtype == x.dtype and torch.equal(x, kept)
    assert source.shape == (n, blocks, blocks) and source.dtype == torch.int64
    place = torch.arange(blocks * blocks).view(blocks, blocks)
    for i in range(n):
        assert torch.equal(source[i].flatten().sort().values, place.flatten())
        assert torch.equal(shuffled[i], shuffle_blocks(x[i], source[i]))
    far = [(source // blocks - place // blocks).abs(), (source % blocks - place % blocks).abs()]
    assert max(d.max() for d in far) < 2 * neighbour


def test_region_confusion_accepts_an_image_and_a_batch():
    x = torch.rand(5, 3, 12, 18)
    one, source = images.region_confusion(x[0], 6, 2)
    assert one.shape == (3, 12, 18) and source.shape == (6, 6)
    assert torch.equal(one, shuffle_blocks(x[0], source))
    _, sources = images.region_confusion(x, 6, 2)
    assert len({tuple(s.flatten().tolist()) for s in sources}) == 5  # each image has its own order
    again = [images.region_confusion(x, 6, 2, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(again[0][0], again[1][0]) and torch.equal(again[0][1], again[1][1])
    empty, none = images.region_confusion(torch.rand(0, 3, 12, 18), 6, 2)
    assert empty.shape == (0, 3, 12, 18) and none.shape == (0, 6, 6)
    half = images.region_confusion(x.half().contiguous(memory_format=torch.channels_last), 6, 1)
    assert half[0].dtype == torch.float16


def test_region_confusion_reaches_its_bound_and_keeps_gradients():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 1, 8, 8, requires_grad=True)
    for neighbour in (1, 2):
        shuffled, source = images.region_confusion(x, 8, neighbour, generator)
        place = torch.arange(64).view(8, 8)
        rows = (source // 8 - place // 8).abs().max()
        columns = (source % 8 - place % 8).abs().max()
        assert rows == columns == 2 * neighbour - 1
    shuffled.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize(
    ("shape", "blocks", "neighbour", "says"),
    [
        ((6, 6), 3, 1, r"expected \(C, H, W\) or \(N, C, H, W\)"),
        ((1, 1, 1, 6, 6), 3, 1, r"expected \(C, H, W\)"),
        ((3, 50, 56), 7, 2, r"multiples of 7, got \(50, 56\)"),
        ((3, 56, 50), 7, 2, r"multiples of 7, got \(56, 50\)"),
        ((3, 6, 6), 1, 1, "blocks must be at least 2"),
        ((3, 6, 6), 3, 0, "neighbour must be from 1 to 2, got 0"),
        ((3, 6, 6), 3, 3, "neighbour must be from 1 to 2, got 3"),
    ],
)
def test_region_confusion_rejects_invalid_arguments(shape, blocks, neighbour, says):
    with pytest.raises(ValueError, match=says):
        images.region_confusion(torch.zeros(shape), blocks, neighbour)


# ---------------------------------------------------------------- segments


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 400), k=st.integers(1, 60))
def test_segment_indices_returns_sorted_valid_indices(n, k):
    for train in (True, False):
        got = images.segment_indices(n, k, train)
        assert got.shape == (k,) and got.dtype == torch.int64
        assert got.min() >= 0 and got.max() < n and (got.diff() >= 0).all()
        if n <= k:
            assert set(got.tolist()) == set(range(n))  # no frame is left out
    if n >= k:
        drawn = images.segment_indices(n, k, train=True).tolist()
        for i, frame in enumerate(drawn):
            assert i * n // k <= frame < (i + 1) * n // k
    middle = images.segment_indices(n, k, train=False).tolist()
    assert middle == [int((2 * i + 1) * n / (2 * k) + 1e-9) for i in range(k)]


def test_segment_indices_can_draw_every_frame():
    generator = torch.Generator().manual_seed(0)
    for n, k in [(15, 8), (10, 3), (7, 7), (3, 8)]:
        drawn = torch.stack([images.segment_indices(n, k, True, generator) for _ in range(400)])
        assert set(drawn.flatten().tolist()) == set(range(n))
        assert len(drawn.unique(dim=0)) > 1 or n == k
    again = [images.segment_indices(90, 5, True, torch.Generator().manual_seed(1)) for _ in "ab"]
    assert torch.equal(*again)


@pytest.mark.parametrize("frames", [3, 90])
def test_segment_indices_uses_only_the_given_generator(frames):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    images.segment_indices(frames, 8, train=True, generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("n", [0, -1])
def test_segment_indices_rejects_invalid_arguments(n):
    with pytest.raises(ValueError, match=f"num_frames must be at least 1, got {n}: was the file"):
        images.segment_indices(n, 8, train=False)
    with pytest.raises(ValueError, match="segments must be at least 1, got 0"):
        images.segment_indices(8, 0, train=True)
    for wrong in ((15.0, 8), (15, 2.5)):
        with pytest.raises(TypeError, match="must be an int, got"):
            images.segment_indices(*wrong, train=False)


# ---------------------------------------------------------------- video


def numbered(count: int, height: int = 48, width: int = 64) -> Tensor:
    """Return red frames whose green channel encodes the frame number."""
    frames = torch.zeros(count, 3, height, width, dtype=torch.uint8)
    frames[:, 0] = 250
    frames[:, 1] = (8 * torch.arange(count)).view(-1, 1, 1)
    return frames


def numbers(frames: Tensor) -> list[int]:
    return (frames[:, 1].float().mean((1, 2)) / 8).round().long().tolist()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    pytest.importorskip("cv2")
    path = tmp_path_factory.mktemp("video") / "clip.avi"
    images.write_clip(path, numbered(30), fps=29.97)
    return path


def test_clip_round_trip_preserves_frames(clip):
    height, width, frames, fps = images.video_info(clip)
    assert (height, width, frames) == (48, 64, 30) and abs(fps - 29.97) < 0.01
    assert images.count_frames(clip) == 30
    got = images.read_frames(clip, list(range(30)))
    assert got.shape == (30, 3, 48, 64) and got.dtype == torch.uint8 and got.is_contiguous()
    assert (got.int() - numbered(30)).abs().max() <= 6  # JPEG
    assert numbers(got) == list(range(30))


def test_read_frames_accepts_any_order(clip):
    expected = [29, 0, 7, 7, 3]
    assert numbers(images.read_frames(clip, expected)) == expected
    assert numbers(images.read_frames(clip, torch.tensor(expected))) == expected
    assert numbers(images.read_frames(clip, np.array(expected, np.uint16))) == expected


@pytest.mark.parametrize(
    ("indices", "error", "says"),
    [
        ([30], ValueError, "clip.avi ends after 30 frames, frame 30 is missing"),
        ([-1], ValueError, "must not be negative, got -1"),
        ([], ValueError, "expected a list of frame numbers"),
        ([[1]], ValueError, r"got shape \(1, 1\)"),
        (torch.tensor([5.0, 15.0]), TypeError, "must be integers, got torch.float32"),
        ([True], TypeError, "must be integers"),
    ],
)
def test_read_frames_rejects_invalid_indices(clip, indices, error, says):
    with pytest.raises(error, match=says):
        images.read_frames(clip, indices)


@pytest.mark.parametrize(
    "read", [images.video_info, images.count_frames, lambda p: images.read_frames(p, [0])]
)
def test_missing_and_broken_videos_raise(tmp_path, read):
    pytest.importorskip("cv2")
    with pytest.raises(FileNotFoundError, match="no such file: missing.avi"):
        read(tmp_path / "missing.avi")
    (tmp_path / "text.avi").write_bytes(b"not a video" * 50)
    with pytest.raises(ValueError, match="OpenCV cannot read text.avi as a video"):
        read(tmp_path / "text.avi")
    (tmp_path / "empty.avi").touch()
    with pytest.raises(ValueError, match="cannot read empty.avi"):
        read(tmp_path / "empty.avi")


def test_truncated_video_has_fewer_frames_than_its_header(clip, tmp_path):
    data = clip.read_bytes()
    path = tmp_path / "cut.avi"
    path.write_bytes(data[: data.rfind(b"00dc", 0, len(data) // 2)])
    held = images.count_frames(path)
    assert 0 < held < images.video_info(path).frames == 30
    assert numbers(images.read_frames(path, [held - 1])) == [held - 1]
    with pytest.raises(ValueError, match=f"ends after {held} frames, frame 29 is missing"):
        images.read_frames(path, [29])


@pytest.mark.parametrize(
    ("frames", "name", "error", "says"),
    [
        (torch.zeros(2, 48, 64, 3, dtype=torch.uint8), "a.avi", ValueError, "frames must be"),
        (torch.zeros(0, 3, 48, 64, dtype=torch.uint8), "a.avi", ValueError, "T > 0"),
        (torch.zeros(2, 3, 48, 64), "a.avi", TypeError, "uint8, got torch.float32"),
        (torch.zeros(2, 3, 48, 64, dtype=torch.uint8), "a.mp4", ValueError, "end in .avi"),
        (torch.zeros(2, 3, 48, 64, dtype=torch.uint8), "no/a.avi", OSError, "cannot write"),
    ],
)
def test_write_clip_rejects_invalid_arguments(tmp_path, frames, name, error, says):
    with pytest.raises(TypeError, match="frames must be a tensor, got ndarray"):
        images.write_clip(tmp_path / "a.avi", np.zeros((2, 3, 48, 64), np.uint8))
    pytest.importorskip("cv2")
    with pytest.raises(error, match=says):
        images.write_clip(tmp_path / name, frames)


@pytest.mark.parametrize("fps", [0, -1, 0.5, float("nan"), 1e6])
def test_write_clip_rejects_an_invalid_frame_rate(tmp_path, fps):
    with pytest.raises(ValueError, match="fps must be from 1 to 1000, got"):
        images.write_clip(tmp_path / "a.avi", numbered(2), fps=fps)


@pytest.mark.parametrize("side", [(49, 64), (48, 63)])
def test_write_clip_rejects_odd_sides(tmp_path, side):
    with pytest.raises(ValueError, match="must be even, got"):
        images.write_clip(tmp_path / "a.avi", numbered(2, *side))


def test_write_clip_rejects_a_width_below_8(tmp_path):
    with pytest.raises(ValueError, match="width must be at least 8, got 6"):
        images.write_clip(tmp_path / "a.avi", numbered(2, 8, 6))


def test_video_info_of_an_image_reports_at_most_one_frame(tmp_path):
    pytest.importorskip("cv2")
    import PIL.Image

    PIL.Image.new("RGB", (6, 4)).save(tmp_path / "x.png")
    info = images.video_info(tmp_path / "x.png")
    assert (info.height, info.width) == (4, 6) and info.frames in (0, 1)


def test_missing_opencv_error_names_the_package(monkeypatch, tmp_path):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "cv2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    (tmp_path / "a.avi").write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install opencv-python-headless"):
        images.video_info(tmp_path / "a.avi")


# ---------------------------------------------------------------- exercises


def prepare(image, mean, std, mode="RGB", scale=True, flip=False, transpose=False):
    x = F2.to_image(image.convert(mode) if mode else image)
    x = F2.to_dtype(x, torch.float32, scale=scale)
    x = x.flip(0) if flip else x
    x = F2.normalize(x, list(mean), list(std))
    return x.permute(1, 2, 0) if transpose else x


def by_numpy(image, mean, std):
    array = np.array(image.convert("RGB"), dtype=np.float32) / 255
    array = (array - np.array(mean, np.float32)) / np.array(std, np.float32)
    return torch.from_numpy(array.transpose(2, 0, 1))


def not_normalized(image, mean, std):
    return F2.to_dtype(F2.to_image(image.convert("RGB")), torch.float32, scale=True)


def blackening(image, mean, std):
    x = prepare(image, mean, std)
    image.paste(image.point(lambda _: 0))
    return x


def channels_by_repeat(image, mean, std):
    x = F2.to_image(image)
    x = x.expand(3, -1, -1) if x.shape[0] == 1 else x[:3]
    return F2.normalize(F2.to_dtype(x, torch.float32, scale=True), list(mean), list(std))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (prepare, None),
        (by_numpy, None),
        (lambda i, m, s: prepare(i, m, s, scale=False), "not scaled to [0, 1]"),
        (lambda i, m, s: prepare(i, m, s, flip=True), "in the order BGR"),
        (lambda i, m, s: prepare(i, m, s, transpose=True), "expected shape (3,"),
        (lambda i, m, s: prepare(i, m, s, mode=None), "an image of mode"),
        (lambda i, m, s: prepare(i, m[::-1], s[::-1]), "are not (rgb / 255 - mean) / std"),
        (lambda i, m, s: prepare(i, m, s).double(), "expected torch.float32, got torch.float64"),
        (not_normalized, "not normalized with mean and std"),
        (channels_by_repeat, "an image of mode P gives wrong values"),
        (lambda i, m, s: prepare(i, m, s).half().float(), "are not (rgb / 255 - mean) / std"),
        (seeding(prepare), "state of torch was changed"),
        (blackening, "the image was changed"),
        (lambda i, m, s: (prepare(i, m, s), m.reverse())[0], "mean was changed"),
        (lambda i, m, s: np.array(i), "expected a tensor, got ndarray"),
        (lambda i, m, s: prepare(i.convert("L"), m, s), "are not (rgb / 255 - mean) / std"),
    ],
)
def test_check_prepare_returns_the_expected_verdict(answer, says):
    for seed in range(5):
        torch.manual_seed(seed)
        expect(exercises.check_prepare(answer), says)


def only_common_modes(image, mean, std):
    if image.mode in ("P", "L", "RGBA"):
        return prepare(image, mean, std)
    return channels_by_repeat(image, mean, std)


@pytest.mark.parametrize("seed", range(5))
def test_check_prepare_reports_uncommon_modes(seed):
    torch.manual_seed(seed)
    verdict = exercises.check_prepare(only_common_modes)
    assert "an image of mode LA" in verdict.message


def three_bands_are_rgb(image, mean, std):
    return prepare(image, mean, std, mode=None if len(image.getbands()) == 3 else "RGB")


@pytest.mark.parametrize("seed", range(5))
def test_check_prepare_reports_ycbcr_images(seed):
    torch.manual_seed(seed)
    verdict = exercises.check_prepare(three_bands_are_rgb)
    assert "an image of mode YCbCr gives wrong values" in verdict.message


def test_v2_normalize_broadcasts_one_channel():
    grey, three = torch.rand(1, 4, 4), ([0.1, 0.5, 0.9], [1, 2, 3])
    assert F2.normalize(grey, *three).shape == (3, 4, 4)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torchvision.transforms.functional.normalize(grey, *three)


def test_brightness_and_contrast_clamp_normalized_images():
    x = torch.randn(3, 20, 20) * 3
    for clamped in (F2.adjust_brightness, F2.adjust_contrast):
        assert 0 <= clamped(x, 1.1).min() <= clamped(x, 1.1).max() <= 1
    for free in (lambda x: F2.adjust_hue(x, 0.1), F2.rgb_to_grayscale):
        assert free(x).min() < 0 and free(x).max() > 1


def test_bilinear_downsampling_without_antialias_skips_pixels():
    for factor, skipped in ((2, 0), (3, 8 / 9), (4, 3 / 4)):
        x = torch.zeros(1, 1, 120, 120, requires_grad=True)
        small = torch.nn.functional.interpolate(x, (120 // factor,) * 2, mode="bilinear")
        small.sum().backward()
        assert (x.grad == 0).float().mean() == pytest.approx(skipped), factor


def test_interpolate_rejects_int64_masks():
    for dtype, works in ((torch.uint8, True), (torch.float32, True), (torch.int64, False)):
        mask = torch.zeros(1, 1, 4, 4, dtype=dtype)
        if works:
            assert torch.nn.functional.interpolate(mask, (8, 8)).dtype == dtype
        else:
            with pytest.raises((NotImplementedError, RuntimeError), match="not implemented"):
                torch.nn.functional.interpolate(mask, (8, 8))


def test_to_dtype_scales_by_the_maximum_of_the_integer_dtype():
    def unit(x):
        return F2.to_dtype(x, torch.float32, scale=True)

    assert unit(torch.tensor([[[255]]], dtype=torch.uint8)) == 1
    assert unit(torch.tensor([[[255]]])) < 1e-15


def test_pil_reduces_16_bit_colour_to_8_bits(tmp_path):
    cv2 = pytest.importorskip("cv2")
    cv2.imwrite(str(tmp_path / "c.png"), np.full((2, 2, 3), 40000, np.uint16))
    image = PIL.Image.open(tmp_path / "c.png")
    assert image.mode == "RGB" and image.getpixel((0, 0)) == (156, 156, 156)


def to_classes(mask, palette):
    colours = torch.tensor(palette, device=mask.device)
    match = (mask == colours[:, :, None, None]).all(1)
    return torch.where(match.any(0), match.int().argmax(0), 255)


def by_loop(mask, palette, other=255, dtype=torch.int64):
    classes = torch.full(mask.shape[1:], other, dtype=dtype)
    for number, colour in enumerate(palette):
        classes[(mask == torch.tensor(colour)[:, None, None]).all(0)] = number
    return classes


def by_code(mask, palette):
    place = torch.tensor([65536, 256, 1])
    codes = (mask.long() * place[:, None, None]).sum(0)
    match = codes == (torch.tensor(palette) * place).sum(1)[:, None, None]
    return match.int().argmax(0).masked_fill(~match.any(0), 255)


def nearest(mask, palette):
    far = mask.long() - torch.tensor(palette)[:, :, None, None]
    return far.square().sum(1).argmin(0)


def within(mask, palette, tolerance):
    far = (mask.long() - torch.tensor(palette)[:, :, None, None]).abs().amax(1)
    near = far.amin(0) <= tolerance
    return torch.where(near, far.argmin(0), 255)


def any_channel(mask, palette):
    match = (mask == torch.tensor(palette)[:, :, None, None]).any(1)
    return torch.where(match.any(0), match.int().argmax(0), 255)


def first_channel(mask, palette):
    classes = torch.zeros(mask.shape[1:], dtype=torch.int64)
    for number, colour in enumerate(palette):
        classes[mask[0] == colour[0]] = number
    return classes


def by_sum(mask, palette):
    match = mask.long().sum(0) == torch.tensor(palette).sum(1)[:, None, None]
    return torch.where(match.any(0), match.int().argmax(0), 255)


def by_dictionary(mask, palette):
    numbers = {tuple(colour): number for number, colour in enumerate(palette)}
    rows = mask.permute(1, 2, 0).tolist()
    return torch.tensor([[numbers.get(tuple(pixel), 255) for pixel in row] for row in rows])


def only_four(mask, palette):
    return to_classes(mask, palette[:4])


def test_check_to_classes_requires_more_than_four_colours():
    torch.manual_seed(0)
    assert not all(exercises.check_to_classes(only_four).passed for _ in range(5))


def in_place(mask, palette):
    right = to_classes(mask.clone(), palette)
    mask.zero_()
    return right


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (to_classes, None),
        (by_loop, None),
        (by_code, None),
        (nearest, "expected 255 for a colour"),
        (lambda m, p: within(m, p, 8), "expected 255 for a colour"),
        (lambda m, p: within(m, p, 0), None),
        (lambda m, p: by_loop(m, p, other=0), "expected 255 for a colour"),
        (any_channel, "a colour of the palette has a wrong class index"),
        (first_channel, "a colour of the palette has a wrong class index"),
        (by_sum, "a colour of the palette has a wrong class index"),
        (lambda m, p: by_loop(m, p, dtype=torch.uint8), "dtype int64, got torch.uint8"),
        (lambda m, p: to_classes(m, p[::-1]), "a colour of the palette has a wrong class index"),
        (lambda m, p: to_classes(m.flip(0), p), "a wrong class index"),
        (lambda m, p: to_classes(m, p).T, "a colour of the palette"),
        (lambda m, p: to_classes(m, p)[None], "expected shape"),
        (lambda m, p: to_classes(m, p).numpy(), "expected a tensor, got ndarray"),
        (in_place, "was changed"),
        (by_dictionary, None),
        (seeding(to_classes), "state of torch was changed"),
    ],
)
def test_check_to_classes_returns_the_expected_verdict(answer, says):
    for seed in range(10):
        torch.manual_seed(seed)
        expect(exercises.check_to_classes(answer), says)


def middle(n, k):
    return (2 * torch.arange(k) + 1) * n // (2 * k)


def lower_middle(n, k):
    edges = torch.arange(k + 1) * n // k
    return ((edges[:-1] + edges[1:] - 1) // 2).clamp(min=0)


def notes_like(n, k):
    if n > k:
        return (n // k // 2) + n // k * torch.arange(k)
    return torch.cat([torch.arange(n), torch.arange(k - n)]).sort().values


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (middle, None),
        (lower_middle, None),
        (lambda n, k: ((torch.arange(k) + 0.5) * n / k).long(), None),
        (lambda n, k: ((torch.arange(k) + 0.5) * n / k - 0.5).round().long(), None),
        (lambda n, k: ((torch.arange(k) + 0.5) * n / k).floor(), "dtype int64, got torch.float32"),
        (lambda n, k: torch.arange(k) * n // k, "from its segment's middle"),
        (
            lambda n, k: torch.arange(k) * n // k + max(n // k // 2 - 1, 0),
            "has one middle frame, and a frame is 1 away from it",
        ),
        (lambda n, k: torch.arange(1, 2 * k, 2).mul(n).sub(1).div(2 * k).long(), None),
        (lambda n, k: middle(min(n, 1000), k), "from its segment's middle"),
        (lambda n, k: ((torch.arange(k).half() + 0.5) * n / k).long(), "segments: a frame"),
        (seeding(middle), "state of torch was changed"),
        (notes_like, "15 frames, 8 segments: a frame is 6.6 frames"),
        (lambda n, k: middle(n, k) if n > k else notes_like(n, k), "does not exist"),
        (lambda n, k: middle(n, k).flip(0), "not in order"),
        (lambda n, k: middle(n, k) - n, "a frame number is negative"),
        (lambda n, k: middle(n, k)[:-1], "expected shape"),
        (lambda n, k: middle(n, k).tolist(), "expected a tensor, got list"),
        (lambda n, k: torch.arange(k) * (n // k), "from its segment's middle"),
    ],
)
def test_check_middle_frames_returns_the_expected_verdict(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_middle_frames(answer), says)


def test_check_prepare_uses_non_square_images():
    sizes = []

    def spy(image, mean, std):
        sizes.append(image.size)
        return prepare(image, mean, std)

    assert exercises.check_prepare(spy).passed
    assert len(sizes) == 10 and all(w != h for w, h in sizes)


# ---------------------------------------------------------------- sentences of the chapter


def test_opencv_reads_palette_colours_and_pil_reads_indices(tmp_path):
    import cv2
    import PIL.Image

    image = PIL.Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 128, 0, 0])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "mask.png")
    seen = cv2.imread(str(tmp_path / "mask.png"), cv2.IMREAD_UNCHANGED)
    assert seen.tolist() == [[[0, 0, 0], [0, 0, 128]]]
    with PIL.Image.open(tmp_path / "mask.png") as file:
        assert np.array(file).tolist() == [[0, 1]]


def test_v2_transforms_ignore_plain_tensors_beside_images():
    import PIL.Image
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    flip, plain = v2.RandomHorizontalFlip(p=1), torch.arange(24.0).view(1, 4, 6)
    assert torch.equal(flip(plain, plain)[0], plain.flip(-1))
    for image in (tv_tensors.Image(torch.rand(3, 4, 6)), PIL.Image.new("RGB", (6, 4))):
        assert torch.equal(flip(plain, image)[0], plain)


@pytest.mark.parametrize("n", [1, 3, 64, 1000])
def test_byte_keeps_the_lowest_8_bits_above_255(n):
    assert torch.full((n,), 1.5 * 255).byte().unique().tolist() == [126]


def test_truncated_mp4_does_not_open(tmp_path):
    import cv2

    code = cv2.VideoWriter_fourcc(*"mp4v")
    video = cv2.VideoWriter(str(tmp_path / "whole.mp4"), code, 30, (64, 48))
    if not video.isOpened():
        pytest.skip("this OpenCV writes no mp4")
    for _ in range(20):
        video.write(np.zeros((48, 64, 3), np.uint8))
    video.release()
    data = (tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) // 2])
    assert cv2.VideoCapture(str(tmp_path / "whole.mp4")).isOpened()
    assert not cv2.VideoCapture(str(tmp_path / "cut.mp4")).isOpened()
