"""Make a release: check its version and changelog, build wheel and sdist, try the wheel, and write the notes.

`python -m release` is the command, and `CONTRIBUTING.md` says how to use it. `previous.toml` names the release
before, with which this tree works together (decision 58). Nothing here is a part of the wheel.
"""
