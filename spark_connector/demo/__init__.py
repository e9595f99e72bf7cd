"""`peacefs demo`: run a Spark query, kill it, restart it, and check that its output is exact.

Begin with `app.py`. It uses the connector as a user would; nothing else imports it.
"""
