"""Packages that are installed, made impossible to import."""

import builtins
import sys


def hide(monkeypatch, *names):
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name.split(".")[0] in names:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest, **more)

    for module in [m for m in sys.modules if m.split(".")[0] in names]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", refuse)
