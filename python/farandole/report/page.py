# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Plotly figures on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

COLOURS = (  # told apart by colour-blind readers too: Okabe, Ito, 2008; then Tol, 2021, muted
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"),
    *("#332288", "#882255", "#117733", "#ddcc77", "#44aa99", "#aa4499"),
)
_STYLE = "body{font-family:sans-serif;margin:1.5em auto;max-width:76em;padding:0 1em}p{color:#444}"


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def page(title: str, notes: Sequence[str], figures: Sequence[Any]) -> str:
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=index == 0)
        for index, figure in enumerate(figures)
    ]
    paragraphs = "".join(f"<p>{escape(note)}</p>\n" for note in notes)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{paragraphs}"
        + "\n".join(parts)
        + "</body></html>\n"
    )
