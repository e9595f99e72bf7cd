from peacefs.spark_connector.session import as_dict, settings

chosen = as_dict(settings("127.0.0.1:9870"))
assert "spark.sql.streaming.stateStore.checkpointFormatVersion" not in chosen
assert chosen["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
