"""The web page: HTML, style sheet and scripts as browsers take them, without a build. Begin at `main.js`.

`rest/web_page.py` serves every file here by its name. There is no Python in it.
"""
