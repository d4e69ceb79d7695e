"""Test the loader of scikit-learn's digits, which several chapters use."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import digits


def test_digits_match_scikit_learn():
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = digits.load(range(10))
    assert x.shape == (1797, 1, 8, 8) and x.dtype == torch.float32
    assert y.dtype == torch.int64 and y.tolist() == data.target.tolist()
    assert torch.equal(x[:, 0] * 16, torch.tensor(data.images, dtype=torch.float32))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True))
def test_labels_follow_the_order_of_the_classes(classes):
    x, y = digits.load(classes)
    everything, label = digits.load(range(10))
    chosen = torch.isin(label, torch.tensor(classes))
    assert torch.equal(x, everything[chosen])
    assert [classes[i] for i in y.tolist()] == label[chosen].tolist()


@pytest.mark.parametrize("classes", [[], [3, 3], [10], [-1], range(4, 11)])
def test_load_rejects_other_classes(classes):
    with pytest.raises(ValueError, match="different digits from 0 to 9"):
        digits.load(classes)


def test_changed_images_do_not_affect_the_next_load():
    x, _ = digits.load(range(10))
    x.zero_()
    assert digits.load(range(10))[0].any()


def test_split_contains_every_digit_once_and_is_reproducible():
    train, valid = digits.split()
    x, y = (torch.cat(pair) for pair in zip(train.tensors, valid.tensors, strict=True))
    assert len(train) == 1437 and len(valid) == 360
    image, label = train[0]
    assert image.shape == (1, 8, 8) and label.dtype == torch.int64

    def rows(x, y):
        return sorted(
            (*image.flatten().tolist(), int(label)) for image, label in zip(x, y, strict=True)
        )

    everything, labels = digits.load()
    assert rows(x, y) == rows(everything, labels)
    assert not torch.equal(x, everything)  # shuffled
    again = digits.split()[0]
    assert torch.equal(again.tensors[0], train.tensors[0])
    assert len(digits.split(5)[1]) == 5


@pytest.mark.parametrize("validation", [0, -1, 1797])
def test_split_rejects_an_empty_set(validation):
    with pytest.raises(ValueError, match=f"from 1 to 1796, got {validation}"):
        digits.split(validation)
