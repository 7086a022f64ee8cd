"""Sentences in the source: how docstrings begin, and comments that the formatter has carried away from what they are about."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent.parent / "src").rglob("*.py"))
QUESTION = re.compile(r"(What|Who|Whose|Whether|How)\b")
DIRECTIVE = re.compile(r"#\s*(fmt|type|noqa|mypy):")


def questions(source: str) -> Iterator[str]:
    """Docstrings, also of attributes, that begin as a question: a noun or a verb says what one gets."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value.strip()
            if QUESTION.match(text):
                yield f"{node.lineno}: {text.splitlines()[0]}"


def displaced(source: str) -> Iterator[str]:
    """Comments behind a closing bracket that begins its line: they were beside the statement, and belong above it."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        behind = token.type == tokenize.COMMENT and token.line.lstrip()[:1] in (")", "]", "}")
        if behind and not DIRECTIVE.match(token.string):
            yield f"{token.start[0]}: {token.string}"


@pytest.mark.parametrize("check", [questions, displaced])
def test_sources(check):
    assert [f"{path}:{found}" for path in SOURCES for found in check(path.read_text(encoding="utf-8"))] == []


def test_the_checks_can_fail():
    assert [*questions('"""What is left."""\ndef f():\n    "How far."\nx = 1\n"""Whatever comes."""\n')] == [
        "1: What is left.",
        "3: How far.",
    ]
    assert [*displaced("x = f(\n    1\n)  # one\ny = [\n    2,\n]  # fmt: skip\n")] == ["3: # one"]
