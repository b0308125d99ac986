"""The tools over the Model Context Protocol, on standard input and output, by the package `mcp`."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from ilp_planner.faces.tools.table import TOOLS, call, input_schema, output_schema

INSTRUCTIONS = (
    "Plans of distributed training with proofs. A path is of this machine, from the folder where "
    "the server was started. Files are read, scripts are never run."
)


def serve(most: float) -> None:
    """Serve the tools until the client leaves. most: seconds that a call may take."""

    async def list_tools(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(name) for name in TOOLS])

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await call(asked.name, dict(asked.arguments or {}), most)
        # Clients that know no structured content read the text.
        printed = json.dumps(answer.found) if answer.found is not None else ""
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text=text) for text in (printed, answer.text) if text
            ],
            structured_content=answer.found,
            is_error=answer.found is None,
        )

    server: Any = Server(
        "ilp-planner",
        version=version("ilp-planner"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def run() -> None:
        async with stdio_server() as streams:
            await server.run(*streams, server.create_initialization_options())

    anyio.run(run)


def described(name: str) -> types.Tool:
    """Return what a client is told of a tool."""
    writes = "output" in input_schema(name)["properties"]
    return types.Tool(
        name=name,
        description=TOOLS[name].about,
        input_schema=input_schema(name),
        output_schema=output_schema(name),
        annotations=types.ToolAnnotations(
            read_only_hint=not writes, idempotent_hint=True, open_world_hint=False
        ),
    )
