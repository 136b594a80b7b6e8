//! [`Step`]: one thing that a user, a consumer or the device does; and how sequences of them come about.

use inflight::sim::FaultPoint;
use proptest::collection::vec;
use proptest::prelude::*;

/// Where the bytes of a field lie on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Pageable, in order.
    Pageable,
    /// Pageable, last element first.
    Reversed,
    /// In page-locked memory of the device.
    Pinned,
    /// In memory of the user's that was registered.
    Registered,
}

/// What a source yields, or a user sends.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Batch(Vec<(usize, Way)>),
    /// Two fields of one name.
    Duplicate,
    /// An error of the source.
    Refused,
}

/// What is forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    Waiting,
    Batch,
    Lease,
}

/// Work that is queued through a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Reads all fields.
    Run,
    /// Reads one field.
    RunOn,
    /// Adds to all elements of one field.
    RunMut,
    Wait,
    View,
    Split,
    /// Brings a field home.
    ReadBack,
}

/// One step. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The source of a pipeline has one more item.
    Feed(u8, Item),
    /// It has no more.
    End(u8),
    /// The pipeline is polled, with the waker of before or another.
    Next(u8, bool),
    /// The pipeline is dropped.
    Close(u8),
    /// Sent at once or not at all.
    TrySend(Item),
    /// Sent when there is room.
    Send(Item),
    Pin(usize),
    Drain,
    /// A future is polled.
    Poll(u8, bool),
    /// A future is dropped.
    Abort(u8),
    /// A transfer is handed over early.
    Early(u8),
    Forget(Lost, u8),
    /// The oldest of a stream is done.
    Complete(u8),
    /// The oldest of a stream fails.
    Fail(u8),
    /// A call is going to fail.
    Inject(FaultPoint, u8, i32),
    Lease(u8, u8),
    Use(u8, Work, u8),
    EndLease(u8),
    DropLease(u8),
    Clone(u8),
    DropBatch(u8),
    Ready(u8),
    ReadBack(u8),
    ReadSlice(u8),
    WriteSlice(u8),
    /// Staging stands still, or goes on.
    Hold(bool),
    Trim,
    /// A wait becomes worth a word.
    Advance,
}

/// What fails an operation, by where it was: so an error tells where it came from.
pub(crate) const FAILED: [i32; 3] = [11, 12, 13];
/// What ends a device.
pub(crate) const FATAL: [i32; 3] = [4, 700, 999];
/// Two failed allocations in a row are needed, since the first is tried again.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

fn item() -> impl Strategy<Value = Item> {
    let size = || {
        prop_oneof![
            1 => Just(0_usize), 4 => 1_usize..300, 6 => 300_usize..3000, 3 => 3000_usize..20_000, 1 => 20_000_usize..80_000
        ]
    };
    let way = prop_oneof![4 => Just(Way::Pageable), 1 => Just(Way::Reversed), 1 => Just(Way::Pinned), 1 => Just(Way::Registered)];
    prop_oneof![
        10 => vec((size(), way), 0..4).prop_map(Item::Batch),
        // Sent from where it lies, without a place in the ring.
        6 => (size(), prop_oneof![2 => Just(Way::Registered), 1 => Just(Way::Pinned)]).prop_map(|field| Item::Batch(vec![field])),
        1 => Just(Item::Duplicate),
        1 => Just(Item::Refused),
    ]
}

fn fault() -> impl Strategy<Value = Step> {
    let (point, nth) = (
        prop_oneof![
            Just((FaultPoint::Allocate, OUT_OF_MEMORY)),
            Just((FaultPoint::Allocate, 31)),
            Just((FaultPoint::Submit, 32)),
            Just((FaultPoint::Record, 33)),
            Just((FaultPoint::Wait, 34)),
            // Whether the work is done nobody knows then.
            Just((FaultPoint::Query, 35)),
            Just((FaultPoint::Query, 600)),
            Just((FaultPoint::Query, 906)),
            Just((FaultPoint::Free, 37)),
        ],
        1_u8..5,
    );
    (point, nth).prop_map(|((point, code), nth)| Step::Inject(point, nth, code))
}

