import mindspore as ms
from mindspore import nn, ops


class Tagger(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.rnn = nn.LSTM(12, 10, batch_first=True)
        self.to_tag = nn.Dense(10, 7)

    def construct(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.to_tag(hidden)


def build():
    return Tagger()


def loss(net, batch):
    scores = net(batch["sentence"])
    tags = batch["tags"].reshape(-1)
    each = ops.cross_entropy(scores.reshape((-1, 7)), tags, reduction="none")
    mask = (tags != 0).astype(ms.float32)
    return (each * mask).sum() / mask.sum(), {"scores": scores}
