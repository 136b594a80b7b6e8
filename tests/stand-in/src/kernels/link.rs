//! The kernels of `benches/kernels/link.cu`, which says more: copies that are made, and work that only takes time.

use std::time::Duration;

use super::{Kernel, Launch, Outcome};

/// The CPU version of one of the kernels here.
pub(crate) fn find(name: &str) -> Option<Kernel> {
    Some(match name {
        "gather_cubes" => |launch| {
            // Where memory is invalid the launch knows that, and makes it a fault.
            let _ = gather_cubes(launch);
            Outcome::done()
        },
        "burn" => |launch| Outcome::after(Duration::from_nanos(u64::from(launch.u32_at(1)))),
        "matmul" => |launch| Outcome::after(Duration::from_nanos(u64::from(launch.u32_at(5)) * 100)),
        _ => return None,
    })
}

/// `gather_cubes(u64 dst, u64 src, u64 corners, u32 cubes, u32 edge, u32 line)`
fn gather_cubes(launch: &Launch<'_>) -> Option<()> {
    let (edge, line) = (u64::from(launch.u32_at(4)), u64::from(launch.u32_at(5)));
    let row = usize::try_from(edge).ok()?;
    let corners = launch.read::<u32>(launch.u64_at(2), usize::try_from(launch.u32_at(3)).ok()?)?;
    let mut to = launch.u64_at(0);
    for corner in corners {
        for (z, y) in (0..edge).flat_map(|z| (0..edge).map(move |y| (z, y))) {
            let from = u64::from(corner) + (z * line + y) * line;
            let values = launch.read::<f32>(launch.u64_at(1) + from * 4, row)?;
            launch.write(to, &values);
            to += edge * 4;
        }
    }
    Some(())
}
