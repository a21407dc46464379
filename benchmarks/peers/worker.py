"""One peer in a process of its own: JSON lines in, JSON lines out.

    python -m benchmarks.peers.worker KIND SETTINGS

Started by `benchmarks.peers.process`. It imports nothing but the standard library before the peer's own module, so
that an interpreter which has only llama-cpp-python can run that peer. A request is ``{"op": NAME, …}`` and is
answered by the peer's method of that name; the answer carries the CPU time it took and the peak memory so far.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from time import process_time
from typing import Any

OPERATIONS = ("tokenize", "workspace", "complete", "keystroke", "calibrate")


def peer_of(kind: str, settings: dict[str, Any]) -> Any:
    """The peer of a kind, loaded and warm; what only it needs is imported here."""
    if kind == "ours":
        from benchmarks.peers.ours import Ours

        return Ours(settings)
    if kind == "llama":
        from benchmarks.peers.llama import Llama

        return Llama(settings)
    if kind == "transformers":
        from benchmarks.peers.generate import Transformers

        return Transformers(settings)
    raise ValueError(f"there is no peer {kind!r}")


def serve(peer: Any, requests: Any, replies: Any) -> None:
    """Answers requests until the input ends; a request that fails is answered with the reason."""
    for line in requests:
        request = json.loads(line)
        began = process_time()
        try:
            if request["op"] not in OPERATIONS:
                raise ValueError(f"there is no operation {request['op']!r}")
            answer = getattr(peer, request.pop("op"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answer |= {"cpu_s": process_time() - began, "peak_bytes": peak_bytes()}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Loads the peer and serves it on the standard streams; whatever else is printed goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = peer_of(sys.argv[1], json.loads(sys.argv[2]))
    replies.write(json.dumps({"ready": sys.argv[1], "about": peer.about, "peak_bytes": peak_bytes()}) + "\n")
    replies.flush()
    serve(peer, sys.stdin, replies)


if __name__ == "__main__":
    main()
