"""Exports the paper's graph to other programs: networkx, GraphML readers, Graphviz."""

from __future__ import annotations

from xml.etree import ElementTree

from .graph import Graph, Role

_SHAPES = {
    Role.SEND: "invtriangle",
    Role.UP: "point",
    Role.SWITCH: "box",
    Role.DOWN: "point",
    Role.RECEIVE: "triangle",
}


def to_adjacency(graph: Graph) -> dict[str, dict[str, dict[str, int]]]:
    """Return a dict of dicts of edge attributes, as accepted by `networkx.DiGraph(...)`."""
    adjacency: dict[str, dict[str, dict[str, int]]] = {str(vertex): {} for vertex in graph.vertices}
    for edge in graph.edges:
        tail, head = str(graph.vertices[edge.tail]), str(graph.vertices[edge.head])
        adjacency[tail][head] = {"cost": edge.cost, "capacity": edge.capacity}
    return adjacency


def to_graphml(graph: Graph) -> str:
    """Return GraphML with `role` and `name` on nodes, `cost` and `capacity` on edges."""
    root = ElementTree.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    for key, target, kind in (
        ("role", "node", "string"),
        ("name", "node", "string"),
        ("cost", "edge", "int"),
        ("capacity", "edge", "int"),
    ):
        ElementTree.SubElement(root, "key", {"id": key, "for": target, "attr.name": key, "attr.type": kind})
    body = ElementTree.SubElement(root, "graph", id="network", edgedefault="directed")
    for vertex in graph.vertices:
        _with_data(ElementTree.SubElement(body, "node", id=str(vertex)), role=vertex.role.value, name=vertex.name)
    for edge in graph.edges:
        tail, head = str(graph.vertices[edge.tail]), str(graph.vertices[edge.head])
        element = ElementTree.SubElement(body, "edge", source=tail, target=head)
        _with_data(element, cost=str(edge.cost), capacity=str(edge.capacity))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _with_data(element: ElementTree.Element, **data: str) -> None:
    for key, value in data.items():
        ElementTree.SubElement(element, "data", key=key).text = value


def to_dot(graph: Graph) -> str:
    """Return a Graphviz graph. Edges of cost 0 are dashed, as in Figure 5; labels are capacities."""
    lines = ["digraph network {", "  rankdir=TB;"]
    for vertex in graph.vertices:
        lines.append(f"  {_quoted(str(vertex))} [shape={_SHAPES[vertex.role]}];")
    for edge in graph.edges:
        tail, head = _quoted(str(graph.vertices[edge.tail])), _quoted(str(graph.vertices[edge.head]))
        style = "solid" if edge.cost else "dashed"
        lines.append(f'  {tail} -> {head} [label="{edge.capacity}", style={style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
