"""Elements of dump.json, for tests."""


def tensor(low=-1.0, high=2.0, mean=0.5, norm=3.0, *, dtype="torch.float32", shape=(2, 2), grad=True, **more):
    """An element of dump.json."""
    numbers = {"Max": high, "Min": low, "Mean": mean, "Norm": norm}
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), **numbers, "requires_grad": grad} | more
