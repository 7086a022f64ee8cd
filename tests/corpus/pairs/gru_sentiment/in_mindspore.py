from mindspore import mint, nn, ops


class Sentiment(nn.Cell):
    def __init__(self):
        super().__init__()
        self.lookup = nn.Embedding(40, 10)
        self.encoder = nn.GRU(10, 7, bidirectional=True, batch_first=True)
        self.score = nn.SequentialCell(nn.Dense(14, 8, activation="elu"), nn.Dense(8, 1))

    def construct(self, tokens):
        states, _ = self.encoder(self.lookup(tokens))
        return self.score(ops.max(states, 1)[0])


def build():
    return Sentiment()


def loss(net, batch):
    score = net(batch["tokens"])
    return mint.nn.functional.binary_cross_entropy_with_logits(score, batch["liked"]), {"score": score}
