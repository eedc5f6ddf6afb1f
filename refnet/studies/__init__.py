"""The papers' tables and figures, made again: lists of independent runs, and what is made of them.

``jobs``: one run, its key and how it is carried out. ``store``: a study's folder, its rows and the
checkpoints of unfinished runs. ``runner``: all runs of a study on any executor. ``study``: what a
study is; ``manchev``, ``vorontsov`` and ``orhan`` have the papers', ``causes`` looks for what makes
ours differ from theirs, and ``examples`` are those of the page on training.
"""
