//! [`World`]: all that the stand-in keeps, behind one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::context::{Context, Device};
use crate::counts::Counts;
use crate::event::Event;
use crate::faults::Faults;
use crate::log::Log;
use crate::memory::{DeviceMemory, HostMemory, Pool};
use crate::module::{Function, Module};
use crate::settings::Settings;
use crate::stream::Stream;

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));
/// Operations have completed.
pub(crate) static MOVED: Condvar = Condvar::new();

/// Devices, what was made on them, and what tests have set. Handles are never used again.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    pub(crate) counts: Counts,
    pub(crate) is_initialised: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<usize, Context>,
    /// By handle, which is the order of creation.
    pub(crate) streams: BTreeMap<usize, Stream>,
    /// The streams that have pending operations.
    pub(crate) busy: BTreeSet<usize>,
    pub(crate) events: BTreeMap<usize, Event>,
    pub(crate) modules: BTreeMap<usize, Module>,
    pub(crate) functions: BTreeMap<usize, Function>,
    pub(crate) graphs: BTreeSet<usize>,
    pub(crate) pools: BTreeMap<usize, Pool>,
    pub(crate) device: DeviceMemory,
    pub(crate) host: HostMemory,
    pub(crate) clock: Clock,
    /// Threads in [`Call::wait_until`](crate::call::Call::wait_until).
    pub(crate) waiters: usize,
    handles: usize,
}

pub(crate) fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new() -> Self {
        let settings = Settings::from_environment();
        let count = settings.devices;
        let mut world = Self {
            settings,
            faults: Faults::default(),
            log: Log::default(),
            counts: Counts::default(),
            is_initialised: false,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            busy: BTreeSet::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            graphs: BTreeSet::new(),
            pools: BTreeMap::new(),
            device: DeviceMemory::default(),
            host: HostMemory::default(),
            clock: Clock::default(),
            waiters: 0,
            handles: 0x10000,
        };
        for number in 0..count {
            let pool = world.make_pool(number);
            world.devices.push(Device::new(pool));
        }
        world
    }

    /// A handle that was never given before. Such low addresses are never mapped.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.handles += 0x10;
        self.handles
    }

    /// Forgets what tests have set and counted. What lives stays.
    pub(crate) fn reset(&mut self) {
        self.settings = Settings::from_environment();
        self.faults = Faults::default();
        self.log = Log::default();
        self.counts = Counts { peak_pending: self.pending(), ..Counts::default() };
        self.restart_clock();
    }

    /// Wakes the threads that wait for operations.
    pub(crate) fn moved(&self) {
        if self.waiters > 0 {
            MOVED.notify_all();
        }
    }
}
