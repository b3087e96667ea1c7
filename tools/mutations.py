# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""Random changes of single lines of C++, for tools/mutate.py.

Works on text alone: finds operators, conditions and statements by how clang-format spaces them.
Comments, the contents of literals, constants and functions that make messages stay as they are.
"""

import dataclasses
import random
import re
from collections.abc import Iterator

IGNORED = re.compile(r'//.*|/\*[\s\S]*?\*/|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'')
SKIPPED_LINE = re.compile(
    r"^\s*#|static_assert|constexpr|\b(?:log|trace|timeline)\w*[(:.]|\b(?:message|text) (?:\+=|<<)"
)
# Their results are only read by people.
SKIPPED_FUNCTION = re.compile(r".*\b(?:state|description|describe|list_operations)\(.*\{$")
MESSAGE = re.compile(r'"|to_string|\bError\b')
START = re.compile(r"[;{}:]$|^$")
KEYWORD = re.compile(r"(?:return|if|else|for|while|switch|case|do|using|delete|goto|throw)\b")

# An operator's name, what it finds, and what it puts there instead, separated by blanks.
SWAPS: list[tuple[str, str, dict[str, str]]] = [
    ("comparison", r"(?<=\s)(?:[=!]=)(?=\s|$)", {"==": "!=", "!=": "=="}),
    ("order", r"(?<=\s)[<>]=?(?=\s|$)", {"<": "<= >=", "<=": "< >", ">": ">= <=", ">=": "> <"}),
    ("logic", r"(?<=\s)(?:&&|\|\|)(?=\s|$)", {"&&": "||", "||": "&&"}),
    ("not", r"!(?=[\w(*])", {}),
    ("sum", r"(?<=\s)[+-]=?(?=\s)", {"+": "-", "-": "+", "+=": "-=", "-=": "+="}),
    ("step", r"\+\+|--", {"++": "--", "--": "++"}),
    ("bits", r"(?<=\s)[&|]=?(?=\s)", {"&": "|", "|": "&", "&=": "|=", "|=": "&="}),
    ("bound", r"\bstd::(?:min|max)\b", {"std::min": "std::max", "std::max": "std::min"}),
    ("truth", r"\b(?:true|false)\b", {"true": "false", "false": "true"}),
    ("loop", r"\b(?:break|continue)(?=;)", {"break": "continue", "continue": "break"}),
]
NUMBER = re.compile(r"(?<![\w.'])\d{1,2}(?![\w.'])")


def masked(text: str) -> str:
    """The text with comments and the contents of literals replaced, character by character."""

    def blank(match: re.Match[str]) -> str:
        quote = match[0][0]
        fill = re.sub(r"[^\n]", " " if quote == "/" else "_", match[0])
        return fill if quote == "/" else quote + fill[1:-1] + quote

    return IGNORED.sub(blank, text)


def closing(line: str, opening: int) -> int:
    """Where the parenthesis at `opening` is closed; -1: not on this line."""
    depth = 0
    for at in range(opening, len(line)):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if depth == 0:
            return at
    return -1


def is_statement(line: str, previous: str) -> bool:
    """Whether the line is one whole call or assignment."""
    code = line.strip()
    whole = code.endswith(";") and code.count("(") == code.count(")") and line[:1] == " "
    target = re.split(r"\(| [-+|&*]?= ", code.rstrip(";"), maxsplit=1)[0]
    acts = code.endswith(");") or re.search(r" [-+|&*]?= |\+\+|--", code) is not None
    fresh = START.search(previous.strip()) is not None
    return whole and acts and fresh and " " not in target and not KEYWORD.match(code)


def mutations(line: str, code: str, previous: str, is_void: bool) -> Iterator[tuple[str, str]]:
    """Pairs of an operator's name and the changed line; `code` is the masked line."""
    in_message = MESSAGE.search(code) is not None
    for name, pattern, replacements in SWAPS:
        for match in re.finditer(pattern, code) if name != "sum" or not in_message else ():
            for new in replacements.get(match[0], "").split(" "):
                yield name, line[: match.start()] + new + line[match.end() :]
    for match in NUMBER.finditer(code) if not in_message else ():
        for number in sorted({int(match[0]) + 1, abs(int(match[0]) - 1)}):
            yield "number", line[: match.start()] + str(number) + line[match.end() :]
    if branch := re.search(r"\b(if|while) \(", code):
        end = closing(code, branch.end() - 1)
        if end > 0 and not re.search(r"[^=!<>]=[^=]|;", code[branch.end() : end]):
            for truth in ("true", "false") if branch[1] == "if" else ("false",):
                yield "condition", line[: branch.end()] + truth + line[end:]
    if is_statement(code, previous):
        indent = line[: len(line) - len(line.lstrip())]
        yield "delete", indent + ";"
        yield "return", f"{indent}{'return;' if is_void else 'return {};'} {line.lstrip()}"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`number`: its place in the order in which the seed draws them, from 1; of a patch, 0."""

    number: int
    file: str
    line: int = 0
    operator: str = "patch"
    before: str = ""
    after: str = ""


def file_mutations(text: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Per line that can be changed, its number and its mutations."""
    codes = masked(text).split("\n")
    skips = is_void = False
    head = ""  # the statement or declaration so far
    for at, (line, code) in enumerate(zip(text.split("\n"), codes, strict=True)):
        previous = codes[at - 1] if at else ""
        head = code.rstrip() if START.search(previous.strip()) else f"{head} {code.strip()}"
        if head.endswith("{") and not KEYWORD.match(head.lstrip(" }")):
            is_void = re.search(r"\bvoid \S+\(|\]\s*(?:\(.*\) )?\{$", head) is not None
            if not head.startswith(" "):
                skips = SKIPPED_FUNCTION.match(head) is not None
        if skips or SKIPPED_LINE.search(code):
            continue
        found = list(dict.fromkeys(mutations(line, code, previous, is_void)))
        if found:
            yield at + 1, found


def draw(texts: dict[str, str], seed: int) -> Iterator[Mutant]:
    """Every line that can be changed once, in random order, with one of its mutations."""
    lines = [(file, *rest) for file in sorted(texts) for rest in file_mutations(texts[file])]
    generator = random.Random(seed)
    generator.shuffle(lines)
    for number, (file, line, found) in enumerate(lines, 1):
        operator, after = generator.choice(found)
        before = texts[file].split("\n")[line - 1]
        yield Mutant(number, file, line, operator, before.strip(), after.strip())
