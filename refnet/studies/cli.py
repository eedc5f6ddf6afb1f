"""``refnet study``: rerun a published experiment and print its table beside the published one."""

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refnet.check.tables import target
from refnet.common.commands import Subparsers
from refnet.runs.files import described, named, printable, quoted, user_cache

if TYPE_CHECKING:
    from refnet.studies.costs import Cost
    from refnet.studies.store import Store
    from refnet.studies.study import Study

__all__ = ["add_command"]

MOST = 1000
"""Seeds of a cell, processes, or threads."""

RUNS = ("workers", "threads", "cluster", "repeat")
TABLES = ("seeds", "only", "search", "status", "table", "figure")
VOID = {
    "protocols": ("name", "protocol", "list", "measure", "quick", *RUNS, *TABLES),
    "list": RUNS + TABLES,
    "measure": RUNS + TABLES,
    "status": (*RUNS, "table", "figure"),
    "table": RUNS,
    "cluster": ("workers",),
}
"""The options that do nothing beside another one."""

EXAMPLES = """examples:
  refnet study --list --measure
      the studies, and the time and memory that each needs on this machine
  refnet study table-iii --quick
      a small version in a minute or two
  refnet study figure-1 --workers 4
      all its runs in four processes; after an interruption, the same command continues
  refnet study figure-1 --status
      its progress, from another terminal
  refnet study table-i --search --only "adding, plain"
      search the grid of rates and lambdas again, for one problem and net
  refnet study figure-1 --protocol vorontsov/code
      as the released code does it, in a separate folder
  refnet study table-2 --cluster tcp://head:8786
      on the workers of a dask scheduler
"""


FIGURE: dict[str, dict[str, Any]] = {
    "figure": {
        "type": target,
        "metavar": "FILE",
        "help": "draw it, as .pdf, .svg or .png by the file's ending",
    },
    "dpi": {
        "type": int,
        "default": 300,
        "metavar": "N",
        "help": "dots per inch of a .png (default: 300)",
    },
}
OPTIONS: dict[str, dict[str, Any]] = {
    "list": {"help": "list the studies"},
    "measure": {
        "help": "with --list or NAME: measure a few steps of each kind of run, from which --list "
        "then estimates hours and memory"
    },
    "search": {
        "help": "with table-i, table-ii or table-iii: search a grid with the printed rates and "
        "lambdas"
    },
    "protocol": {
        "metavar": "NAME",
        "help": "make the runs under the other protocol of the same authors: their text's or their "
        "code's",
    },
    "protocols": {"help": "show where the papers' texts and released codes differ"},
    "quick": {"help": "make a small version in minutes, whose numbers are not the paper's"},
    "seeds": {"type": int, "metavar": "N", "help": "runs of each cell (default: 3; quick: 1)"},
    "only": {
        "default": "",
        "metavar": "TEXT",
        "help": "make only the runs whose name in --status contains TEXT",
    },
    "workers": {
        "type": int,
        "metavar": "N",
        "help": "processes, each with one run at a time (default: 1)",
    },
    "threads": {
        "type": int,
        "metavar": "N",
        "help": "threads of each run, useful with fewer runs than cores (default: 1); the bits do "
        "not depend on it",
    },
    "cluster": {
        "metavar": "ADDRESS",
        "help": "the address of a dask scheduler (needs the extra cluster)",
    },
    "folder": {
        "type": named,
        "default": Path("studies"),
        "metavar": "FOLDER",
        "help": "where studies keep their rows and checkpoints (default: studies)",
    },
    "status": {"help": "show the progress of the runs; make no runs"},
    "table": {
        "help": "show the table of finished runs, and draw its figure in the folder; make no runs"
    },
    "repeat": {
        "help": "repeat the finished runs; after an interruption, or if some failed, the same "
        "command continues with the rest"
    },
    **FIGURE,
}


