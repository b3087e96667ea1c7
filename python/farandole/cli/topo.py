# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""`farandole topo`: this host, or a machine file, as a tree and as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from farandole.cli.arguments import Json, MachineIfGiven, Svg, printed, write


def topo(
    machine: MachineIfGiven = None,
    svg: Svg = None,
    json: Json = None,
    names: Annotated[bool, typer.Option("--list", help="List the machines and exit.")] = False,
) -> None:
    """Show what this host, or a described machine, is made of.

    Without --machine it looks at this host: sockets, cores, caches, memory, network interfaces,
    and GPUs where nvidia-ml-py is installed. A rate that nothing tells is assumed, and marked
    so; `farandole probe` measures.
    """
    from farandole import machines
    from farandole.report import topology as report

    if names:
        for name in machines.names():
            print(f"{name:<18}{machines.load(name).summary}")
        return
    if machine is not None:
        description = machines.load(machine)
        tree = report.machine_tree(description)
    else:
        from farandole.topology.discover import discover
        from farandole.topology.discovered import describe_host

        host = discover()
        description = describe_host(host)
        tree = report.host_tree(host)
    if svg is not None:
        write(svg, report.machine_svg(description))
    if json is not None:
        write(json, report.machine_json(description) + "\n")
    if not printed(json):
        report.print_tree(tree)
