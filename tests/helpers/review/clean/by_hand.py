import numpy as np
import torch

dtype, device = torch.float, torch.device("cpu")
x = torch.linspace(-np.pi, np.pi, 2000, device=device, dtype=dtype)
y = torch.sin(x)
a = torch.randn((), device=device, dtype=dtype, requires_grad=True)
b = torch.randn((), device=device, dtype=dtype, requires_grad=True)
learning_rate = 1e-6
for t in range(2000):
    y_pred = a + b * x
    loss = (y_pred - y).pow(2).sum()
    if t % 100 == 99:
        print(t, loss.item())
    loss.backward()
    with torch.no_grad():
        a -= learning_rate * a.grad
        b -= learning_rate * b.grad
        a.grad = None
        b.grad = None

w = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.LBFGS([w])


def closure():
    optimizer.zero_grad()
    loss = ((w - 1) ** 2).sum()
    loss.backward()
    return loss


for _ in range(10):
    optimizer.step(closure)
