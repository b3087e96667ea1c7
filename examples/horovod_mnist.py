# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""What a training script for Horovod looks like; the import of `hvd` is all that is new in it.

    farandole run -n 4 examples/horovod_mnist.py --compression bf16

It learns scikit-learn's 1,797 handwritten digits of 8x8 pixels, which stand for MNIST. Every rank
has its own batches, so more ranks mean larger batches, and a learning rate that grows with them.
"""

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import farandole.torch as hvd

TEST_COUNT = 360
COMPRESSIONS = {
    "none": hvd.Compression.none,
    "fp16": hvd.Compression.fp16,
    "bf16": hvd.Compression.bf16,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learns digits as a Horovod script does.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="of one rank and pass")
    parser.add_argument("--batches-per-allreduce", type=int, default=1)
    parser.add_argument("--base-lr", type=float, default=0.0125, help="of one rank and pass")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    parser.add_argument("--use-adasum", action="store_true")
    parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
    parser.add_argument("--num-groups", type=int, default=0)
    parser.add_argument("--loss-file", type=Path, help="gets JSON lines: step, loss")
    return parser.parse_args()


def load() -> tuple[TensorDataset, TensorDataset]:
    """Images [count, 64] of mean 0 and variance 1, with labels: to learn from, and to be tested."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32)
    images, labels = (images - images.mean()) / images.std(), torch.tensor(data.target)
    learning = TensorDataset(images[TEST_COUNT:], labels[TEST_COUNT:])
    return learning, TensorDataset(images[:TEST_COUNT], labels[:TEST_COUNT])


def average(value: torch.Tensor, name: str) -> float:
    return hvd.allreduce(value.detach(), name=name).item()


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[tuple[torch.Tensor, ...]],
    batch_size: int,
) -> list[float]:
    """The mean loss over all ranks in each step, whose passes take `batch_size` images each."""
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, expected in zip(images.split(batch_size), labels.split(batch_size), strict=True):
            loss = nn.functional.cross_entropy(model(part), expected) * len(part) / len(images)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        losses.append(average(total, "loss"))
    return losses


def test(model: nn.Module, data: TensorDataset) -> float:
    """The share of correct answers; each rank gives some of them."""
    images, labels = data.tensors
    mine = slice(hvd.rank(), None, hvd.size())
    with torch.no_grad():
        correct = (model(images[mine]).argmax(1) == labels[mine]).sum()
    return hvd.allreduce(correct, name="correct", op=hvd.Sum).item() / len(labels)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    learning, testing = load()

    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        learning, num_replicas=hvd.size(), rank=hvd.rank(), seed=args.seed
    )
    step_size = args.batch_size * args.batches_per_allreduce
    loader = DataLoader(learning, step_size, sampler=sampler, drop_last=True)

    # GELU, because a ReLU would let rounding errors grow; see digits.py.
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU())
    model.append(nn.Linear(64, 10))
    # Adasum finds the length of a step by itself, from the angles between gradients.
    scale = args.batches_per_allreduce * (1 if args.use_adasum else hvd.size())
    sgd = torch.optim.SGD(model.parameters(), lr=args.base_lr * scale, momentum=args.momentum)

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(sgd, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        sgd,
        named_parameters=model.named_parameters(),
        compression=COMPRESSIONS[args.compression],
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
        num_groups=args.num_groups,
    )

    losses: list[float] = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        losses += train_epoch(model, optimizer, loader, args.batch_size)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}  loss {losses[-1]:.4f}", flush=True)
    accuracy = test(model, testing)
    if hvd.rank() == 0:
        print(f"{hvd.size()} rank(s), {len(losses)} steps, test accuracy {accuracy:.3f}")
        if args.loss_file is not None:
            rows = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
            args.loss_file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    hvd.shutdown()


if __name__ == "__main__":
    main()
