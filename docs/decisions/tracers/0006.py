import importlib, sys

importlib.import_module("peacefs.client.transfer.file_writer")
importlib.import_module("peacefs.client.transfer.file_reader")
assert not [name for name in sys.modules if name.startswith(("peacefs.coordinator", "peacefs.datanode"))]
