//! What must not compile.

use std::process::Command;

#[test]
fn what_must_not_compile_does_not() {
    if Command::new("cargo").arg("--version").output().is_err() {
        eprintln!("!!! NOT CHECKED: there is no cargo to compile with");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
