"""Authentication: the tokens that the coordinator issues, and its records of them.

Begin with `tokens`. Every change is committed to the metadata (`book`), except the private half of the signing
key, which is in a file of the coordinator's directory (`key_file`, decision 30). It imports no API and no SQL.
"""
