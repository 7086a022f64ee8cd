import mindspore as ms
from mindspore import mint, nn, ops


class Generator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(5, 16)
        self.fc2 = nn.Dense(16, 16)
        self.fc3 = nn.Dense(16, 12)

    def construct(self, z):
        x = ops.relu(self.fc1(z))
        x = ops.relu(self.fc2(x))
        return mint.tanh(self.fc3(x))


class Discriminator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = mint.nn.Linear(12, 16)
        self.b = mint.nn.Linear(16, 16)
        self.out = mint.nn.Linear(16, 1)

    def construct(self, x):
        x = ops.leaky_relu(self.a(x), 0.2)
        x = ops.leaky_relu(self.b(x), 0.2)
        return self.out(x)


class GAN(nn.Cell):
    def __init__(self):
        super().__init__()
        self.g = Generator()
        self.d = Discriminator()


def build():
    return GAN()


def bce(scores, label):
    return mint.nn.functional.binary_cross_entropy_with_logits(scores, ops.full_like(scores, label))


def train(net, batch):
    def critic_loss():
        fake = ops.stop_gradient(net.g(batch["noise"]))
        return bce(net.d(batch["real"]), 0.9) + bce(net.d(fake), 0.1), fake

    def generator_loss():
        scores = net.d(net.g(batch["noise2"]))
        return bce(scores, 0.9), scores

    weights_d = {name: value for name, value in net.parameters_and_names() if name.startswith("d.")}
    weights_g = {name: value for name, value in net.parameters_and_names() if name.startswith("g.")}
    (loss_d, fake), for_d = ms.value_and_grad(critic_loss, None, list(weights_d.values()), has_aux=True)()
    (loss_g, scores), for_g = ms.value_and_grad(generator_loss, None, list(weights_g.values()), has_aux=True)()
    gradients = dict(zip([*weights_d, *weights_g], [*for_d, *for_g], strict=True))
    return loss_d, {"fake": fake, "scores": scores, "loss_g": loss_g}, gradients
