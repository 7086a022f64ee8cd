import mindspore as ms
from mindspore import Parameter, nn, ops


class TwoTowers(nn.Cell):
    def __init__(self):
        super().__init__()
        self.left_tower = nn.SequentialCell(nn.Dense(9, 12, activation="relu"), nn.Dense(12, 5))
        self.right_tower = nn.SequentialCell(nn.Dense(7, 12, activation="relu"), nn.Dense(12, 5))
        self.log_scale = Parameter(ops.zeros((1,), ms.float32))

    def unit(self, x):
        return x / ops.sqrt(ops.sum(ops.square(x), -1, keepdim=True))

    def construct(self, users, items):
        u = self.unit(self.left_tower(users))
        v = self.unit(self.right_tower(items))
        return ops.matmul(u, v.T) * ops.exp(self.log_scale)


def build():
    return TwoTowers()


def loss(net, batch):
    similarity = net(batch["users"], batch["items"])
    rows = ops.cross_entropy(similarity, batch["which"])
    columns = ops.cross_entropy(ops.transpose(similarity, (1, 0)), batch["which"])
    return (rows + columns) / 2, {"similarity": similarity}
