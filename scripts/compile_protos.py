"""Compiles serving/protos/ranking.proto into the descriptor set that the client reads.

    pip install grpcio-tools && python scripts/compile_protos.py

To be run after a change of the .proto file; both files are committed.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

PROTOS = Path(__file__).resolve().parent.parent / "serving" / "protos"


def compile_protos(out: Path) -> None:
    """Writes the descriptor set, with the messages of protobuf's own that it needs."""
    from grpc_tools import protoc

    code = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{files('grpc_tools') / '_proto'}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            "ranking.proto",
        ]
    )
    if code:
        sys.exit(code)


if __name__ == "__main__":
    compile_protos(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS / "ranking.binpb")
