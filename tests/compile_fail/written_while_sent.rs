//! A page-locked array that is being sent can't be written to: the transfer has it.
fn main() -> inflight::Result<()> {
    let device = inflight::Device::host()?;
    let mut array = futures::executor::block_on(device.pinned::<u32, _>(4096))?;
    let _transfer = device.try_transfer(("x", array))?;
    array.fill(u32::MAX);
    Ok(())
}
