from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def make():
    """The builders beside this file."""
    path = Path(__file__).with_name("builders.py")
    spec = importlib.util.spec_from_file_location("observe_builders", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
