#!/usr/bin/env python3
"""The jobs of benches/link.rs by what a Python user has: PyTorch, SPDL and JAX, where they are installed.

    benches/peers.py                    a row for each job and peer
    benches/peers.py --json             a line of JSON each instead
    benches/peers.py --beside [LINK]    runs that bench first, then prints one table: ours, the best peer, the reach

LINK is the bench's executable, or a file with what it printed for --json; else it is .gpu/benches/link where that is, or
what cargo builds. With --job NAME, which may come again, others are left out. PyTorch has at most 12 threads or workers. A
peer drops its batches as they come; its figure is the median of three runs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

# JAX reads these when it is imported.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_ENABLE_X64", "true")

ROOT = Path(__file__).resolve().parent.parent
BENCH = ["cargo", "bench", "--bench", "link", "--"]
# Our jobs, besides those on large arrays, that have peers; the peer's job is the same but for an ending of OURS_ALONE.
SMALL = ("pinned 38535168 depth 4 tokio", "small depth 8", "small depth 64", "fields depth 8", "fields depth 64", "steps")
OURS_ALONE = (" beside compute", " pageable", " depth 8", " depth 64", " 38535168 depth 4 tokio")
TIMED = ("small", "fields", "steps alone")


def measured(wanted):
    """A row for each job and peer, as it comes."""
    try:
        import torch
    except ImportError:
        raise SystemExit("PyTorch is not installed: there are no peers to measure")
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU: there are no peers to measure")
    from peers.jobs import jobs
    from peers.others import page_locked, small, steps
    from peers.ways import Feed

    feed = Feed(torch)
    is_wanted = lambda job: not wanted or job.split()[0] in wanted or job in wanted

    def row(job, peer, size, batches, run):
        try:
            return {"job": job, "peer": peer, "bytes": size, "batches": batches, "seconds": feed.time(run)}
        except Exception as error:  # noqa: BLE001: whatever a peer can't do is said, and others go on
            print(f"!!! NOT MEASURED: {job}, {peer}: {type(error).__name__}: {error}"[:300], file=sys.stderr)

    def all_rows():
        if is_wanted("link") or is_wanted("pinned") or is_wanted("registered"):
            yield from (row(*one) for one in page_locked(feed))
        for job in jobs(torch):
            if is_wanted(job.name):
                for peer, run in feed.peers(job):
                    yield row(job.name, peer, job.bytes * job.count, job.count, run)
        for name, others in (("small", small), ("fields", small), ("steps", steps)):
            if is_wanted(name) and not (name == "fields" and is_wanted("small")):
                yield from (row(*one) for one in others(feed))

    alone = None
    for one in filter(None, all_rows()):
        alone = one["seconds"] if one["job"] == "steps alone" else alone
        yield one | {"limit_seconds": alone} if one["job"] == "steps" else one


def cost(row):
    """What a byte takes, as runs differ in their number; of steps, what they take more than alone."""
    return row["seconds"] / (row["limit_seconds"] if row["job"] == "steps" else row["bytes"])


def figure(row):
    """The rate, or the time of a batch where that is what counts."""
    if row["job"] == "steps":
        return f"{row['seconds'] / row['limit_seconds']:.3f} × alone"
    if row["job"].startswith(TIMED):
        return f"{row['seconds'] / row['batches'] * 1e6:.2f} µs"
    return f"{row['bytes'] / row['seconds'] / 1e9:.2f} GB/s"


def ours(link, wanted):
    """The rows of our own bench."""
    if link and not os.access(link, os.X_OK):
        lines = Path(link).read_text()
    else:
        packed = ROOT / ".gpu/benches/link"
        command = [link] if link else [str(packed)] if packed.exists() else BENCH
        only = [word for job in wanted if job != "link" for word in ("--job", job)]
        lines = subprocess.run([*command, "--json", *only], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def named_as_peers(job):
    """Our job by the name that its peers' has; a mapped file is to them memory like any other."""
    for ending in OURS_ALONE:
        job = job.removesuffix(ending)
    return {"mapped rows": "rows"}.get(job, job)


def table(own, peers):
    """Ours beside the best peer."""
    best = {}
    for row in peers:
        known = best.get(row["job"])
        if not known or cost(row) < cost(known):
            best[row["job"]] = row
    yield ("job", "ours", "of the limit", "of the link", "cores", "best peer", "ours / peer", "reach")
    for row in own:
        if not (row["reaches"] or row["job"] in SMALL) or row["job"].startswith("pinned") and row["job"] not in SMALL:
            continue
        peer = best.get(named_as_peers(row["job"]))
        share = lambda seconds: f"{seconds / row['seconds']:.3f}" if seconds else ""
        reach = [f"{one['reach']}: {verdict(one['reached'])}" for one in row["reaches"]]
        yield (
            row["job"],
            figure(row),
            share(row["limit_seconds"]),
            share(row["link_seconds"]),
            "" if row["cores"] is None else f"{row['cores']:.2f}",
            f"{figure(peer)} ({peer['peer']})" if peer else "",
            f"{cost(peer) / cost(row):.2f} ×" if peer else "",
            "; ".join(reach),
        )


def verdict(reached):
    return {True: "reached", False: "SHORT", None: "on a GPU"}[reached]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--job", action="append")
    parser.add_argument("--beside", nargs="?", const="", metavar="LINK")
    options = parser.parse_args()
    own = ours(options.beside, options.job or []) if options.beside is not None else []
    rows = []
    for row in measured(options.job):
        rows.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            print(f"{row['job']:24} {row['peer']:32} {figure(row):>14}", flush=True)
    if own:
        lines = list(table(own, rows))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        print()
        for line in lines:
            print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


if __name__ == "__main__":
    main()
