//! [`batch!`](crate::batch!): a [`HostBatch`](crate::HostBatch) whose names are checked when it is compiled.

/// Makes a [`HostBatch`](crate::HostBatch) of named arrays. A name that stands twice does not compile.
///
/// ```
/// let batch = inflight::batch! { raw: vec![0.5_f32; 6], labels: [1_u8, 2, 3] };
/// assert!(batch.names().eq(["raw", "labels"]));
/// ```
///
/// ```compile_fail
/// let batch = inflight::batch! { raw: vec![0.5_f32; 6], raw: [1_u8, 2, 3] };
/// ```
#[macro_export]
macro_rules! batch {
    ($($name:ident: $array:expr),* $(,)?) => {{
        #[allow(dead_code, non_camel_case_types, reason = "two fields of one name do not compile")]
        enum NamesOfABatch { $($name),* }
        $crate::HostBatch::new()$(.with(stringify!($name).trim_start_matches("r#"), $array))*
    }};
}
