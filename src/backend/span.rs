//! [`Span`]: a stretch of the user's memory that a device knows, or is to know.

use super::os;

/// A stretch of the user's memory, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    /// The length in bytes, never 0.
    pub(crate) bytes: usize,
    /// It is a file's, mapped shared and read-only.
    pub(crate) of_file: bool,
}

impl Span {
    /// Memory as it is handed to a driver. A file's pages have nobody else's memory in them, and so are taken whole: neighbours
    /// in the same pages are known with it.
    pub(crate) fn new((ptr, bytes): (*const u8, usize), of_file: bool) -> Self {
        let exact = Self { start: ptr.addr(), bytes, of_file };
        if of_file { exact.pages() } else { exact }
    }

    /// The whole pages that it has a part in: what a driver locks.
    fn pages(self) -> Self {
        let page = os::page_size();
        let start = self.start / page * page;
        let end = self.end().checked_next_multiple_of(page).unwrap_or(usize::MAX);
        Self { start, bytes: end - start, ..self }
    }

    const fn end(self) -> usize {
        self.start.saturating_add(self.bytes)
    }

    /// Whether all of `other` lies in it.
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Whether both have a byte.
    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Whether a page has a part of both.
    pub(crate) fn touches(self, other: Self) -> bool {
        self.pages().overlaps(other.pages())
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = if self.of_file { " of a file" } else { "" };
        write!(f, "{} bytes{of} from {:#x} on", self.bytes, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, bytes: usize, of_file: bool) -> Span {
        Span::new((std::ptr::without_provenance(start), bytes), of_file)
    }

    #[test]
    fn pages_of_a_file_are_taken_whole_and_memory_of_others_is_not() {
        let page = os::page_size();
        let file = span(page + 100, page, true);
        assert_eq!((file.start, file.bytes), (page, 2 * page));
        let vector = span(page + 100, page, false);
        assert_eq!((vector.start, vector.bytes), (page + 100, page));
        assert!(file.contains(vector) && !vector.contains(file) && vector.contains(vector));
        assert!(!file.contains(span(3 * page - 1, 2, false)) && !file.contains(span(page - 1, 2, false)));
    }

    #[test]
    fn spans_touch_where_they_share_a_page() {
        let page = os::page_size();
        let vector = span(page + 100, 10, false);
        assert!(vector.touches(span(page, 1, false)) && vector.touches(span(2 * page - 1, 1, false)));
        assert!(!vector.overlaps(span(page, 100, false)) && vector.overlaps(span(page, 101, false)));
        assert!(!vector.touches(span(page - 1, 1, false)) && !vector.touches(span(2 * page, 1, false)));
        assert!(vector.touches(span(0, 9 * page, false)) && span(0, 9 * page, true).touches(vector));
    }
}
