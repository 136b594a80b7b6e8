//! Functions that are compiled twice: for any processor, and for those with AVX2, of which the running one is asked.

/// Whether this processor has AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// Defines an unsafe function that is compiled twice. Its generic parameters come first, with and without their bounds.
macro_rules! wide {
    (
        [$($generics:tt)*] [$($names:tt)*]
        $(#[$attribute:meta])*
        $visible:vis unsafe fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(where ($($bounds:tt)*))? $body:block
    ) => {
        $(#[$attribute])*
        $visible unsafe fn $name<$($generics)*>($($argument: $type),*) $(where $($bounds)*)? {
            /// # Safety
            ///
            /// That of the function around it.
            #[inline(always)]
            unsafe fn any<$($generics)*>($($argument: $type),*) $(where $($bounds)*)? $body

            /// # Safety
            ///
            /// That of the function around it, on a processor that has AVX2.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            unsafe fn avx2<$($generics)*>($($argument: $type),*) $(where $($bounds)*)? {
                // SAFETY: the caller's contract.
                unsafe { any::<$($names)*>($($argument),*) }
            }

            #[cfg(target_arch = "x86_64")]
            if $crate::staging::gather::wide::has_avx2() {
                // SAFETY: the processor was asked, and the rest is the caller's contract.
                return unsafe { avx2::<$($names)*>($($argument),*) };
            }
            // SAFETY: the caller's contract.
            unsafe { any::<$($names)*>($($argument),*) }
        }
    };
}

pub(super) use wide;
