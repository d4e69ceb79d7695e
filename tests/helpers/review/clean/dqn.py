import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 128)
        self.layer2 = nn.Linear(128, n_actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


class Agent:
    def __init__(self, env, gamma=0.99, tau=0.005):
        self.policy_net = DQN(4, 2)
        self.target_net = DQN(4, 2)
        self.target_net.load_state_dict(self.policy_net.state_dict())
        self.optimizer = torch.optim.AdamW(self.policy_net.parameters(), lr=1e-4)
        self.memory, self.gamma, self.tau = deque(maxlen=10000), gamma, tau

    def act(self, state, eps):
        if random.random() > eps:
            with torch.no_grad():
                return self.policy_net(state).max(1).indices.view(1, 1)
        return torch.tensor([[random.randrange(2)]])

    def optimize(self, batch):
        state, action, reward, next_state, done = batch
        q = self.policy_net(state).gather(1, action)
        with torch.no_grad():
            next_q = self.target_net(next_state).max(1).values
        expected = reward + self.gamma * next_q * (1 - done)
        loss = F.smooth_l1_loss(q, expected.unsqueeze(1))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(self.policy_net.parameters(), 100)
        self.optimizer.step()

    def soft_update(self):
        target, policy = self.target_net.state_dict(), self.policy_net.state_dict()
        for key in policy:
            target[key] = policy[key] * self.tau + target[key] * (1 - self.tau)
        self.target_net.load_state_dict(target)
