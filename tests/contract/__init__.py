"""Hadoop's own contract tests, FsShell and distcp, against peacefs and a real HDFS side by side: `make contract`.

Begin with `__main__`. `differences` compares (pure), `toolchain` gets Hadoop's jars and starts JVMs, `clusters`
starts both file systems, `suites` and `shell` run what is compared. What is known to differ is in
`known_differences.toml`, each with its reason.
"""
