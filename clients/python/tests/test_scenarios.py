"""The scenarios that the clients of all languages play, with programs for threads and for asyncio."""

import json
from pathlib import Path

import pytest
import stage

SCENARIOS = json.loads((Path(__file__).parent.parent.parent / "scenarios.json").read_text())["scenarios"]


@pytest.mark.parametrize("client", ["sync", "aio"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_scenario(scenario, client, tmp_path, stores):
    played = stage.Stage(tmp_path, stores, stage.program(client))
    try:
        played.play(scenario)
    finally:
        stores["one"].signal(stage.signal.SIGCONT)
        played.end()
