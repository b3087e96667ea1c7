# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""How much of a training step is communication that nothing hides: Farandole beside torch's DDP.

    farandole run -n 2 python bench/training.py --model resnet50
    python bench/training.py --ranks 4 --jobs 5 --model transformer --json FILE

The first line is one job, the second starts several, one after the other, and takes medians over
them: where the buffers of a model come to lie differs from job to job, and two equal models that
only compute may differ by a tenth of what DDP exposes.

Needs torch. Every variant has a copy of the model: one that only computes, one in
DistributedDataParallel over Gloo on the loopback interface, with its defaults and with
gradient_as_bucket_view, and one with Farandole's DistributedOptimizer. They take turns, step by
step and in changing order, in the same processes, on the same data, one thread per rank. A step is
zero_grad, forward, backward and SGD's step; all ranks begin it together, and it takes what its
slowest rank takes.

Exposed is the median step less the median step that only computes. Beside it stands the median
processor time of a rank in a step, of all its threads, which other work on the machine disturbs
less. Malloc is told to keep freed memory: which variant's gradients it would return to the system
and get back, page by page, depends on where in the heap they come to lie.

`wrong` counts the gradients of the first step that differ from DDP's. ResNet-50 has its 161 tensors
but small images, so that a step takes well under a second; the transformer has 17 million
parameters in 51 tensors.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import farandole
import farandole.torch as hvd

COMPUTE = "compute"
DDP, DDP_VIEWS, OURS = "ddp", "ddp, bucket views", "farandole"
LEARNING_RATE = 1e-3


