//! What a user can give wrongly, one file a theme: each is a typed error whose text stands here word for word, and loses
//! nothing. Views of arrays are in `tests/layouts.rs`, what needs CUDA's driver in `tests/cuda`, what must not compile in
//! `tests/compile_fail`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod arrays;
mod batches;
mod bed;
mod builder;
mod env;
mod leases;
mod losses;
mod pipelines;
mod reads;
mod simulator;
