"""Classes that tests put before Spark's: some in Java of their own, and those of jars that are signed.

An archive of classes takes none of a signed jar, such as that of the compiler which each Spark starts, and Java
compares each of them with its signature. Copies are not signed.

Run as a program it makes a jar of them, with that compiler: `python -m support.java_classes JAR`.
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
