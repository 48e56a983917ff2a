"""What the source says of a class's fields: the comment behind each, and the lines of comment right above it."""

import ast
import inspect
import io
import textwrap
import tokenize
from functools import cache


@cache
def field_comments(owner: type) -> dict[str, str]:
    """Return the comments on a class's annotated fields, its bases' included."""
    found: dict[str, str] = {}
    for one in reversed(owner.__mro__):
        if one.__module__.startswith("fedfeast."):
            found |= _own_comments(one)
    return found


def _own_comments(owner: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):  # a class that was made, not written
        return {}
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above, line = list[str](), node.lineno - 1
        while line in comments and comments[line].line.lstrip().startswith("#"):
            above.insert(0, _words(comments[line].string))
            line -= 1
        end = node.end_lineno or node.lineno
        behind = [_words(comments[end].string)] if end in comments else []
        if above or behind:
            found[node.target.id] = "; ".join([" ".join(above).removesuffix("."), *behind] if above else behind)
    return found


def _words(comment: str) -> str:
    return comment.lstrip("# ").strip()
