"""The commands that need more than one package: services, metadata, placement, checkpoints, Spark.

Begin with `service_commands.py`. The commands on files are in `client.command_line`.
"""
