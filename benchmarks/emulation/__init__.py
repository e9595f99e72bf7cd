"""The paper's cluster on one machine: network namespaces, shaped links, datanodes with slow disks, writers."""
