from mindspore import mint, nn


class GraphConv(nn.Cell):
    def __init__(self, inside, outside):
        super().__init__()
        self.neighbour_weight = nn.Dense(inside, outside, has_bias=False)
        self.self_weight = nn.Dense(inside, outside)

    def construct(self, x, adjacency):
        return self.neighbour_weight(mint.matmul(adjacency, x)) + self.self_weight(x)


class GraphNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gc1 = GraphConv(5, 8)
        self.gc2 = GraphConv(8, 8)
        self.readout = nn.Dense(8, 3)

    def construct(self, x, adjacency):
        x = mint.nn.functional.relu(self.gc1(x, adjacency))
        x = mint.nn.functional.relu(self.gc2(x, adjacency))
        return self.readout(x)


def build():
    return GraphNet()


def loss(net, batch):
    logits = net(batch["nodes"], batch["adjacency"])
    return nn.CrossEntropyLoss()(logits, batch["labels"]), {"logits": logits}
