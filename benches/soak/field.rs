//! [`Field`]: one array of a batch, in one of the layouts that users have; how it is made, and what must arrive.

use inflight::{Device, Dtype, HostArray, Result};
use ndarray::s;
use rand::Rng;
use rand::rngs::StdRng;

use super::bank::Bank;
use super::cell::{Cell, Written};

/// Rows at most: a table of picked rows must not outweigh what is sent.
const MOST_ROWS: usize = 4096;

/// How the array lies on the host.
#[derive(Debug)]
enum Layout {
    /// A vector of its own, dropped when it is sent.
    Owned,
    Shared,
    Pinned,
    Transposed,
    Reversed,
    /// Every other row.
    Stepped,
    Picked(Vec<usize>),
}

/// A two-dimensional array of `u8` or `u32`.
#[derive(Debug)]
pub(crate) struct Field {
    layout: Layout,
    pub(crate) is_wide: bool,
    rows: usize,
    columns: usize,
    offset: usize,
}

impl Field {
    /// An array of about so many bytes. A batch has one page-locked array at most: two that wait for their second would
    /// wait for each other.
    pub(crate) fn random(random: &mut StdRng, bytes: usize, may_be_pinned: bool) -> Self {
        let is_wide = random.random_bool(0.3);
        let elements = bytes / if is_wide { 4 } else { 1 };
        let rows = random.random_range(1..=elements.clamp(1, MOST_ROWS));
        let columns = elements / rows;
        let mut layout = match random.random_range(0..10) {
            0..=2 => Layout::Owned,
            3 | 4 => Layout::Shared,
            5 if may_be_pinned && !is_wide => Layout::Pinned,
            6 => Layout::Transposed,
            7 => Layout::Reversed,
            8 => Layout::Stepped,
            _ => Layout::Picked((0..rows).map(|_| random.random_range(0..rows)).collect()),
        };
        let mut field = Self { layout: Layout::Owned, is_wide, rows, columns, offset: 0 };
        let needed = field.bytes() * if matches!(layout, Layout::Stepped) { 2 } else { 1 };
        let last = Bank::last_offset(needed).unwrap_or_else(|| {
            layout = Layout::Owned;
            0
        });
        field.offset = random.random_range(0..=last);
        field.layout = layout;
        field
    }

    const fn size(&self) -> usize {
        if self.is_wide { 4 } else { 1 }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.rows * self.columns * self.size()
    }

    pub(crate) const fn is_pinned(&self) -> bool {
        matches!(self.layout, Layout::Pinned)
    }

    /// The array to send; with its last byte changed, if it is to be spoiled and is a copy.
    pub(crate) async fn make(&self, bank: &Bank, device: &Device, is_spoiled: bool) -> Result<HostArray> {
        let dtype = if self.is_wide { Dtype::U32 } else { Dtype::U8 };
        let (rows, columns) = (self.rows, self.columns);
        let shared = |rows: usize, columns: usize| {
            HostArray::from_bytes(bank.window(self.offset, rows * columns * self.size()), dtype, (rows, columns))
        };
        match &self.layout {
            Layout::Owned => {
                let mut bytes = bank.bytes(self.offset, self.bytes()).to_vec();
                if let (true, Some(last)) = (is_spoiled, bytes.last_mut()) {
                    *last ^= 1;
                }
                HostArray::from_bytes(bytes, dtype, (rows, columns))
            }
            Layout::Shared => shared(rows, columns),
            Layout::Pinned => {
                let mut array = device.pinned::<u8, _>((rows, columns)).await?;
                if let Some(bytes) = array.as_slice_mut() {
                    bytes.copy_from_slice(bank.bytes(self.offset, self.bytes()));
                }
                Ok(array.share())
            }
            Layout::Transposed => shared(columns, rows)?.permuted_axes([1, 0]),
            Layout::Reversed => shared(rows, columns)?.slice(s![..;-1, ..]),
            Layout::Stepped => shared(2 * rows, columns)?.slice(s![..;2, ..]),
            Layout::Picked(picked) => shared(rows, columns)?.select_rows(picked),
        }
    }

    /// Whether these elements are those that were sent, and then written to.
    pub(crate) fn is<T: Cell>(&self, bank: &Bank, found: &[T], written: Written) -> bool {
        if found.len() != self.rows * self.columns {
            return false;
        }
        let size = size_of::<T>();
        let sent = |place: usize, count: usize| bank.bytes(self.offset + place * size, count * size);
        if matches!(self.layout, Layout::Transposed) {
            let mut places = (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column)));
            let is_sent = |(found, (row, column)): (&T, (usize, usize))| {
                *found == T::of(sent(column * self.rows + row, 1)).after(written)
            };
            return found.iter().zip(&mut places).all(is_sent);
        }
        let mut rows = found.chunks(self.columns.max(1)).enumerate();
        rows.all(|(row, found)| {
            let sent = sent(self.sent_row(row) * self.columns, self.columns).chunks_exact(size);
            found.iter().zip(sent).all(|(found, sent)| *found == T::of(sent).after(written))
        })
    }

    /// Where a row was before the view put it in its place.
    fn sent_row(&self, row: usize) -> usize {
        match &self.layout {
            Layout::Reversed => self.rows - 1 - row,
            Layout::Stepped => 2 * row,
            Layout::Picked(picked) => picked[row],
            Layout::Owned | Layout::Shared | Layout::Pinned | Layout::Transposed => row,
        }
    }
}
