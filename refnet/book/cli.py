"""``refnet book``: the book as a static site."""

import argparse
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import gettempdir

from refnet.common.commands import Subparsers, add_command
from refnet.runs.files import named, printable, temporary

EXAMPLES = """examples:
  refnet book site
      run all chapters and write the book to the folder site; open site/index.html in a browser
  refnet book --serve
      show the book at http://127.0.0.1:8765 until Ctrl-C
"""


def add_book(commands: Subparsers) -> None:
    """Add ``book`` to the program's commands."""
    parser = add_command(
        commands,
        "book",
        _book,
        "write the book: derivations beside the code, computed and checked",
        "Run the chapters of the book, from the chain rule to the papers' errata, and "
        "write them as a\nstatic site. Every number, figure and check is computed as it is built; "
        "a check that does\nnot hold ends the command.",
        EXAMPLES,
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=named,
        metavar="DIR",
        help="a new or empty folder, or one with a book, which is replaced",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=8765,
        metavar="PORT",
        help="show the book on a port of this machine (default: 8765; 0: any that is free)",
    )
    parser.add_argument(
        "--only", default="", metavar="CHAPTER", help="the chapters alone whose names begin so: 02"
    )


def _book(args: argparse.Namespace) -> int:
    try:
        from refnet.book import site
    except ImportError as error:
        raise ImportError(f"the book needs {error.name}: pip install 'refnet[book]'") from None

    if args.folder is None and args.serve is None:
        raise ValueError("name a folder for the book, such as: refnet book site (or pass --serve)")
    server = None if args.serve is None else _server(args.serve)  # refused before the work
    if args.folder is None:
        with temporary(Path(gettempdir()) / "refnet-book") as folder:
            folder.mkdir()
            site.write(folder, site.pages(args.only))
            return _serve(folder, server)
    with site.place(args.folder) as folder:
        site.write(folder, site.pages(args.only))
    print(f"the book: {printable(args.folder / 'index.html')}")
    return _serve(args.folder, server)


class _Pages(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests are not reported."""


def _server(port: int) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), _Pages)
    except (OSError, OverflowError) as error:
        raise ValueError(f"--serve: port {port} cannot be used ({error}); need another") from None


def _serve(folder: Path, server: ThreadingHTTPServer | None) -> int:
    """Serve a folder to this machine until the process is ended."""
    if server is not None:
        server.RequestHandlerClass = partial(_Pages, directory=str(folder))
        print(f"the book: http://127.0.0.1:{server.server_port} (Ctrl-C ends this)", flush=True)
        server.serve_forever()
    return 0
