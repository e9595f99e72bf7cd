"""Judges of the product: models, other engines and arithmetic. They import nothing of what they judge."""
