"""Mistakes as edits: what an implementation with one mistake gives, and how it is named.

Inside a cell, a mistake is an edit of the lines of the net's program or of their pulls. In the
order in which to read them: ``cells`` (lines and pulls), ``functions`` and ``arrays`` (what stands
in lines), ``notation`` (how formulas are written), ``program``, ``edit``; ``values`` and ``runs``
(many edited programs at once), ``passes``; ``words`` (names), ``grammar``, ``exchanges``,
``layouts``, ``candidates`` (the edits); ``explain`` tries them. If none explains the results,
``weights``, ``steps``, ``elements``, ``constants`` and ``pairs`` try edits with something that is
fitted (``least_squares``).

Outside the cells, a mistake is another loss (``losses``, ``scores``, ``counts``;
``loss_mistakes`` tries them) or another move on an edge between cells (``moves``, ``layers``,
``edges``; ``edge_mistakes``); ``fits`` has those with a constant. ``stacks`` edits the cells of a
stack (``fitted_stacks``: with a constant), and ``around`` says which of these a net allows.
"""
