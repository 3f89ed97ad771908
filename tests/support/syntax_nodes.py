"""Walk a syntax tree without the nodes that say nothing: half of them only say Load or Store."""

import ast
from collections.abc import Iterator

_LEAVES = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
_NO_NODES = {"ctx", "op", "ops", "id", "attr", "arg", "kind", "level", "type_comment"}
_FIELDS = {
    each: [] if each is ast.Constant else [name for name in each._fields if name not in _NO_NODES]
    for each in vars(ast).values()
    if isinstance(each, type) and issubclass(each, ast.AST) and not issubclass(each, _LEAVES)
}
_FIELDS |= {ast.keyword: ["value"], ast.arg: ["annotation"]}


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that `ast.walk` yields, except contexts and operators."""
    found = [tree]
    for node in found:  # which grows meanwhile
        yield node
        for name in _FIELDS[type(node)]:
            value = getattr(node, name)
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
