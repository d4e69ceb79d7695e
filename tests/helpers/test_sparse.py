"""Test `dense_parts` for each tensor layout."""

import pytest
import torch

from helpers.sparse import dense_parts

SPARSE = {
    "coo": torch.Tensor.to_sparse_coo,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_dense_parts_share_memory_with_the_sparse_tensor(layout):
    x = SPARSE[layout](torch.eye(4)).requires_grad_()
    *indices, values = dense_parts(x)
    assert all(
        part.layout == torch.strided and not part.requires_grad for part in (values, *indices)
    )
    assert indices and not any(part.is_floating_point() for part in indices)
    values.mul_(3)
    torch.testing.assert_close(x.detach().to_dense(), 3 * torch.eye(4))


def test_dense_parts_of_a_dense_tensor_returns_it():
    x = torch.ones(2, requires_grad=True)
    assert [part is x for part in dense_parts(x)] == [True]
