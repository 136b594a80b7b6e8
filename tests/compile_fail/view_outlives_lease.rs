//! A view ends with its lease.
fn main() -> inflight::Result<()> {
    let device = inflight::Device::host()?;
    let stream = inflight::HostStream::new()?;
    let batch = futures::executor::block_on(device.try_transfer(("x", 1_u8))?)?;
    let lease = batch.on(&stream)?;
    let view = lease.view::<u8>("x")?;
    lease.end()?;
    println!("{}", view.len());
    Ok(())
}
