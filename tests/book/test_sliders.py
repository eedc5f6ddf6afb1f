"""The frames of the sliders against closed forms, and how the page's script draws them."""

import json
import shutil
import subprocess
from itertools import product

import numpy as np
import pytest

import refnet
from refnet.book import chapter

NODE = shutil.which("node")
pytestmark = pytest.mark.needs("mdit_py_plugins", "latex2mathml", "pygments", "matplotlib", "flint")
DIGITS = 1.1e-3
"""Two numbers of four digits may differ by so much."""


def frames(name):
    """The frames of a slider: the values of the controls, the curves, the note."""
    text = (chapter.HERE / "sliders" / f"{name}.md").read_text("utf-8")
    namespace = {"np": np, "refnet": refnet}
    exec(text.partition("```python\n")[2].partition("```")[0], namespace)
    slider = namespace["slider"]
    every = list(product(*(control["values"] for control in slider["controls"])))
    assert len(every) == len(slider["frames"])
    for values, frame in zip(every, slider["frames"]):
        assert len(frame["lines"]) == len(slider["lines"])
        yield values, [np.array(line, float) for line in frame["lines"]], frame["note"]


def close(have, need):
    return np.allclose(have, need, rtol=DIGITS, atol=DIGITS)


def test_margin():
    for (m,), [(p, s), (_, slope)], _ in frames("margin"):
        sigmoid = 1 / (1 + np.exp(-p))
        assert close(s, 2 * m * (sigmoid - 0.5) + 1)
        assert close(slope, 2 * m * sigmoid * (1 - sigmoid))


def test_oinit():
    for (rate, start), [(_, s), _], _ in frames("oinit"):
        assert s[0] == start
        known = np.isfinite(s[1:]) & (abs(s[:-1]) < 3)
        steep = abs(1 + 4 * rate * (1 - 3 * s[:-1] ** 2)) + 1
        need = s[:-1] * (1 + 4 * rate * (1 - s[:-1] ** 2))
        assert (abs(s[1:] - need) <= DIGITS * (abs(s[:-1]) * steep + abs(need)))[known].all()


def test_cayley():
    turned = {
        "cayley": lambda size: 2 * np.arctan(size / 2),
        "qr": np.arctan,
        "polar": np.arctan,
        "geodesic": lambda size: size,
    }
    for (size,), curves, note in frames("cayley"):
        for form, (x, y) in zip(turned.values(), curves):
            angle = form(size)
            assert close([x[-1], abs(y[-1])], [np.cos(angle), abs(np.sin(angle))])
        for name, form in turned.items():
            assert f"{name} {form(size):.3f}" in note


def test_fisher():
    for (gain,), [(k, J), (_, normal)], _ in frames("fisher"):
        sums = np.array([(gain ** (2 * np.arange(delay + 1))).sum() for delay in k.astype(int)])
        assert np.allclose(J, gain ** (2 * k) / sums, rtol=DIGITS)
        assert np.allclose(normal, 0.95 ** (2 * k) * (1 - 0.95**2), rtol=DIGITS)


def test_spectral_radius():
    grown = 0
    for (radius, ratio), [(back, norms), (_, bound), (_, power)], _ in frames("spectral-radius"):
        assert (norms <= bound * (1 + DIGITS)).all()
        if ratio == 1:
            assert np.allclose(norms, power, rtol=DIGITS)
        grown += radius < 1 and norms.max() > 1
    assert grown


def test_digits():
    ends = []
    for (T,), curves, _ in frames("digits"):
        assert all(len(digits) == T + 1 and (digits >= 0).all() for _, digits in curves)
        ends.append([digits[-1] for _, digits in curves])
    assert 5 < ends[-1][0] < 7.5 and ends[-1][3] < 1


def script(code):
    """What the page's own functions give, in Node."""
    path = chapter.HERE / "site" / "book.js"
    code = f"const book = require({json.dumps(str(path))}); console.log(JSON.stringify({code}))"
    result = subprocess.run([NODE, "-e", code], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_the_script_finds_frames_and_places():
    controls = [{"values": [0] * n} for n in (2, 3, 4)]
    index = (
        "["
        + ",".join(
            f"book.frameIndex({json.dumps(controls)}, {list(at)})"
            for at in product(range(2), range(3), range(4))
        )
        + "]"
    )
    assert script(index) == list(range(24))
    assert script("[-1, 0, 3].map(book.scale(-1, 3, 10, 50, false))") == [10, 20, 50]
    assert np.allclose(
        script("[0.01, 1, 100].map(book.scale(0.01, 100, 0, 40, true))"), [0, 20, 40]
    )
    line = "book.path([0, 1, 2, 3, 4], [1, 2, null, 3, 4], (x) => x, (y) => y, false)"
    assert script(line) == "M0.0 1.0L1.0 2.0M3.0 3.0L4.0 4.0"
    assert script("book.path([0, 1], [0, 1], (x) => x, (y) => y, true)") == "M1.0 1.0"
    assert script("book.ticks(0, 60, false)") == [0, 10, 20, 30, 40, 50, 60]
    assert np.allclose(np.log10(script("book.ticks(1e-9, 1e9, true)")), np.arange(-9, 10, 3))


@pytest.mark.skipif(NODE is None, reason="needs Node")
def test_the_script_searches():
    entries = [
        ["Chapter", "The bound", "a.html#bound", "norm of a product"],
        ["Chapter", "Norms", "a.html#norms", "of a matrix product"],
        ["Chapter", "Other", "a.html#other", "nothing"],
    ]
    code = f"(globalThis.ENTRIES = {json.dumps(entries)}, book.matches('{{}}').map((m) => m.href))"
    assert script(code.replace("{}", "norm product")) == ["a.html#norms", "a.html#bound"]
    assert script(code.replace("{}", "  ")) == []
    assert script(code.replace("{}", "absent")) == []
