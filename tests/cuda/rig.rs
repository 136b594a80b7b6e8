//! What these tests stand on: a device on CUDA, a compute stream of the user's, kernels, and the driver to oneself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use inflight::cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig, PushKernelArg,
};
use inflight::cudarc::nvrtc::Ptx;
use inflight::{Device, DeviceBatch, DeviceBuilder, Lease};

#[path = "../support/driver.rs"]
mod driver;
pub(crate) use driver::{Driver, StandIn, driver};

/// The sizes at which lifetimes are tried: small copies are taken eagerly by a driver and hide what is wrong.
pub(crate) const SIZES: [usize; 5] = [64, 4 << 10, 40_000, (256 << 10) + 1, 4 << 20];

/// A device, a stream of the user's, and kernels. Tests run one at a time: the stand-in's settings are of the process.
pub(crate) struct Rig {
    pub(crate) device: Device,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) module: Arc<CudaModule>,
    pub(crate) stand_in: Option<&'static StandIn>,
    _alone: MutexGuard<'static, ()>,
}

/// One test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stand-in, if that is the driver.
pub(crate) fn stand_in() -> Option<&'static StandIn> {
    match driver() {
        Driver::StandIn(stand_in) => Some(stand_in),
        Driver::Gpu | Driver::None => None,
    }
}

/// Waits until nobody calls the driver any more: the devices of tests before are gone, and meet no fault of the next one.
pub(crate) fn quiet(stand_in: &StandIn) {
    eventually("the driver is left alone", || {
        let (before, begun) = (stand_in.calls(None), Instant::now());
        while begun.elapsed() < Duration::from_millis(100) {
            std::thread::yield_now();
        }
        stand_in.calls(None) == before
    });
}

impl Rig {
    /// The rig, or nothing where there is no driver of any kind.
    pub(crate) fn new() -> Option<Self> {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl Fn(DeviceBuilder<'static>) -> DeviceBuilder<'static>) -> Option<Self> {
        let alone = alone();
        if matches!(driver(), Driver::None) {
            return None;
        }
        let stand_in = stand_in();
        if let Some(stand_in) = stand_in {
            stand_in.reset();
        }
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let module = context.load_module(Ptx::from_src(include_str!("../kernels/basic.ptx"))).unwrap();
        let device = settings(Device::builder().context(&context)).build().unwrap();
        let rig = Self { device, stream, module, stand_in, _alone: alone };
        rig.load_kernels();
        Some(rig)
    }

    /// A kernel's first launch may wait until the whole context is idle: not in the midst of a test.
    fn load_kernels(&self) {
        self.spin(&self.stream, Duration::ZERO);
        let (count, none) = (self.kernel("count_wrong"), 0_u64);
        let mut errors = self.errors();
        let mut launch = self.stream.launch_builder(&count);
        launch.arg(&none).arg(&none).arg(&none).arg(&mut errors);
        // SAFETY: the arguments are those of the kernel, which looks at none of no bytes.
        unsafe { launch.launch(WIDE) }.unwrap();
        self.stream.synchronize().unwrap();
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    pub(crate) fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }

    /// Keeps a stream busy for so long.
    pub(crate) fn spin(&self, stream: &CudaStream, time: Duration) {
        let (spin, nanoseconds) = (self.kernel("spin"), u64::try_from(time.as_nanos()).unwrap());
        // SAFETY: the kernel takes one number and touches no memory.
        unsafe { stream.launch_builder(&spin).arg(&nanoseconds).launch(ONE) }.unwrap();
    }

    /// Queues a count of the bytes of `x` that are not batch `number`'s pattern, on the lease's stream.
    pub(crate) fn check(&self, lease: &Lease<Arc<CudaStream>>, number: usize, errors: &mut CudaSlice<u32>) {
        let view = lease.view::<u8>("x").unwrap();
        let (count, len, number) = (self.kernel("count_wrong"), view.len() as u64, number as u64);
        let mut launch = lease.stream().launch_builder(&count);
        launch.arg(&view).arg(&len).arg(&number).arg(errors);
        // SAFETY: the arguments are those of the kernel; the view's memory has so many bytes.
        unsafe { launch.launch(WIDE) }.unwrap();
    }

    /// Queues a fill of a slice of the user's.
    pub(crate) fn fill(&self, stream: &CudaStream, slice: &mut CudaSlice<u8>, value: u8) {
        let (fill, len, value) = (self.kernel("fill_u8"), slice.len() as u64, u32::from(value));
        // SAFETY: the arguments are those of the kernel, the slice has so many bytes.
        unsafe { stream.launch_builder(&fill).arg(slice).arg(&len).arg(&value).launch(WIDE) }.unwrap();
    }

    /// A counter of errors in device memory.
    pub(crate) fn errors(&self) -> CudaSlice<u32> {
        self.stream.alloc_zeros(1).unwrap()
    }

    /// What was counted, when the stream is done.
    pub(crate) fn counted(&self, errors: &CudaSlice<u32>) -> u32 {
        self.stream.clone_dtoh(errors).unwrap()[0]
    }

    /// Sends one batch and waits for it.
    pub(crate) fn batch(&self, number: usize, bytes: usize) -> DeviceBatch {
        block_on(async { self.device.transfer(("x", pattern(number, bytes))).await?.await }).unwrap()
    }

    /// Says that all is over: nothing pending, all memory back, and the stand-in saw no misuse.
    pub(crate) fn finish(self) {
        block_on(self.device.drain()).unwrap();
        eventually("all memory is back", || self.device.stats().device_used == 0);
        if let Some(stand_in) = self.stand_in {
            assert_eq!(stand_in.violations(), Vec::<String>::new());
            assert_eq!(stand_in.counter("unrecorded_queries"), 0, "invariant 5");
        }
    }
}

/// One thread.
pub(crate) const ONE: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
/// Some thousands.
pub(crate) const WIDE: LaunchConfig =
    LaunchConfig { grid_dim: (32, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };

/// Bytes that tell which batch and which place they are; the kernel `count_wrong` knows the same ones.
pub(crate) fn pattern(batch: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (batch * 31 + place * 7 + place / 251) as u8).collect()
}

/// Waits for what another thread is about to do.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "never came true: {what}");
        std::thread::yield_now();
    }
}

/// Copies what `source` holds to the host through cudarc's safe call on `stream`.
pub(crate) fn fetched(stream: &Arc<CudaStream>, source: &impl DevicePtr<u8>) -> Vec<u8> {
    stream.clone_dtoh(source).unwrap()
}

/// Overwrites what `target` holds through cudarc's safe call on `stream`.
pub(crate) fn overwrite(stream: &Arc<CudaStream>, target: &mut impl DevicePtrMut<u8>, value: u8) {
    stream.memcpy_htod(&vec![value; target.len()], target).unwrap();
}
