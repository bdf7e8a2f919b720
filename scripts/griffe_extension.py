"""For `mkdocs.yml`: what mkdocstrings, which reads sources without running them, does not see."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe


class Extension(griffe.Extension):
    """Shows the names that a package loads on first use, and examples as code."""

    def on_module_members(self, *, node: Any, mod: griffe.Module, **kwargs: Any) -> None:
        """Adds the names in a call of `lazy_names` to their package, as if they were imported."""
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "lazy_names":
                modules = ast.literal_eval(call.args[1])
                names = {name: module for module, of in modules.items() for name in of}
                for name, module in names.items():
                    mod.set_member(name, griffe.Alias(name, f"{mod.path}.{module}.{name}"))
                mod.exports = sorted(names)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Renames the section `Example`, which griffe takes for running text."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
