//! What a task sees of a batch stays in the task.
fn main() -> inflight::Result<()> {
    let device = inflight::Device::host()?;
    let stream = inflight::HostStream::new()?;
    let batch = futures::executor::block_on(device.try_transfer(("x", 1_u8))?)?;
    let _task = batch.on(&stream)?.run(|fields| fields.view::<u8>("x"));
    Ok(())
}
