# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole algorithms`: what there is to choose from, also as docs/algorithms.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from farandole.cli.arguments import Json, write_json
from farandole.report.tables import Row, as_markdown, print_table

COLUMNS = ("collective", "name", "cost", "needs", "options", "source", "summary")
SOURCES = {
    "[Thakur05]": "Thakur, Rabenseifner, Gropp. Optimization of collective communication "
    "operations in MPICH. IJHPCA 19(1), 2005",
    "[Patarasuk09]": "Patarasuk, Yuan. Bandwidth optimal all-reduce algorithms for clusters of "
    "workstations. JPDC 69(2), 2009",
    "[Sanders09]": "Sanders, Speck, Träff. Two-tree algorithms for full bandwidth broadcast, "
    "reduction and scan. Parallel Computing 35(12), 2009",
    "[Cho19]": "Cho, Finkler, Kung. BlueConnect: decomposing all-reduce for deep learning on "
    "heterogeneous network hierarchy. MLSys 2019",
    "[Ueno19]": "Ueno, Yokota. Exhaustive study of hierarchical AllReduce patterns for large "
    "messages between GPUs. CCGRID 2019",
    "[Xin20]": "Xin, Xie, Li. Large message broadcast design for distributed machine learning. "
    "Computer Systems & Applications 29(1), 2020",
    "[Awan18]": "Awan et al. Optimized broadcast for deep learning workloads on dense-GPU "
    "InfiniBand clusters: MPI or NCCL? EuroMPI 2018",
    "Bruck et al. 1997": "Bruck, Ho, Kipnis, Upfal, Weathersby. Efficient algorithms for "
    "all-to-all communications in multiport message-passing systems. IEEE TPDS 8(11), 1997",
    "Hensgen, Finkel, Manber 1988": "Two algorithms for barrier synchronization. International "
    "Journal of Parallel Programming 17(1), 1988",
}
INTRODUCTION = """\
# Algorithms

Made by `farandole algorithms --markdown`; do not edit.

Name one in a call or in `FARANDOLE_ALGORITHM`, with options behind a colon:
`hierarchical:layers=4ring/8direct`, `knomial:radix=4`, `pipelined_chain:chunks=32,order=0/2/1/3`.
Each is proved by `farandole verify` and drawn by `farandole explain`.

In the costs p is the number of ranks, n the message's bytes, a the time to start a message and b
the time per byte; k is the radix, c the bytes of a piece, q the ranks of a node, p_i and b_i the
size and the time per byte of layer i of h.

| option | value |
| --- | --- |
| layers | sizes from the innermost out, each with `ring` (the default), `halving` or `direct` |
| radix | of a tree, 2 to 8 |
| chunks | pieces that follow each other through a pipeline, 1 to 4096 |
| order | the rank at each position |

Where results must not depend on the algorithm (`deterministic=True`), every chunk is
((x0 + x1) + x2) + ... in the order of the ranks. What is summed travels as it was given then, and
needs scratch memory for as many bytes as the input; algorithms that do not cut the message send
all of it to every rank, and need p times as much. Beyond 512 ranks allreduce and reduce sum along
one pipelined chain, 2(p-2+m)a + 2nb with m = 16 pieces, and reducescatter has no fixed order.
"""


def algorithms(
    json: Json = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/algorithms.md.")] = False,
) -> None:
    """List the algorithms of every collective.

    In the costs p is the number of ranks, n the message's bytes, a the time to start a message
    and b the time per byte.
    """
    from farandole import _native

    if json is not None and markdown:
        raise typer.BadParameter("give --json or --markdown, not both")
    rows = _native.algorithms()
    if write_json(json, rows):
        return
    if markdown:
        print(document(rows), end="")
    else:
        print_table(rows, COLUMNS, wrapped=COLUMNS[2:])


def document(rows: Sequence[Row]) -> str:
    """The text of docs/algorithms.md: a table for each collective, then the sources."""
    parts = [INTRODUCTION]
    for collective in dict.fromkeys(row["collective"] for row in rows):
        chosen = [row for row in rows if row["collective"] == collective]
        parts.append(f"## {collective}\n\n{as_markdown(chosen, COLUMNS[1:])}\n")
    sources = "".join(f"- {tag}: {title}\n" for tag, title in SOURCES.items())
    parts.append(f"## Sources\n\n{sources}")
    return "\n".join(parts)
