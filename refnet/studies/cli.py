"""``refnet study``: rerun a published experiment and print its table beside the published one."""

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refnet.runs.files import named, printable, quoted, told, user_cache

if TYPE_CHECKING:
    from refnet.studies.costs import Cost
    from refnet.studies.study import Study

__all__ = ["add_command"]

MOST = 1000
"""Seeds of a cell, processes, or threads."""

RUNS = ("workers", "threads", "cluster", "repeat")
TABLES = ("seeds", "only", "search", "status", "table")
VOID = {
    "protocols": ("name", "protocol", "list", "measure", "quick", *RUNS, *TABLES),
    "list": RUNS + TABLES,
    "measure": RUNS + TABLES,
    "status": (*RUNS, "table"),
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


def add_command(commands: Any) -> None:
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
    parser.add_argument("--list", action="store_true", help="list the studies")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="with --list or NAME: measure a few "
        "steps of each kind of run, from which --list then estimates hours and memory",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        help="with table-i: search a grid that contains the printed rates and lambdas",
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="make the runs under the other "
        "protocol of the same authors: their text's or their code's",
    )
    parser.add_argument(
        "--protocols",
        action="store_true",
        help="show where the papers' texts and released codes differ",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="make a small version in minutes, whose numbers are not the paper's",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="runs of each cell (default: 3; quick: 1)"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="make only the runs whose name in --status contains TEXT",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes, each with one run at a time (default: 1)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of each run, "
        "useful with fewer runs than cores (default: 1); the bits do not "
        "depend on it",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="the address of a dask scheduler (needs the extra cluster)",
    )
    parser.add_argument(
        "--folder",
        type=named,
        default=Path("studies"),
        metavar="FOLDER",
        help="where studies keep their rows and checkpoints (default: studies)",
    )
    parser.add_argument(
        "--status", action="store_true", help="show the progress of the runs; make no runs"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="show the table of finished runs, and draw its figure in the folder; make no runs",
    )
    parser.add_argument(
        "--repeat",
        action="store_true",
        help="repeat the finished runs; after an interruption, or if some failed, "
        "the same command continues with the rest",
    )
    parser.set_defaults(run=_study)


