//! `batch!` refuses a name that stands twice.
fn main() {
    let _batch = inflight::batch! { x: 1_u8, x: 2_u8 };
}