def add_command(commands: Subparsers) -> None:
    """Add ``study`` to the program's commands."""
    parser = commands.add_parser(
        "study",
        help="rerun a published table or figure",
        epilog=EXAMPLES,
        description="Make the remaining runs of a published table or figure, and show our numbers "
        "beside the\nprinted ones. Report every minute the progress of the study and of each "
        "run, and the\ntime left.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the study (see --list)")
    for name, options in OPTIONS.items():
        flag = {} if "metavar" in options else {"action": "store_true"}
        parser.add_argument(f"--{name}", **flag, **options)
    parser.set_defaults(run=_study)


def _complete(args: argparse.Namespace) -> None:
    """Set numbers that were not given. Raises ValueError for options that would do nothing, and for
    numbers out of range."""
    from refnet.common.arguments import whole

    for mode, void in VOID.items():
        given = [option for option in void if getattr(args, option) not in (None, False, "")]
        if getattr(args, mode) and given:
            what = "a study's name" if given[0] == "name" else f"--{given[0]}"
            raise ValueError(f"{what} has no effect with --{mode}; leave one of them out")
    for option, usual in (("seeds", 1 if args.quick else 3), ("workers", 1), ("threads", 1)):
        if getattr(args, option) is None:
            setattr(args, option, usual)
        whole(f"--{option}", getattr(args, option), most=MOST)


def _study(args: argparse.Namespace) -> int:
    from refnet.runs.style import check_figure
    from refnet.studies.catalogue import STUDIES, find
    from refnet.studies.study import under

    _complete(args)
    check_figure(args.figure, args.dpi)
    if args.protocols:
        from refnet.training.differences import APART, differences

        print(differences() + APART)
        return 0
    if args.name is None and args.protocol is not None:
        raise ValueError(
            "--protocol needs the name of a study, such as: refnet study figure-1 "
            "--protocol vorontsov/code"
        )
    if args.name is None and not (args.list or args.measure):
        raise ValueError(
            "name a study, such as: refnet study table-iii --quick; see them all "
            "with: refnet study --list"
        )
    studies = list(STUDIES.values()) if args.name is None else [find(args.name)]
    if args.protocol is not None:
        studies = [under(studies[0], args.protocol)]
    if args.list or args.measure:
        print(_listed(studies, args))
        return 0
    return _run(studies[0], args)


def _run(study: "Study", args: argparse.Namespace) -> int:
    """Make the study's runs, or leave them as they are, and print its status or its table."""
    from refnet.studies.progress import status
    from refnet.studies.runner import run
    from refnet.studies.store import Store
    from refnet.studies.study import only, protocols

    if args.search:
        if study.search is None:
            raise ValueError(
                "--search is for studies with a grid to search, table-i, table-ii and table-iii "
                f"under their own protocol; {study.name} has none"
            )
        study = study.search
    followed = protocols(study, args.quick)
    store = Store(args.folder / (study.name + ("-quick" if args.quick else "")))
    cost = _known(args).get(study.name)
    study = replace(only(study, args.only), paces=cost.paces if cost else {})
    _check_name(study, store, args)
    if args.status:
        print(status(study, store, args.seeds, args.quick, _command(args, "--measure")))
        return 0
    failed = {}
    if not args.table:
        failed = run(
            study,
            store,
            args.seeds,
            args.quick,
            args.workers if args.cluster is None else _cluster(args.cluster),
            args.repeat,
            _log,
            args.threads,
        )
    print(f"{study.title}\n")
    if followed:
        print(f"Protocol: {', '.join(followed)}\n")
    if args.quick:
        print(
            "Quick: shorter sequences, fewer steps or examples than the titles say; not the "
            "paper's runs.\n"
        )
    _show(study, store, args)
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    return 2 if failed else 0


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_name(study: "Study", store: "Store", args: argparse.Namespace) -> None:
    """Raise ValueError if no run has the text of --only in its name."""
    from refnet.studies.progress import jobs_of

    rows = store.rows() if args.only else {}
    if args.only and not jobs_of(study, partial(store.done, rows=rows), args.seeds, args.quick):
        folder = ["--folder", str(args.folder)] if rows else []
        command = _command(args, *["--search"] * args.search, *folder, "--status")
        raise ValueError(
            f"--only {args.only!r}: no run has that in its name; see them with: {command}"
        )


