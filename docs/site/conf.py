"""Sphinx's settings for the site. Nothing is fetched: fonts and scripts are the theme's own."""

from __future__ import annotations

project = "peacefs"
author = "the authors of peacefs"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["docs/site/**"]
html_theme = "furo"
html_title = "peacefs"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Pages lead to files of the tree, which are not a part of the site; a test holds every link to the tree.
suppress_warnings = ["myst.xref_missing", "toc.not_included", "misc.highlighting_failure"]
