import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torchvision.models import VGG19_Weights, vgg19


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = vgg19(weights=VGG19_Weights.DEFAULT).features.eval()
content_losses = []
model = nn.Sequential(Normalization([0.5], [0.2]))
for i, layer in enumerate(cnn.children()):
    model.add_module(str(i), layer)
    if i == 3:
        content_loss = ContentLoss(model(content_img).detach())
        model.add_module(f"content_{i}", content_loss)
        content_losses.append(content_loss)
input_img = content_img.clone()
input_img.requires_grad_(True)
model.eval()
model.requires_grad_(False)
optimizer = optim.LBFGS([input_img])
run = [0]
while run[0] <= 300:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        content_score = 0
        for cl in content_losses:
            content_score += cl.loss
        content_score.backward()
        run[0] += 1
        return content_score

    optimizer.step(closure)
