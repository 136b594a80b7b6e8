//! Gives the library the driver's SONAME, under which a later `dlopen("libcuda.so")` finds the copy that is loaded.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
        // Its own calls do not go through its table of symbols: a test takes single ones out of a copy's.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
