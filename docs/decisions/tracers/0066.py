import ast
from pathlib import Path

import peacefs

root = Path(peacefs.__file__).parent
below = {"protocol": (), "runtime": ("protocol",), "service": ("protocol", "runtime")}
for package, allowed in below.items():
    for file in (root / package).resolve().rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("peacefs."):
                assert node.module.split(".")[1] in (package, *allowed), f"{file}: {node.module}"
