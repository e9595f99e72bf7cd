"""`peacefs demo`: a Spark query that is killed and comes back exact, and the means to judge it.

Begin with `app.py`. Uses the connector as a user would; nothing else imports it.
"""