fn fatal() -> impl Strategy<Value = Step> {
    let points = [
        FaultPoint::Allocate,
        FaultPoint::Submit,
        FaultPoint::Record,
        FaultPoint::Wait,
        FaultPoint::Query,
        FaultPoint::Complete,
    ];
    (0..points.len(), 1_u8..4, 0..FATAL.len())
        .prop_map(move |(point, nth, code)| Step::Inject(points[point], nth, FATAL[code]))
}

fn use_() -> impl Strategy<Value = Step> {
    let work = prop_oneof![
        4 => Just(Work::Run), 2 => Just(Work::RunOn), 3 => Just(Work::RunMut), 1 => Just(Work::Wait),
        1 => Just(Work::View), 1 => Just(Work::Split), 2 => Just(Work::ReadBack)
    ];
    (any::<u8>(), work, any::<u8>()).prop_map(|(which, work, field)| Step::Use(which, work, field))
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<u8>;
    let lost = prop_oneof![3 => Just(Lost::Waiting), 1 => Just(Lost::Batch), 2 => Just(Lost::Lease)];
    let user = prop_oneof![
        12 => (which(), item()).prop_map(|(pipe, item)| Step::Feed(pipe, item)),
        1 => which().prop_map(Step::End),
        14 => (which(), any::<bool>()).prop_map(|(pipe, fresh)| Step::Next(pipe, fresh)),
        1 => which().prop_map(Step::Close),
        4 => item().prop_map(Step::TrySend),
        4 => item().prop_map(Step::Send),
        1 => (0_usize..6000).prop_map(Step::Pin),
        1 => Just(Step::Drain),
        20 => (which(), any::<bool>()).prop_map(|(which, fresh)| Step::Poll(which, fresh)),
        3 => which().prop_map(Step::Abort),
        2 => which().prop_map(Step::Early),
        1 => (lost, which()).prop_map(|(lost, which)| Step::Forget(lost, which)),
    ];
    let consumer = prop_oneof![
        5 => (which(), which()).prop_map(|(which, stream)| Step::Lease(which, stream)),
        8 => use_(),
        2 => which().prop_map(Step::EndLease),
        2 => which().prop_map(Step::DropLease),
        1 => which().prop_map(Step::Clone),
        4 => which().prop_map(Step::DropBatch),
        1 => which().prop_map(Step::Ready),
        2 => which().prop_map(Step::ReadBack),
        1 => which().prop_map(Step::ReadSlice),
        1 => which().prop_map(Step::WriteSlice),
    ];
    let device = prop_oneof![
        18 => which().prop_map(Step::Complete),
        1 => which().prop_map(Step::Fail),
        1 => fault(),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Trim),
        1 => Just(Step::Advance),
    ];
    prop_oneof![60 => user, 25 => consumer, 22 => device]
}

/// The sizes of a world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) pipelines: usize,
    pub(crate) memory: usize,
    /// Small batches in one call.
    pub(crate) together: usize,
    pub(crate) staging: usize,
    pub(crate) pinned: usize,
    pub(crate) readback: usize,
    /// Elements of a slice of the user's.
    pub(crate) slice: usize,
}

pub(crate) fn sizes() -> impl Strategy<Value = Sizes> {
    let of = |sizes: [usize; 3]| prop::sample::select(sizes.to_vec());
    (
        1_usize..=3,
        of([6 << 10, 24 << 10, 200 << 10]),
        of([4 << 10, 4 << 10, 64 << 10]),
        of([1 << 10, 8 << 10, 64 << 10]),
        of([16 << 10, 128 << 10, 512 << 10]),
        of([0, 600, 70_000]),
    )
        .prop_map(|(pipelines, memory, staging, pinned, readback, slice)| {
            // The largest of both are those of a device where small batches lie side by side and go together.
            let is_large = memory == 200 << 10 && staging == 64 << 10;
            let (memory, together) = if is_large { (64 << 20, 4) } else { (memory, 1) };
            Sizes { pipelines, memory, together, staging, pinned, readback, slice }
        })
}

/// Steps, now and then among them the end of the device.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let healthy = vec(step(), 1..100);
    let doomed = (vec(step(), 1..60), fatal(), vec(step(), 1..30))
        .prop_map(|(before, fatal, after)| before.into_iter().chain([fatal]).chain(after).collect());
    prop_oneof![9 => healthy, 1 => doomed]
}
