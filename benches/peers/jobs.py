"""The jobs on large arrays: what lies on the host, and how it is made what the device shall have."""

from .ways import Job

IMAGE, BATCH, IMAGES = (3, 224, 224), 256, 8192


def jobs(torch):
    """The jobs on large arrays, made when their turn comes."""
    seeded = torch.Generator().manual_seed(1)
    images = torch.randint(0, 255, (IMAGES, *IMAGE), dtype=torch.uint8, generator=seeded)
    order, count = torch.randperm(IMAGES, generator=seeded), IMAGES // BATCH
    rows = [order[first : first + BATCH] for first in range(0, IMAGES, BATCH)]
    shape, each = (BATCH, *IMAGE), images[:BATCH].nbytes
    yield Job(
        "contiguous", count, each, shape, torch.uint8, 32,
        lambda n, a, b, out: out.copy_(images[n * BATCH + a : n * BATCH + b]),
        lambda n: images[n * BATCH : (n + 1) * BATCH],
    )
    yield Job(
        "rows", count, each, shape, torch.uint8, BATCH,
        lambda n, a, b, out: torch.index_select(images, 0, rows[n][a:b], out=out),
        lambda n: images[rows[n]],
    )
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    flat = images.view(count, BATCH, 224, 224, 3)

    def normalized(tensor):
        on = tensor.device
        return ((tensor / 255 - mean.to(on)) / std.to(on)).permute(0, 3, 1, 2).contiguous()

    yield Job(
        "layout u8 normalized", 8, each, (BATCH, 224, 224, 3), torch.uint8, 32,
        lambda n, a, b, out: out.copy_(flat[n, a:b]), lambda n: normalized(flat[n]), lambda n: flat[n], normalized,
    )
    del images, flat

    volume = torch.rand(512, 512, 512, generator=seeded)
    for number, edge in ((16, 64), (128, 32), (2, 128)):
        corners = torch.randint(0, 512 - edge + 1, (32, number, 3), generator=seeded).tolist()

        def cubes(n, first, last, out, edge=edge, corners=corners):
            for place, (z, y, x) in enumerate(corners[n][first:last]):
                out[place].copy_(volume[z : z + edge, y : y + edge, x : x + edge])
            return out

        shape = (number, edge, edge, edge)
        yield Job(
            f"crops {number}x{edge}", 32, number * edge**3 * 4, shape, torch.float32, number,
            cubes, lambda n, cubes=cubes, shape=shape: cubes(n, 0, shape[0], torch.empty(shape)),
        )
    channels_last = volume.view(-1)[: 3 * 256 * 224 * 224 * 3].view(3, 256, 224, 224, 3)
    yield Job(
        "layout f32", 12, channels_last[0].nbytes, (256, 224, 224, 3), torch.float32, 8,
        lambda n, a, b, out: out.copy_(channels_last[n % 3, a:b]),
        lambda n: channels_last[n % 3].permute(0, 3, 1, 2).contiguous(), lambda n: channels_last[n % 3],
        lambda tensor: tensor.permute(0, 3, 1, 2).contiguous(),
    )
    del volume, channels_last

    doubles = torch.rand(64, 1024, 1024, dtype=torch.float64, generator=seeded)
    yield Job(
        "cast", 4, doubles.nbytes, doubles.shape, torch.float32, 1,
        lambda n, a, b, out: out.copy_(doubles[a:b]), lambda n: doubles.float(),
        lambda n: doubles, lambda tensor: tensor.float(),
    )
    yield Job(
        "reversed", 4, doubles.nbytes, doubles.shape, torch.float64, 1,
        lambda n, a, b, out: out.copy_(doubles[a:b]), lambda n: doubles.flip(0, 1, 2),
        lambda n: doubles, lambda tensor: tensor.flip(0, 1, 2),
    )
    yield Job(
        "reversed first axis", 4, doubles.nbytes, doubles.shape, torch.float64, 1,
        lambda n, a, b, out: out.copy_(doubles[a:b]), lambda n: doubles.flip(0),
        lambda n: doubles, lambda tensor: tensor.flip(0),
    )
    del doubles
    four = torch.rand(128, 128, 128, 64, dtype=torch.float64, generator=seeded)
    yield Job(
        "transposed", 2, four.nbytes, four.shape, torch.float64, 1,
        lambda n, a, b, out: out.copy_(four[a:b]), lambda n: four.permute(3, 1, 2, 0).contiguous(),
        lambda n: four, lambda tensor: tensor.permute(3, 1, 2, 0).contiguous(),
    )