class Bottleneck(nn.Module):
    """The block of [He15] fig. 5, with the stride in its middle convolution."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def resnet50() -> nn.Module:
    """Images [batch, 3, side, side] to scores [batch, 1000]."""
    first = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Transformer(nn.Module):
    """Words [batch, length] to scores [batch * length, words] of what comes next."""

    words, width, length = 8192, 448, 64

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.words, self.width)
        self.positions = nn.Embedding(self.length, self.width)
        layer = nn.TransformerEncoderLayer(
            *(self.width, 7, 4 * self.width, 0.0), batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.scores = nn.Linear(self.width, self.words, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(self.length))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        inputs = self.embedding(text) + self.positions.weight
        return self.scores(self.layers(inputs, mask=self.mask, is_causal=True)).flatten(0, 1)


def make_batch(model: str, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if model == "resnet50":
        images = torch.randn(size, 3, 64, 64, generator=generator)
        return images, torch.randint(1000, (size,), generator=generator)
    text = torch.randint(Transformer.words, (size, Transformer.length + 1), generator=generator)
    return text[:, :-1], text[:, 1:].flatten()


class Variant:
    """A model, its optimizer, and how long its steps took."""

    def __init__(self, name: str, build: Callable[[], nn.Module]) -> None:
        torch.manual_seed(0)
        self.name = name
        self.model = build()
        self.parameters = list(self.model.parameters())
        self.seconds: list[float] = []
        self.processor_seconds: list[float] = []
        # DDP would also send the running statistics of batch norms, which the others do not.
        if name == DDP:
            self.model = DistributedDataParallel(self.model, broadcast_buffers=False)
        elif name == DDP_VIEWS:
            self.model = DistributedDataParallel(
                self.model, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        self.optimizer = torch.optim.SGD(self.parameters, LEARNING_RATE)
        if name == OURS:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        farandole.barrier()
        start, processor = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), targets).backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        farandole.barrier()  # what serves slower ranks counts too
        self.processor_seconds.append(time.process_time() - processor)


def wrong_gradients(variant: Variant, wanted: Variant) -> int:
    """On all ranks together."""
    wrong = 0
    for mine, theirs in zip(variant.parameters, wanted.parameters, strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        atol = 1e-5 * float(theirs.grad.abs().max())
        wrong += not torch.allclose(mine.grad, theirs.grad, rtol=1e-4, atol=atol)
    return int(farandole.allreduce(np.array([wrong]))[0])


def over_ranks(samples: list[float], op: str) -> list[float]:
    """Milliseconds per step."""
    return [float(ms) for ms in farandole.allreduce(np.array(samples), op=op) * 1e3]


def above_compute(samples: dict[str, list[float]]) -> dict[str, float]:
    compute = statistics.median(samples[COMPUTE])
    return {name: statistics.median(values) - compute for name, values in samples.items()}


def report(ms: dict[str, list[float]], processor_ms: dict[str, list[float]], wrong: int) -> None:
    exposed, used = above_compute(ms), above_compute(processor_ms)
    print(
        f"{'':<18}{'step':>8}{'exposed':>9}{'of DDP':>8}{'processor':>11}{'more':>7}{'of DDP':>8}"
    )
    for name in ms:
        step, processor = statistics.median(ms[name]), statistics.median(processor_ms[name])
        shares = [f"{x[name] / x[DDP]:8.2f}" for x in (exposed, used)]
        print(
            f"{name:<18}{step:8.1f}{exposed[name]:9.1f}{shares[0]}"
            f"{processor:11.1f}{used[name]:7.1f}{shares[1]}"
        )
    print(f"times in ms; wrong {wrong}", flush=True)


def pool(arguments: argparse.Namespace) -> None:
    """Starts jobs and prints what they expose, in each and in the median."""
    rows = []
    for _ in range(arguments.jobs):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, "-m", "farandole.cli", "run", "-n", str(arguments.ranks)]
            command += [sys.executable, __file__, "--model", arguments.model]
            for option in ("batch", "rounds", "warmup"):
                command += [f"--{option}", str(getattr(arguments, option))]
            subprocess.run([*command, "--json", file.name], check=True)
            rows.append(json.loads(Path(file.name).read_text()))
    print(f"\n{arguments.model}, {arguments.ranks} ranks, medians of {len(rows)} jobs")
    print(f"{'':<18}{'exposed':>9}{'of DDP':>8}  of DDP in each job")
    exposed = [above_compute(row["ms"]) for row in rows]
    medians = {name: statistics.median(job[name] for job in exposed) for name in exposed[0]}
    for name, ms in medians.items():
        each = " ".join(f"{job[name] / job[DDP]:.2f}" for job in exposed)
        print(f"{name:<18}{ms:9.1f}{ms / medians[DDP]:8.2f}  {each}")
    print(f"times in ms; wrong {sum(row['wrong'] for row in rows)}", flush=True)
    if arguments.json is not None:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


def keep_freed_memory() -> None:
    libc = ctypes.CDLL(None)
    for parameter, size in ((-1, 1 << 30), (-3, 32 << 20)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        if libc.mallopt(parameter, size) != 1:
            raise RuntimeError(f"mallopt({parameter}, {size}) failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", choices=("resnet50", "transformer"), default="resnet50")
    parser.add_argument("--batch", type=int, default=2, help="samples per rank")
    parser.add_argument("--rounds", type=int, default=20, help="steps of each variant")
    parser.add_argument("--warmup", type=int, default=3, help="steps before that")
    parser.add_argument("--json", type=Path, help="file for every sample")
    parser.add_argument("--ranks", type=int, help="starts jobs of so many ranks")
    parser.add_argument("--jobs", type=int, default=5, help="how many, with --ranks")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}, allowed is 1 or more")
    if arguments.ranks is None:
        measure(arguments)
    else:
        pool(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """One job, on every rank."""
    # Later versions of torch want another word for broadcast_buffers, which the present ones lack.
    warnings.simplefilter("ignore", FutureWarning)
    keep_freed_memory()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    hvd.init()
    dist.init_process_group("gloo")
    build = resnet50 if arguments.model == "resnet50" else Transformer
    variants = [Variant(name, build) for name in (COMPUTE, DDP, DDP_VIEWS, OURS)]
    by_name = {variant.name: variant for variant in variants}
    batch = make_batch(arguments.model, arguments.batch, farandole.rank())
    wrong = 0
    for number in range(arguments.warmup + arguments.rounds):
        for variant in random.Random(number).sample(variants, len(variants)):
            variant.step(*batch)
        if number == 0:
            wrong = wrong_gradients(by_name[OURS], by_name[DDP])
    ms, processor_ms = {}, {}
    for variant in variants:
        ms[variant.name] = over_ranks(variant.seconds, "max")[arguments.warmup :]
        times = over_ranks(variant.processor_seconds, "average")
        processor_ms[variant.name] = times[arguments.warmup :]
    if farandole.rank() == 0:
        parameters = by_name[COMPUTE].parameters
        elements = sum(parameter.numel() for parameter in parameters)
        load = os.getloadavg()[0]
        print(
            f"{arguments.model}, {len(parameters)} tensors, {elements:,} elements, "
            f"{farandole.size()} ranks on {os.cpu_count()} cores, load {load:.1f}"
        )
        report(ms, processor_ms, wrong)
        if arguments.json is not None:
            row: dict[str, Any] = vars(arguments) | {"json": None}
            row |= {"ranks": farandole.size(), "cores": os.cpu_count(), "load": load}
            row |= {"wrong": wrong, "ms": ms, "processor_ms": processor_ms}
            arguments.json.write_text(json.dumps(row) + "\n")
    farandole.shutdown()
    os._exit(0)  # Gloo's threads sometimes outlive their process group


if __name__ == "__main__":
    main()