def _show(study: "Study", store: "Store", args: argparse.Namespace) -> None:
    """Print the study's table, and draw its figure in the folder if it has one."""
    from refnet.runs import style
    from refnet.studies.study import View
    from refnet.studies.work import shown

    view = View(shown(store), args.seeds, args.quick)
    print(study.table(view))
    if study.figure is None:
        return
    try:
        figure = study.figure(view)
        if figure is not None:
            path = args.figure or store.folder / "figure.png"
            with nullcontext() if args.figure else store.held():
                style.save(figure, path, args.dpi)
            print(f"figure: {printable(path)}")
    except ImportError:
        print("the figure needs Matplotlib: pip install 'refnet[cli]'", file=sys.stderr)
    except OSError as error:  # as in a folder of somebody else
        print(f"the figure could not be written: {described(error)}", file=sys.stderr)
    except Exception as error:  # as of a LaTeX that Matplotlib's settings ask for in vain
        print(f"Matplotlib could not draw the figure: {described(error)}", file=sys.stderr)


def _command(args: argparse.Namespace, *options: str) -> str:
    """The command with the same study and these options instead of its own."""
    protocol = [] if args.protocol is None else ["--protocol", args.protocol]
    return " ".join(
        map(quoted, ["refnet", "study", args.name, *protocol, *["--quick"] * args.quick, *options])
    )


def _measured(args: argparse.Namespace) -> Path:
    """The file of what was measured on this machine."""
    return user_cache() / ("studies-quick.json" if args.quick else "studies.json")


def _known(args: argparse.Namespace) -> dict[str, "Cost"]:
    """What was measured on this machine; nothing for a user without a cache, or with one that
    cannot be read."""
    from refnet.runs.read import FileError
    from refnet.studies.costs import remembered

    try:
        return remembered(_measured(args))
    except FileNotFoundError:
        pass
    except (OSError, FileError) as error:
        print(
            f"what was measured on this machine is not known: {described(error)}", file=sys.stderr
        )
    return {}


def _listed(studies: list["Study"], args: argparse.Namespace) -> str:
    """What each study is, with its measured cost on this machine."""
    from refnet.runs.rows import table
    from refnet.studies.costs import measure, remember, remembered
    from refnet.studies.study import View

    if args.measure:
        remembered(_measured(args))  # a damaged file is an error before the minutes that this takes
    jobs = {study.name: study.jobs(View(quick=args.quick)) for study in studies}
    for name, runs in jobs.items() if args.measure else ():
        _log(f"measuring {name}")
        remember(_measured(args), {name: measure(runs)})
    costs = _known(args)
    lines = [
        [
            study.name,
            len(jobs[study.name]),
            *(costs[study.name].texts if study.name in costs else ("-", "-")),
            study.title,
        ]
        for study in studies
    ]
    return table(["study", "runs", "hours", "MB", "what"], lines) + (
        "\nThe runs of a seed; their hours in one process if none is solved, and the memory of the "
        "largest, as\nmeasured on this machine by: refnet study --list --measure"
    )


CLUSTER_LOGGERS = ("distributed", "tornado", "asyncio")
"""The packages whose loggers speak of a cluster; the study itself says what to do."""


def silence(packages: Sequence[str]) -> None:
    """Let no logger of these packages print, whatever level their own configuration set.

    Checked by: tests/studies/test_clusters.py::test_no_logger_of_a_cluster_prints.
    """
    for name in [*packages, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in packages:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _cluster(address: str) -> Any:
    """The executor of a dask scheduler; runs whose worker dies are sent to another one."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            "--cluster needs dask.distributed; install it with: pip install 'refnet[cluster]'"
        ) from None
    silence(CLUSTER_LOGGERS)  # they log tracebacks of a scheduler that is gone
    try:
        return Client(address).get_executor(retries=3, pure=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"--cluster {address}: no scheduler answers there ({error}); need the "
            "address that one prints when it is started with: dask scheduler"
        ) from None
