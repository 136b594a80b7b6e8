//! Borrowed memory can't be sent: the copy would outlive the borrow.
fn main() {
    let array = ndarray::Array1::<f32>::zeros(4);
    let _batch = inflight::HostBatch::new().with("x", array.view());
}
