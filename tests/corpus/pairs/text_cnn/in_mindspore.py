from mindspore import nn, ops


class TextCNN(nn.Cell):
    def __init__(self, width=12):
        super().__init__()
        self.emb = nn.Embedding(50, width)
        self.k2 = nn.Conv2d(1, 6, (2, width), pad_mode="valid", has_bias=True)
        self.k3 = nn.Conv2d(1, 6, (3, width), pad_mode="valid", has_bias=True)
        self.k4 = nn.Conv2d(1, 6, (4, width), pad_mode="valid", has_bias=True)
        self.classifier = nn.Dense(18, 4)

    def largest(self, conv, x):
        x = ops.relu(conv(x)).squeeze(3)
        return ops.max(x, 2)[0]

    def construct(self, text):
        x = ops.expand_dims(self.emb(text), 1)
        x = ops.cat((self.largest(self.k2, x), self.largest(self.k3, x), self.largest(self.k4, x)), 1)
        return self.classifier(x)


def build():
    return TextCNN()


def loss(net, batch):
    logits = net(batch["text"])
    return nn.CrossEntropyLoss()(logits, batch["topic"]), {"logits": logits}
