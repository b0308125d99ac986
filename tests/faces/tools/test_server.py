"""The tools over the Model Context Protocol, with the client of the package `mcp`."""

import asyncio
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ilp_planner.faces.cli.main import run
from ilp_planner.faces.tools.table import TOOLS, input_schema, output_schema
from tests.manual import ROOT

there = find_spec("mcp") is not None
with_mcp = pytest.mark.skipif(not there, reason="the extra mcp is not installed: `make test-mcp`")


@pytest.mark.skipif(there, reason="the extra mcp is installed")
def test_without_the_package_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp"]) == 2
    line = "mcp: found no package mcp, expected it installed: pip install 'ilp-planner[mcp]'"
    assert capsys.readouterr().err == f"ilp-plan: {line}\n"


@with_mcp
def test_a_client_lists_and_calls(tmp_path: Path) -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "ilp_planner", "mcp"], env=environment, cwd=tmp_path
    )

    async def talk() -> tuple[Any, Any, Any]:
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = await session.list_tools()
            wrong = await session.call_tool("fit", {"jobs": "x"})
            words = {"job": "gpt3-350m", "gpus": "1xA100-80GB"}
            return listed, wrong, await session.call_tool("fit", words)

    listed, wrong, fits = asyncio.run(talk())
    assert [tool.name for tool in listed.tools] == [*TOOLS]
    for tool in listed.tools:
        assert tool.input_schema == input_schema(tool.name)
        assert tool.output_schema == output_schema(tool.name)
    assert wrong.is_error
    assert wrong.content[0].text.startswith("fit: found 'jobs', expected one of job, model")
    assert not fits.is_error
    jsonschema.validate(fits.structured_content, output_schema("fit"))
