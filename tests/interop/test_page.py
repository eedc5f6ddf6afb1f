"""The page's programs run."""

import re
from pathlib import Path

import pytest

import refnet

PAGE = (Path(refnet.__file__).parent / "interop" / "README.md").read_text(encoding="utf-8")


def programs(section):
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    "section, count",
    [
        pytest.param("In JAX", 3, marks=pytest.mark.needs("jax", "flax", "equinox")),
        pytest.param("What PyTorch lacks", 2, marks=pytest.mark.needs("torch")),
    ],
)
def test_programs_run(section, count):
    blocks = programs(section)
    assert len(blocks) == count
    space = {}
    for program in blocks:
        exec(program, space)
    if "value" in space:
        assert 0 < float(space["value"]) < 1.7
