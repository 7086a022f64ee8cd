from mindspore import mint, nn, ops


class DeepFM(nn.Cell):
    def __init__(self, size=6):
        super().__init__()
        self.tables = nn.CellList([nn.Embedding(count, size) for count in (10, 7, 3)])
        self.words = nn.Embedding(15, size)
        self.wide = nn.Dense(3, 1)
        self.fc1 = nn.Dense(4 * size, 16)
        self.fc2 = nn.Dense(16, 8)
        self.fc3 = nn.Dense(8, 1)
        self.relu = ops.ReLU()

    def construct(self, fields, words, numbers):
        columns = [table(fields[:, number]) for number, table in enumerate(self.tables)]
        columns.append(mint.mean(self.words(words), 1))
        embedded = ops.stack(columns, 1)
        total = mint.sum(embedded, 1)
        cross = mint.square(total) - mint.sum(mint.square(embedded), 1)
        second_order = 0.5 * mint.sum(cross, 1, True)
        x = embedded.reshape((embedded.shape[0], -1))
        deep = self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))
        return ops.squeeze(self.wide(numbers) + second_order + deep, 1)


def build():
    return DeepFM()


def loss(net, batch):
    score = net(batch["fields"], batch["words"], batch["numbers"])
    return nn.BCELoss(reduction="mean")(ops.sigmoid(score), batch["clicked"]), {"score": score}
