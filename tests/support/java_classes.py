"""Classes that tests put before Spark's on the class path: Java code of tests, and copies of signed classes.

A class archive cannot contain classes of a signed jar, such as the compiler that each Spark starts, and Java
checks the signature of each of them. The copies are unsigned.

As a program it compiles them with that compiler and makes a jar: `python -m support.java_classes JAR`.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

SOURCES = [Path(__file__).with_name(f"{name}.java") for name in ("local_files", "session_extensions")]


def make_jar(path: Path) -> None:
    """Compile all sources, and copy what is signed."""
    import pyspark
    from pyspark import java_gateway

    gateway: Any = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    with zipfile.ZipFile(path, "w") as made:
        for source in SOURCES:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(source.read_text())
            for name, code in compiler.getBytecodes().items():
                made.writestr(f"{name.replace('.', '/')}.class", code)
        for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar")):
            with zipfile.ZipFile(jar) as theirs:
                _copy_signed(theirs, made)
    gateway.shutdown()


def _copy_signed(jar: zipfile.ZipFile, made: zipfile.ZipFile) -> None:
    """Copy everything except signatures."""
    names = jar.namelist()
    if any(name.startswith("META-INF/") and name.endswith(".SF") for name in names):
        for name in names:
            if not name.startswith("META-INF/") and not name.endswith("/"):
                made.writestr(name, jar.read(name))


if __name__ == "__main__":
    make_jar(Path(sys.argv[1]))
