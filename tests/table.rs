//! Holds the table of `README.md` to its word: every case is there, and every test that it names.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The cases, by group.
const CASES: &[&str] = &[
    "B01 B02 B03 B04 B05 B06 B07 B09 B10 B11 B12",
    "B13 B14 B16 B17 B18 B19 B20 B21 B22",
    "B23 B24 B25 B27 B28 B29 B30 B31",
    "B32 B33 B34 B35 B37 B38 B39 B41",
    "B42 B43 B44 B46 B47 B48 B49 B50 B51 B52 B53 B54 B56 B57 B58",
    "B59 B62 B63 B64 B65 B67",
    "B68 B69 B70 B72 B73",
    "B75 B76 B77 B78 B79 B82",
    "B83 B84 B86 B88 B89 B91",
    "B93 B94 B95 B96 B97 B98 B99 B100 B102 B103 B104",
    "B105 B106 B107 B109",
    "B110 B111 B112 B113 B114 B115 B116 B117 B118 B120",
    "B121 B123",
];

/// Those that need a GPU.
const ON_A_GPU: &str = "B02 B05 B06 B12 B16 B17 B19 B23 B27 B28 B94 B103 B105 B106 B107 B109 B111 B113 B114 B115 B116 \
                        B117 B118 B120";

/// A row of the table.
struct Row {
    case: String,
    needs_gpu: bool,
    tests: String,
    ran_on: String,
    on_the_gpu: String,
}

impl Row {
    /// The tests that it names, as `binary::module::name`.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.tests.split('`').skip(1).step_by(2).filter(|name| name.contains("::"))
    }
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("tests/README.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let [_, case, _, tests, ran_on, on_the_gpu, _] = &cells[..] else { panic!("not five cells: {line}") };
        let (case, needs_gpu) = match case.strip_suffix(" (GPU)") {
            Some(case) => (case.to_owned(), true),
            None => (case.clone(), false),
        };
        Row { case, needs_gpu, tests: tests.clone(), ran_on: ran_on.clone(), on_the_gpu: on_the_gpu.clone() }
    };
    let is_row =
        |line: &&str| line.strip_prefix("| B").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    text.lines().filter(is_row).map(row).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files that a test of that name may be in.
fn files(name: &str) -> Vec<PathBuf> {
    let parts: Vec<_> = name.split("::").collect();
    let (binary, modules) = (parts[0], &parts[1..parts.len() - 1]);
    let inside = |folder: &str, modules: &[&str]| {
        let path = root().join(folder).join(modules.join("/"));
        [path.with_extension("rs"), path.join("mod.rs")]
    };
    match (binary, modules) {
        ("lib", [above @ .., "tests"]) => [inside("src", modules), inside("src", above)].concat(),
        ("lib", modules) => inside("src", modules).to_vec(),
        (binary, []) => vec![root().join(format!("tests/{binary}.rs")), root().join(format!("tests/{binary}/main.rs"))],
        (binary, modules) => inside(&format!("tests/{binary}"), modules).to_vec(),
    }
}

/// Whether there is a test of that name where its path says.
fn exists(name: &str) -> bool {
    let function = format!("fn {}(", name.rsplit("::").next().unwrap());
    let is_there = |text: String| {
        let lines: Vec<_> = text.lines().map(str::trim_start).collect();
        lines.iter().enumerate().any(|(at, line)| {
            let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
            line.trim_start_matches("async ").starts_with(&function)
                && attributes.clone().any(|line| line.contains("test"))
        })
    };
    files(name).iter().filter_map(|file| fs::read_to_string(file).ok()).any(is_there)
}

#[test]
fn every_case_has_its_row() {
    let rows = rows();
    let found: Vec<_> = rows.iter().map(|row| row.case.as_str()).collect();
    let expected: Vec<_> = CASES.iter().flat_map(|group| group.split(' ')).collect();
    assert_eq!(found, expected);
    let gpu: BTreeSet<_> = rows.iter().filter(|row| row.needs_gpu).map(|row| row.case.as_str()).collect();
    assert_eq!(gpu, ON_A_GPU.split(' ').collect());
    for row in &rows {
        assert!(!row.needs_gpu || !row.on_the_gpu.is_empty(), "{}: what did the run on a GPU show?", row.case);
    }
}

#[test]
fn every_test_of_the_table_is_there() {
    for row in rows() {
        let mut count = 0;
        for name in row.names() {
            count += 1;
            assert!(exists(name), "{}: there is no test {name}", row.case);
        }
        let is_absent = row.tests.ends_with("in the crate yet") && row.ran_on.is_empty();
        assert_eq!(count == 0, is_absent, "{}: a test, or what is missing for one", row.case);
    }
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    assert!(exists("table::every_case_has_its_row"));
    assert!(!exists("table::every_case_has_its_table"));
    assert!(!exists("table::rows"), "a function, and no test");
    assert!(!exists("cases::table::every_case_has_its_row"), "elsewhere");
}
