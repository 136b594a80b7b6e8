//! Only plain numbers are elements.
fn main() {
    let _array = inflight::HostArray::from(vec![String::new()]);
}
