"""The jobs that are no stream of large arrays: what is page-locked already, small batches, and steps of compute."""

import dataclasses

from .jobs import BATCH, IMAGE, jobs
from .ways import THREADS


def prefetched(feed, batches, consume=lambda batch: None):
    """Each batch is copied one ahead, on a stream of its own: what users write by hand."""
    torch, compute = feed.torch, feed.torch.cuda.current_stream()

    def begin(number):
        with torch.cuda.stream(feed.copies):
            return feed.to(batches[number])

    coming = begin(0)
    for number in range(1, len(batches) + 1):
        compute.wait_stream(feed.copies)
        here = coming
        here.record_stream(compute)
        coming = begin(number) if number < len(batches) else None
        consume(here)


def page_locked(feed):
    """Batches that are page-locked already, of 38.5 MB, and the rows of a registered array."""
    torch = feed.torch
    batches = [torch.randint(0, 255, (BATCH, *IMAGE), dtype=torch.uint8).pin_memory() for _ in range(16)]
    total = len(batches) * batches[0].nbytes
    here = torch.empty_like(batches[0], device=feed.device)
    yield "link", "copy_ into one tensor", total, 16, lambda: [here.copy_(b, non_blocking=True) for b in batches]
    yield "pinned", "to, one stream", total, 16, lambda: feed.each(feed.to(batch) for batch in batches)
    yield "pinned", "prefetcher, two streams", total, 16, lambda: prefetched(feed, batches)

    images = torch.randint(0, 255, (4096, *IMAGE), dtype=torch.uint8)
    torch.cuda.cudart().cudaHostRegister(images.data_ptr(), images.nbytes, 0)
    order = torch.randperm(len(images)).tolist()

    def row_by_row():
        for first in range(0, len(images), BATCH):
            target = torch.empty((BATCH, *IMAGE), dtype=torch.uint8, device=feed.device)
            for place, row in enumerate(order[first : first + BATCH]):
                target[place].copy_(images[row], non_blocking=True)

    yield "registered rows", "a copy a row", images.nbytes, 16, row_by_row
    feed.sync()
    torch.cuda.cudart().cudaHostUnregister(images.data_ptr())


def small(feed):
    """Batches of 4 KiB, and eight fields of 512 bytes in one."""
    torch, count = feed.torch, 10_000
    pageable = [torch.randn(32, 32) for _ in range(count)]
    locked = [batch.pin_memory() for batch in pageable]
    fields = [torch.zeros(512, dtype=torch.uint8).pin_memory() for _ in range(8)]
    ways = {
        "to, pageable": lambda: feed.each(feed.to(batch) for batch in pageable),
        "to, page-locked": lambda: feed.each(feed.to(batch) for batch in locked),
        "prefetcher, page-locked": lambda: prefetched(feed, locked),
        **{name: lambda loader=loader: feed.each(feed.to(b) for b in loader) for name, loader in loaders(feed, pageable)},
    }
    for name, run in ways.items():
        yield "small", name, 4096 * count, count, run
    eight = lambda: feed.each(feed.to(field) for _ in range(count) for field in fields)
    yield "fields", "to, eight times", 4096 * count, count, eight


def loaders(feed, batches):
    for workers in (0, 4):
        yield f"DataLoader, {workers} workers", feed.loader_of(batches, workers)


def steps(feed):
    """Steps of matmul twice as long as the transfer of a batch of shuffled images, with and without."""
    torch, count = feed.torch, 128
    rows = next(job for job in jobs(torch) if job.name == "rows")
    feeding = dataclasses.replace(
        rows,
        count=count,
        gather=lambda n, a, b, out: rows.gather(n % rows.count, a, b, out),
        host=lambda n: rows.host(n % rows.count),
    )
    here, locked = torch.empty(rows.shape, dtype=rows.dtype, device=feed.device), feed.pinned(rows.shape, rows.dtype)
    transfer = feed.time(lambda: [here.copy_(locked, non_blocking=True) for _ in range(16)]) / 16
    left = torch.randn(4096, 4096, device=feed.device)
    right = torch.randn(4096, 4096, device=feed.device)
    one = feed.time(lambda: feed.each(left @ right for _ in range(16))) / 16
    columns = max(1, round(64 * 2 * transfer / one)) * 64
    right = torch.randn(4096, columns, device=feed.device)
    matmul = lambda batch=None: left @ right

    yield "steps alone", "matmul", rows.bytes * count, count, lambda: feed.each(matmul() for _ in range(count))
    for threads in (8, THREADS):
        yield "steps", f"ring, {threads} threads", rows.bytes * count, count, feed.ring_of(feeding, threads, matmul)
    for workers in (4, 8):
        loader = feed.loader_of(feed.batches_of(feeding), workers)
        run = lambda loader=loader: feed.each(matmul(feed.to(batch)) for batch in loader)
        yield "steps", f"DataLoader, {workers} workers", rows.bytes * count, count, run