def _study(args: argparse.Namespace) -> int:
    from refnet.arguments import whole
    from refnet.studies.catalogue import STUDIES, find
    from refnet.studies.progress import jobs_of, status
    from refnet.studies.runner import run
    from refnet.studies.store import Store
    from refnet.studies.study import only, protocols, under
    from refnet.studies.work import shown

    for mode, void in VOID.items():
        if getattr(args, mode):
            given = [option for option in void if getattr(args, option) not in (None, False, "")]
            if given:
                what = "a study's name" if given[0] == "name" else f"--{given[0]}"
                raise ValueError(f"{what} has no effect with --{mode}; leave one of them out")
    for option, usual in (("seeds", 1 if args.quick else 3), ("workers", 1), ("threads", 1)):
        if getattr(args, option) is None:
            setattr(args, option, usual)
        whole(f"--{option}", getattr(args, option), most=MOST)
    if args.protocols:
        from refnet.training.protocols import APART, differences

        print(differences() + APART)
        return 0
    if args.name is None:
        if args.protocol is not None:
            raise ValueError(
                "--protocol needs the name of a study, such as: refnet study figure-1 "
                "--protocol vorontsov/code"
            )
        if args.list or args.measure:
            print(_listed(list(STUDIES.values()), args))
            return 0
        raise ValueError(
            "name a study, such as: refnet study table-iii --quick; see them all "
            "with: refnet study --list"
        )
    study = find(args.name)
    if args.protocol is not None:
        study = under(study, args.protocol)
    if args.list or args.measure:
        print(_listed([study], args))
        return 0
    if args.search:
        if study.search is None:
            raise ValueError(
                "--search is for studies with a grid to search, such as table-i under "
                f"its own protocol; {study.name} has none"
            )
        study = study.search
    followed = protocols(study, args.quick)
    study = only(study, args.only)
    store = Store(args.folder / (study.name + ("-quick" if args.quick else "")))
    rows = store.rows() if args.only else {}
    if args.only and not jobs_of(study, lambda job: store.done(job, rows), args.seeds, args.quick):
        raise ValueError(
            f"--only {args.only!r}: no run has that in its name; see them with: "
            + _command(
                args,
                *["--search"] * args.search,
                *(["--folder", str(args.folder)] if rows else []),
                "--status",
            )
        )
    known = _known(args).get(study.name)
    paces = known.paces if known else {}
    if args.status:
        print(status(study, store, args.seeds, args.quick, paces, _command(args, "--measure")))
        return 0
    failed = {}
    if not args.table:
        executor = None if args.cluster is None else _cluster(args.cluster)
        failed = run(
            study,
            store,
            args.seeds,
            args.quick,
            args.workers,
            executor,
            args.repeat,
            lambda text: print(text, file=sys.stderr, flush=True),
            args.threads,
            paces,
        )
    found = shown(store)
    print(f"{study.title}\n")
    if followed:
        print(f"Protocol: {', '.join(followed)}\n")
    if args.quick:
        print(
            "Quick: shorter sequences, fewer steps or examples than the titles say; not the "
            "paper's runs.\n"
        )
    print(study.table(found, args.seeds, args.quick))
    if study.figure is not None:
        try:
            from refnet.runs.plots import save

            figure = study.figure(found, args.seeds, args.quick)
            if figure is not None:
                with store.held():
                    save(store.folder / "figure.png", figure)
                print(f"figure: {printable(store.folder / 'figure.png')}")
        except ImportError:
            print("the figure needs Matplotlib: pip install 'refnet[cli]'", file=sys.stderr)
        except OSError as error:  # as in a folder of somebody else
            print(f"the figure could not be written: {told(error)}", file=sys.stderr)
        except Exception as error:  # as of a LaTeX that Matplotlib's settings ask for in vain
            print(f"Matplotlib could not draw the figure: {told(error)}", file=sys.stderr)
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    return 2 if failed else 0


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
        print(f"what was measured on this machine is not known: {told(error)}", file=sys.stderr)
    return {}


def _listed(studies: list["Study"], args: argparse.Namespace) -> str:
    """What each study is, with its measured cost on this machine."""
    from refnet.runs.rows import table
    from refnet.studies.costs import measure, remember, remembered

    if args.measure:
        remembered(_measured(args))  # a file that is damaged is told before the minutes this takes
    jobs = {study.name: study.jobs(lambda job: None, 1, args.quick) for study in studies}
    for name, found in jobs.items() if args.measure else ():
        print(f"measuring {name}", file=sys.stderr, flush=True)
        remember(_measured(args), {name: measure(found)})
    costs = _known(args)
    lines = []
    for study in studies:
        cost = costs.get(study.name)
        lines.append(
            [
                study.name,
                len(jobs[study.name]),
                *(("-", "-") if cost is None else cost.texts),
                study.title,
            ]
        )
    return table(
        [
            "study",
            "runs of a seed",
            "their hours, if none is solved",
            "memory of the largest, MB",
            "what",
        ],
        lines,
    ) + (
        "\nHours of one process, measured on this machine; refnet study --list --measure measures "
        "them."
    )


def _cluster(address: str) -> Any:
    """The executor of a dask scheduler; runs whose worker dies are sent to another one."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError(
            "--cluster needs dask.distributed; install it with: pip install 'refnet[cluster]'"
        ) from None
    # of a scheduler that is gone it logs a traceback, and the study says what to do
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        return Client(address).get_executor(retries=3, pure=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"--cluster {address}: no scheduler answers there ({error}); need the "
            "address that one prints when it is started with: dask scheduler"
        ) from None
