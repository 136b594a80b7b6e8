//! A file is mapped only by who answers for it: that nobody writes to it or shortens it.
fn main() {
    let _file = inflight::MappedFile::open("data.npy");
}
