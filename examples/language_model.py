# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""A small transformer that learns to write Python's manual, character by character.

    farandole run -n 4 examples/language_model.py
    python examples/language_model.py

The text is that of Python's help(), which every Python brings. A seed fixes the order of the data
over all ranks, so any number of processes that share a global batch evenly learn the same, up to
rounding.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import nn

import farandole.torch as hvd

CONTEXT = 48  # characters that the model sees
WIDTH = 64
LETTERS = "\n" + "".join(map(chr, range(32, 127)))  # others are left out of the text
COMPRESSIONS = {
    "none": hvd.Compression.none,
    "fp16": hvd.Compression.fp16,
    "bf16": hvd.Compression.bf16,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learns to write Python's manual.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--characters", type=int, default=60_000, help="length of the text")
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    parser.add_argument("--num-groups", type=int, default=0)
    parser.add_argument("--loss-file", type=Path, help="gets JSON lines: step, loss")
    return parser.parse_args()


class LanguageModel(nn.Module):
    """Characters [batch, length] to scores [batch, length, letter] of what comes next.

    Smooth and without dropout, so that rounding stays rounding; see digits.py. Without biases:
    the loss does not depend on those of attention's keys, whose gradients are rounding errors
    that Adam would make steps of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            nhead=4,
            dim_feedforward=4 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
            bias=False,
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.scores = nn.Linear(WIDTH, len(LETTERS), bias=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        inputs = self.letters(text) + self.positions.weight[:length]
        outputs = self.layers(inputs, mask=self.mask[:length, :length], is_causal=True)
        scores: torch.Tensor = self.scores(outputs)
        return scores


def windows(character_count: int) -> torch.Tensor:
    """Pieces of the text [count, CONTEXT + 1]; each begins with the last character of another."""
    numbers = {letter: number for number, letter in enumerate(LETTERS)}
    text = "\n".join(topics[name] for name in sorted(topics))
    known = [numbers[letter] for letter in text if letter in numbers]
    return torch.tensor(known[:character_count]).unfold(0, CONTEXT + 1, CONTEXT)


def own_shares(data: torch.Tensor, batch_size: int, seed: int) -> Iterator[torch.Tensor]:
    """This rank's share of each global batch of an epoch; an incomplete last one is dropped."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    share = batch_size // hvd.size()
    for first in range(0, len(order) - batch_size + 1, batch_size):
        mine = first + hvd.rank() * share
        yield data[order[mine : mine + share]]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    """The loss over the global batch, before the step."""
    optimizer.zero_grad()
    scores = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return hvd.allreduce(loss.detach(), name="loss").item()


@torch.no_grad()
def write(model: nn.Module, beginning: str, length: int, seed: int) -> str:
    """`beginning`, continued by drawing each character from what the model expects."""
    generator = torch.Generator().manual_seed(seed)
    text = [LETTERS.index(letter) for letter in beginning]
    for _ in range(length):
        expected = model(torch.tensor([text[-CONTEXT:]]))[0, -1].softmax(0)
        text.append(int(torch.multinomial(expected, 1, generator=generator)))
    return "".join(LETTERS[number] for number in text)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    if arguments.batch_size % hvd.size() != 0:
        sys.exit(f"A batch of {arguments.batch_size} cannot be shared evenly by {hvd.size()} ranks")
    torch.set_num_threads(1)  # ranks share the cores
    torch.manual_seed(arguments.seed)
    data = windows(arguments.characters)

    model = LanguageModel()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=arguments.lr, eps=1e-5),
        named_parameters=model.named_parameters(),
        compression=COMPRESSIONS[arguments.compression],
        num_groups=arguments.num_groups,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    losses: list[float] = []
    for epoch in range(arguments.epochs):
        shares = own_shares(data, arguments.batch_size, 1000 * arguments.seed + epoch)
        losses += [train_step(model, optimizer, share) for share in shares]
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{arguments.epochs}  loss {losses[-1]:.4f}", flush=True)
    if hvd.rank() == 0:
        if arguments.loss_file is not None:
            rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
            arguments.loss_file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        print(f"{hvd.size()} rank(s), {len(losses)} steps; the model writes:")
        print(write(model, "The ", 160, arguments.seed))
    hvd.shutdown()


if __name__ == "__main__":
    main()
