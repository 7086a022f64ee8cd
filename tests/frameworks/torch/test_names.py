"""What functions are called."""

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

from twintrace.frameworks.torch.names import describe  # noqa: E402


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.mm, "torch.mm"),
        (torch.spmm, "torch.spmm"),  # equal to torch.mm, as Python compares functions of C
        (torch.relu, "torch.relu"),
        (torch.nn.functional.relu, "torch.nn.functional.relu"),
        (torch.nn.functional.linear, "torch.nn.functional.linear"),
        (torch.Tensor.add, "torch.Tensor.add"),
        (torch.Tensor.mm, "torch.Tensor.mm"),
    ],
)
def test_a_function_has_the_name_it_is_called_by(function, name):
    assert describe(function).name == name
