//! What may be done with memory, as the system tells it: a driver does not lock all of it.

use crate::code::Code;
use crate::refusal::Refusal;

/// Refuses to lock memory that can't be written to, as a driver on an H200 machine did: a shared mapping unless it is to be
/// read only; of a private one it did not come back for minutes. Where the system does not tell, all is well.
pub(crate) fn check(start: usize, bytes: usize, read_only: bool) -> Result<(), Refusal> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let locked = maps.lines().filter_map(mapping).filter(|(from, to, _)| *from < start + bytes && start < *to);
    for (_, _, rights) in locked {
        match rights.as_bytes() {
            [_, b'-', _, b's'] if !read_only => return Err(Code::INVALID_VALUE.into()),
            [_, b'-', _, b'p'] => {
                return Err(Refusal::misuse(Code::INVALID_VALUE, "a private mapping that can't be written to"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Of a line, where the mapping begins and ends, and its rights.
fn mapping(line: &str) -> Option<(usize, usize, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    Some((address(from)?, address(to)?, rest.split(' ').next()?))
}
