"""Classes in Java that tests put before Spark's, compiled with the compiler that Spark brings.

Run as a program it compiles them: `python -m support.java_classes JAR`. It takes no more than a Java for Spark.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

SOURCES = [Path(__file__).with_name(f"{name}.java") for name in ("local_files", "session_extensions")]


def compile_classes(jar: Path) -> None:
    """Compile all sources into a jar."""
    from pyspark import java_gateway

    gateway: Any = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    with zipfile.ZipFile(jar, "w") as archive:
        for source in SOURCES:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(source.read_text())
            for name, code in compiler.getBytecodes().items():
                archive.writestr(f"{name.replace('.', '/')}.class", code)
    gateway.shutdown()


if __name__ == "__main__":
    compile_classes(Path(sys.argv[1]))
