"""Commands that need more than one package: services, metadata, placement, checkpoints, Spark.

Begin with `service_commands.py`. The file commands are in `client.command_line`.
"""
