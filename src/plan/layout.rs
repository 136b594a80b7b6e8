//! [`Layout`]: all of a plan but the arrays: where each field lies, and what is copied how.

use smallvec::SmallVec;

use super::explain::{Explanation, Told};
use super::{Part, Terms, Way};
use crate::HostArray;
use crate::batch::{Dims, HostBatch, Name};
use crate::dtype::Dtype;

/// Where a field lies on the device and as what, and how it gets there.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) dtype: Dtype,
    pub(crate) dims: Dims,
    /// Where it begins in the image.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Where what is sent of it begins: elsewhere if it is rearranged on the device.
    pub(crate) sent_at: usize,
    /// `None` for a field without bytes: it is there at once.
    pub(crate) group: Option<usize>,
    /// Which way it goes, and why.
    pub(crate) told: Told,
}

/// How a batch lies on the device, and which copies bring it there. Batches alike share one.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) names: SmallVec<[Name; 4]>,
    pub(crate) fields: SmallVec<[Field; 4]>,
    pub(crate) parts: SmallVec<[Part; 2]>,
    pub(crate) group_count: usize,
    /// Bytes of the image, scratch memory included.
    pub(crate) bytes: usize,
    /// Bytes of the fields, without padding.
    pub(crate) payload: usize,
    /// Whether the submitting call may do all of it.
    pub(crate) is_small: bool,
    /// The terms that it was made on, where shapes and types of the arrays decide all the rest: they are contiguous.
    pub(super) serves_on: Option<Terms>,
}

impl Layout {
    /// Whether it is what would be planned for this batch too.
    pub(super) fn serves(&self, batch: &HostBatch, terms: &Terms) -> bool {
        let fields = batch.fields();
        self.serves_on.as_ref() == Some(terms)
            && fields.len() == self.fields.len()
            && fields
                .iter()
                .zip(&self.names)
                .zip(&self.fields)
                .all(|(((given, array), name), field)| given == name && field.is_like(array, terms.device))
    }

    /// Whether something is rearranged on the device.
    pub(crate) fn has_scratch(&self) -> bool {
        !self.fields.iter().all(Field::is_in_place)
    }

    /// Bytes that the host gathers, padding between packed fields included.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.parts.iter().filter(|part| part.way.is_gathered()).map(Part::bytes).sum()
    }

    /// What becomes of some fields.
    pub(crate) fn explain(&self, places: impl Iterator<Item = usize>) -> Explanation {
        let fields = places.map(|place| self.fields[place].told.of(&self.names[place])).collect();
        Explanation { fields, device_bytes: self.bytes }
    }
}

impl Field {
    /// Whether it is sent to where it is to lie.
    pub(crate) const fn is_in_place(&self) -> bool {
        !self.told.is_rearranged
    }

    /// Whether a contiguous array takes the same way to the same place as the one that this was made for.
    fn is_like(&self, array: &HostArray, device: u64) -> bool {
        let is_direct = self.told.way == Way::Direct;
        array.is_dense_as(self.dtype, &self.dims.shape)
            && (self.bytes == 0 || (array.page_locked() == Some(device)) == is_direct)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ndarray::{Array2, s};

    use super::*;
    use crate::plan::{Plan, Relayout};

    fn array() -> HostArray {
        Array2::<f32>::zeros((4, 6)).into()
    }

    fn batch(images: HostArray) -> HostBatch {
        HostBatch::new().with("images", images).with("labels", vec![0_i64; 4])
    }

    #[test]
    fn a_batch_alike_is_not_planned_again() {
        let first = Plan::of(&batch(array()), &Terms::of_a_gpu(), None).unwrap();
        let again = Plan::of(&batch(array()), &Terms::of_a_gpu(), Some(&first.layout)).unwrap();
        assert!(Arc::ptr_eq(&first.layout, &again.layout));
        assert_eq!(again.layout.names.as_slice(), ["images", "labels"]);
    }

    #[test]
    fn whatever_else_a_plan_depends_on_makes_another_one() {
        let last = Plan::of(&batch(array()), &Terms::of_a_gpu(), None).unwrap().layout;
        let locked = |device| array().locked_for(device, Arc::new(()));
        let labels = || vec![0_i64; 4];
        let others = [
            ("a name", HostBatch::new().with("image", array()).with("labels", labels())),
            ("their order", HostBatch::new().with("labels", labels()).with("images", array())),
            ("one more", batch(array()).with("weights", [1.0_f32])),
            ("one less", HostBatch::new().with("images", array())),
            ("a type as long", batch(Array2::<u32>::zeros((4, 6)).into())),
            ("a shape as long", batch(Array2::<f32>::zeros((6, 4)).into())),
            ("the number of rows", batch(Array2::<f32>::zeros((3, 6)).into())),
            ("the number of axes", batch(ndarray::Array3::<f32>::zeros((4, 6, 1)).into())),
            (
                "memory in another order",
                batch(HostArray::from(Array2::<f32>::zeros((6, 4))).permuted_axes([1, 0]).unwrap()),
            ),
            ("rows apart", batch(HostArray::from(Array2::<f32>::zeros((4, 7))).slice(s![.., ..6]).unwrap())),
            ("a conversion", batch(HostArray::from(Array2::<u8>::zeros((4, 6))).cast::<f32>())),
            ("page-locked memory", batch(locked(1))),
            ("a name given twice", HostBatch::new().with("images", array()).with("images", labels())),
        ];
        for (what, other) in others {
            assert!(!last.serves(&other, &Terms::of_a_gpu()), "{what}");
        }
        assert!(last.serves(&batch(locked(2)), &Terms::of_a_gpu()), "locked for another device it is pageable here");
        assert!(!last.serves(&batch(array()), &Terms { relayout: Relayout::Host, ..Terms::of_a_gpu() }));
        let direct = Plan::of(&batch(locked(1)), &Terms::of_a_gpu(), None).unwrap().layout;
        assert!(
            direct.serves(&batch(locked(1)), &Terms::of_a_gpu()) && !direct.serves(&batch(array()), &Terms::of_a_gpu())
        );
    }

    #[test]
    fn what_depends_on_where_elements_lie_serves_no_other_batch() {
        for images in
            [array().cast::<f64>(), array().select_rows([3, 0, 2]).unwrap(), array().permuted_axes([1, 0]).unwrap()]
        {
            let last = Plan::of(&batch(images.clone()), &Terms::of_a_gpu(), None).unwrap().layout;
            assert!(!last.serves(&batch(images), &Terms::of_a_gpu()));
        }
    }
}
