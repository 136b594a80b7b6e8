"""The ways of feeding a GPU from Python: PyTorch's, a hand-written ring, SPDL and JAX, where they are installed."""

import concurrent.futures
import dataclasses
import queue
import threading
import time
from typing import Callable, Optional

THREADS = 12  # at most
AHEAD = 4
RUNS = 3
LONG = 3.0  # seconds


@dataclasses.dataclass
class Job:
    """Batches that are made on the host and wanted on the device."""

    name: str
    count: int  # batches of a run
    bytes: int  # of a batch in the source
    shape: tuple  # of what goes over the link in the hand-written ring
    dtype: object
    piece: int  # rows of that which a thread of the ring gathers at once
    gather: Callable  # (number, first row, last row, page-locked tensor): gathers them
    host: Callable  # (number): the batch as it shall be on the device, made on the host
    raw: Optional[Callable] = None  # (number): the batch as it lies on the host, where the device can do the rest
    finish: Callable = lambda tensor: tensor  # the rest, on the device


class Feed:
    """PyTorch on the first GPU, and the ways of feeding it."""

    def __init__(self, torch):
        self.torch, self.device = torch, torch.device("cuda")
        torch.zeros(1, device=self.device)
        self.copies = torch.cuda.Stream()
        self.sync = torch.cuda.synchronize

    def time(self, run):
        """Seconds that a run takes: the median after one that does not count, unless that took long."""
        first = self.once(run)
        return first if first > LONG else sorted(self.once(run) for _ in range(RUNS))[RUNS // 2]

    def once(self, run):
        self.sync()
        begun = time.perf_counter()
        run()
        self.sync()
        return time.perf_counter() - begun

    @staticmethod
    def each(batches):
        """Drops each batch as it comes."""
        for _ in batches:
            pass

    def pinned(self, shape, dtype):
        return self.torch.empty(shape, dtype=dtype, pin_memory=True)

    def to(self, tensor):
        return tensor.to(self.device, non_blocking=True)

    def plain(self, job):
        """`to` of what the host has made, and of what the device finishes."""
        yield "to", lambda: self.each(self.to(job.host(number)) for number in range(job.count))
        if job.raw:
            rest = lambda: self.each(job.finish(self.to(job.raw(number))) for number in range(job.count))
            yield "to, rest on the device", rest

    def batches_of(self, job):
        """The job's batches as a data set."""

        class Batches(self.torch.utils.data.Dataset):
            def __len__(self):
                return job.count

            def __getitem__(self, number):
                return job.host(number)

        return Batches()

    def loader_of(self, batches, workers):
        """`DataLoader` with page-locked memory, whole batches to a worker."""
        more = {"persistent_workers": True, "multiprocessing_context": "fork", "timeout": 60} if workers else {}
        return self.torch.utils.data.DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=True, **more)

    def loader(self, job):
        for workers in (0, 4, 8, THREADS) if job.bytes < 1 << 27 else (0, 2):
            loader = self.loader_of(self.batches_of(job), workers)
            run = lambda loader=loader: self.each(self.to(batch) for batch in loader)
            yield f"DataLoader, {workers} workers", run

    def ring(self, job):
        for threads in (4, 8, THREADS):
            yield f"ring, {threads} threads", self.ring_of(job, threads)

    def ring_of(self, job, threads, consume=lambda tensor: None):
        """Threads that gather into page-locked pieces, each with a stream of its own."""
        torch, local, free = self.torch, threading.local(), queue.Queue()
        for _ in range(2 * threads):
            free.put(self.pinned((min(job.piece, job.shape[0]), *job.shape[1:]), job.dtype))
        pool = concurrent.futures.ThreadPoolExecutor(threads)

        def send(number, first, target):
            if not hasattr(local, "stream"):
                torch.set_num_threads(1)
                local.stream = torch.cuda.Stream()
            last = min(first + job.piece, job.shape[0])
            slot = free.get()
            try:
                job.gather(number, first, last, slot[: last - first])
                with torch.cuda.stream(local.stream):
                    target[first:last].copy_(slot[: last - first], non_blocking=True)
                local.stream.synchronize()
            finally:
                free.put(slot)

        def begin(number):
            target = torch.empty(job.shape, dtype=job.dtype, device=self.device)
            return target, [pool.submit(send, number, first, target) for first in range(0, job.shape[0], job.piece)]

        def run():
            ahead = max(AHEAD, 2 * threads * job.piece // job.shape[0])
            coming = [begin(number) for number in range(min(ahead, job.count))]
            for number in range(job.count):
                target, sends = coming.pop(0)
                for sent in sends:
                    sent.result()
                if number + ahead < job.count:
                    coming.append(begin(number + ahead))
                consume(job.finish(target))

        return run

    def spdl(self, job):
        """SPDL's pipeline and its transfer, where it is installed."""
        try:
            import spdl.io
            import spdl.pipeline
        except ImportError:
            return

        def run(threads):
            builder = spdl.pipeline.PipelineBuilder().add_source(list(range(job.count)))
            builder = builder.pipe(job.host, concurrency=threads)
            alone = concurrent.futures.ThreadPoolExecutor(1)
            builder = builder.pipe(spdl.io.transfer_tensor, concurrency=1, executor=alone).add_sink(AHEAD)
            pipeline = builder.build(num_threads=threads)
            with pipeline.auto_stop():
                self.each(pipeline)

        for threads in (4, 8, THREADS - 1):
            yield f"SPDL, {threads} threads", lambda threads=threads: run(threads)

    def jax(self, job):
        """`device_put` of what the host has made, where JAX is installed."""
        try:
            import jax
        except ImportError:
            return

        def run():
            coming = []
            for number in range(job.count):
                coming = coming[1 - AHEAD :] + [jax.device_put(job.host(number).numpy())]
            for array in coming:
                array.block_until_ready()

        yield "JAX device_put", run

    def peers(self, job):
        """Each way's name, and a run of it."""
        for way in (self.plain, self.loader, self.ring, self.spdl, self.jax):
            self.torch.set_num_threads(THREADS)
            yield from way(job)
