# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m kvpool doctor | identity | version`.

A process of its own, one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence

from kvpool import doctor, doctor_text, identity

EXIT_FINE, EXIT_STOPPED, EXIT_USAGE = 0, 1, 2

_DOCTOR = """\
Shows what is there (package, daemon, pool, engines of this Python, engines that run), what would
stop engines from sharing, and what to do about each. Reads the environment and the command lines of
this user's processes; attaches to the daemon for a moment.
"""
_DOCTOR_EXITS = """\
exit codes: 0 sharing would work; 1 something stops it, and is named; 2 usage
"""
_IDENTITY = """\
Prints the SHA-256 by which kvpool knows a model (a folder with safetensors or GGUF, a GGUF file, a
name in the Hugging Face cache) or, with --adapter, an adapter. Copies are equal; other weights are
not.
"""
_IDENTITY_EXITS = "exit codes: 0 identified; 1 not identified, the reason is on stderr; 2 usage\n"


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m kvpool", description="Shared KV cache pool of one host."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser(
        "doctor",
        help="what would stop engines from sharing, and what to do",
        description=_DOCTOR,
        epilog=_DOCTOR_EXITS,
        formatter_class=raw,
    )
    one.add_argument("--json", action="store_true", help="JSON with schema_version")
    one.add_argument("--model", metavar="DIR", help="also: can this model be identified?")
    one.add_argument(
        "--socket",
        metavar="PATH",
        help="of the daemon; else $KVPOOL_SOCKET, /run/kvpool/kvpool.sock,"
        " $XDG_RUNTIME_DIR/kvpool.sock",
    )
    one.add_argument(
        "--try",
        action="store_true",
        dest="trial",
        help="also store one block of 4 KiB, find it as another client, and drop it",
    )
    one = commands.add_parser(
        "identity",
        help="by what a model or an adapter is known",
        description=_IDENTITY,
        epilog=_IDENTITY_EXITS,
        formatter_class=raw,
    )
    one.add_argument("path", metavar="DIR")
    one.add_argument("--adapter", action="store_true", help="it is an adapter (a PEFT folder)")
    one.add_argument("--json", action="store_true", help="JSON with schema_version")
    commands.add_parser("version", help="versions of the package and of the library in it")
    return parser


def _print_json(value: dict[str, object]) -> None:
    print(json.dumps(value, indent=2))


def _doctor(arguments: argparse.Namespace) -> int:
    report = doctor.examine(socket=arguments.socket, model=arguments.model, trial=arguments.trial)
    if arguments.json:
        _print_json(report.to_json())
    else:
        terminal = sys.stdout.isatty()
        columns = shutil.get_terminal_size((100, 24)).columns if terminal else 100
        colour = terminal and not os.environ.get("NO_COLOR")
        print(doctor_text.render(report, width=max(40, min(columns, 100)), colour=colour), end="")
    return EXIT_FINE if report.sharing else EXIT_STOPPED


def _identity(arguments: argparse.Namespace) -> int:
    try:
        if arguments.adapter:
            found = identity.adapter(arguments.path)
        else:
            found = identity.model(identity.locate(arguments.path))
    except identity.Unidentified as error:
        print(f"not identified: {error.reason}", file=sys.stderr)
        return EXIT_STOPPED
    if arguments.json:
        _print_json({"schema_version": 1, **vars(found)})
        return EXIT_FINE
    print(found.digest)
    print(f"{found.kind}: {', '.join(found.files)}")
    print(
        f"{found.tensors} tensors, {doctor_text.size(found.bytes_read)} of"
        f" {doctor_text.size(found.bytes_total)} read in {1000 * found.seconds:.1f} ms"
    )
    return EXIT_FINE


def _version() -> int:
    print(f"kvpool {doctor.package_version()}")
    try:
        from kvpool import version

        print(f"libkvpool {version()}")
    except ImportError as error:
        print(f"no library: {error}", file=sys.stderr)
        return EXIT_STOPPED
    return EXIT_FINE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. Usage errors leave through SystemExit(2)."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "doctor":
            code = _doctor(arguments)
        elif arguments.command == "identity":
            code = _identity(arguments)
        else:
            code = _version()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has seen enough; what is left must not raise once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_STOPPED
    return code


if __name__ == "__main__":
    sys.exit(main())
