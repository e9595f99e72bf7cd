"""Reference pages from the code: every command with its options, the REST of a coordinator, and the errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rest_examples import Answered
from typer.core import TyperGroup, TyperOption

from peacefs.commands.configuration import Configuration
from peacefs.protocol.errors import BY_CODE

_METHODS = ("get", "put", "post", "delete")


def commands_page(program: Any, configured: Configuration) -> str:
    """Describe each command: arguments, options, defaults, and the variable of each option."""
    lines = ["# Command line", "", "Every option can also stand in [a file](../docs/configuration.md).", ""]
    for path, command in _walk(program, ()):
        if not path or getattr(command, "hidden", False):
            continue
        lines += [f"## peacefs {' '.join(path)}", "", (command.help or "").strip(), ""]
        lines += _command_lines(path, command)
    return "\n".join(lines) + "\n"


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if isinstance(command, TyperGroup):
        for name in sorted(command.commands):
            yield from _walk(command.commands[name], (*path, name))


def _command_lines(path: tuple[str, ...], command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [str(each.metavar or each.name.upper()) for each in shown if not isinstance(each, TyperOption)]
    yield from ("```", " ".join(["peacefs", *path, "[OPTIONS]", *arguments]), "```", "")
    options = [each for each in shown if isinstance(each, TyperOption) and each.name != "help"]
    if not options:
        return
    yield from ("| option | | default | variable |", "| --- | --- | --- | --- |")
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        envvar = option.envvar if isinstance(option.envvar, (list, tuple)) else [option.envvar]
        variables = ", ".join(f"`{variable}`" for variable in envvar if variable)
        yield f"| {flags} | {_cell(option.help or '')} | {_cell(_default(option))} | {variables} |"
    yield ""


def _default(option: TyperOption) -> str:
    value = option.default
    if value is None or callable(value) or value == [] or option.required:
        return "required" if option.required else ""
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def rest_page(described: Mapping[str, Any], answers: Mapping[str, Answered], without: Mapping[str, str]) -> str:
    """Describe each route of a coordinator's OpenAPI description, with its example, or why there is none."""
    lines = [
        "# REST",
        "",
        "The routes of a coordinator. It describes them at `/v1/openapi.json`, and shows them at `/v1/docs`.",
        'Errors have WebHDFS\'s form: `{"RemoteException": {"exception": ..., "message": ...}}`.',
        "",
    ]
    for path, operations in sorted(described["paths"].items()):
        for method in _METHODS:
            if method in operations:
                route = f"{method.upper()} {path}"
                lines += [*_route_lines(method.upper(), path, operations[method])]
                lines += _example_lines(route, answers.get(route), without.get(route, ""))
    lines += ["## Bodies and answers", ""]
    for name, schema in sorted(described.get("components", {}).get("schemas", {}).items()):
        lines += [f"### {name}", "", str(schema.get("description", "")).strip(), "", "```json"]
        lines += [json.dumps({key: schema[key] for key in schema if key != "description"}, indent=1), "```", ""]
    return "\n".join(lines) + "\n"


def _route_lines(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {method} {path}", "", str(operation.get("description") or operation.get("summary", "")), "")
    parameters = operation.get("parameters", [])
    if parameters:
        yield from ("| parameter | in | required | type |", "| --- | --- | --- | --- |")
        for each in parameters:
            kind = each.get("schema", {}).get("type", "")
            yield f"| `{each['name']}` | {each['in']} | {'yes' if each.get('required') else ''} | {kind} |"
        yield ""
    for body in operation.get("requestBody", {}).get("content", {}).values():
        reference = body.get("schema", {}).get("$ref", "")
        if reference:
            yield f"Body: [{reference.rpartition('/')[2]}](#{reference.rpartition('/')[2].lower()})"
            yield ""
    for status, answer in operation.get("responses", {}).items():
        if status != "default" and answer.get("description"):
            yield f"- {status}: {answer['description']}"
    yield ""


def _example_lines(route: str, answered: Answered | None, why_none: str) -> list[str]:
    if answered is None:
        assert why_none, f"{route} has neither an example nor a reason why not"
        return [f"No example: {why_none}.", ""]
    lines = ["```sh", answered.curl, "```", ""]
    return [*lines, "```json", answered.text, "```", ""] if answered.text else lines


def errors_page() -> str:
    """List the errors that cross the wire, with their status over HTTP and Hadoop's class."""
    lines = ["# Errors", "", "| error | status | Hadoop's class | means |", "| --- | --- | --- | --- |"]
    for code, kind in sorted(BY_CODE.items()):
        meaning = (kind.__doc__ or "").strip().split("\n\n")[0]
        lines.append(f"| `{code}` | {kind.http_status} | `{kind.hadoop_class}` | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"
