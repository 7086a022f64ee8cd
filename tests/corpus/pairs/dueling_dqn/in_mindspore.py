from mindspore import mint, nn, ops


class QNet(nn.Cell):
    def __init__(self):
        super().__init__()
        self.trunk = nn.SequentialCell(mint.nn.Linear(6, 16), mint.nn.ReLU(), mint.nn.Linear(16, 16), mint.nn.ReLU())
        self.v = mint.nn.Linear(16, 1)
        self.a = mint.nn.Linear(16, 3)

    def construct(self, state):
        h = self.trunk(state)
        a = self.a(h)
        return self.v(h) + (a - mint.mean(a, 1, True))


class Agent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.policy = QNet()
        self.frozen = QNet()
        for weight in self.frozen.get_parameters():
            weight.requires_grad = False


def build():
    return Agent()


def loss(net, batch):
    best = ops.max(net.frozen(batch["after"]), 1, keepdims=True)[0]
    goal = ops.stop_gradient(batch["reward"] + best * 0.9)
    q = ops.gather_elements(net.policy(batch["state"]), 1, batch["action"])
    return nn.SmoothL1Loss(reduction="mean")(q, goal), {"q": q, "goal": goal}
