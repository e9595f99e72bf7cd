"""The network: racks, switches, servers, links, capacities."""
