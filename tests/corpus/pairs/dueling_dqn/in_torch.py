import torch
import torch.nn.functional as F
from torch import nn


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.value = nn.Linear(16, 1)
        self.advantage = nn.Linear(16, 3)

    def forward(self, state):
        h = self.body(state)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Dueling()
        self.target = Dueling().requires_grad_(False)


def build():
    return Agent()


def loss(net, batch):
    with torch.no_grad():
        best = net.target(batch["after"]).max(1, keepdim=True).values
        goal = batch["reward"] + 0.9 * best
    q = net.online(batch["state"]).gather(1, batch["action"])
    return F.smooth_l1_loss(q, goal), {"q": q, "goal": goal}
