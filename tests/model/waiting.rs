//! [`Waiting`]: a future under way, what it is to bring, and the judgement of what it brings.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use inflight::{DeviceBatch, Early, Error, HostBatch, PinnedArray, Result, Transfer};
use ndarray::Ix1;

use crate::plain::Victim;
use crate::watch::Watch;

/// Fields by name, and the bytes that they are to have.
pub(crate) type Seen = Vec<(String, Vec<u8>)>;

/// What a future brings.
pub(crate) enum Brought {
    Batch(Result<DeviceBatch>),
    Sent(Result<Transfer>),
    Pinned(Result<PinnedArray<u8, Ix1>>),
    Bytes(Result<Seen>),
    Nothing(Result<()>),
}

/// What kind of future it is; that of a batch with its number.
#[derive(Clone)]
pub(crate) enum Kind {
    /// Its item was refused by the source, with that number.
    Refused(usize),
    /// Two of its fields had one name.
    Duplicate(usize),
    Transfer(usize),
    Early(usize),
    Admission(usize),
    Ready(usize),
    Pinned(usize),
    Drain,
    /// A task through a lease; whether the batch was whole when it was queued.
    Task {
        batch: usize,
        whole: bool,
        expected: Seen,
    },
    ReadBack {
        batch: usize,
        whole: bool,
        expected: Seen,
    },
    /// A read of a slice; nobody knows its bytes if a write failed.
    Slice(Option<Vec<u8>>),
    /// A write to the slice of that stream.
    Write(usize, Vec<u8>),
}

impl std::fmt::Debug for Kind {
    /// Without the bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(number) => write!(f, "refused item {number}"),
            Self::Duplicate(number) => write!(f, "duplicate {number}"),
            Self::Transfer(number) => write!(f, "transfer {number}"),
            Self::Early(number) => write!(f, "early transfer {number}"),
            Self::Admission(number) => write!(f, "admission {number}"),
            Self::Ready(number) => write!(f, "arrival {number}"),
            Self::Pinned(bytes) => write!(f, "pinned array of {bytes} bytes"),
            Self::Drain => f.write_str("drain"),
            Self::Task { batch, .. } => write!(f, "task on batch {batch}"),
            Self::ReadBack { batch, .. } => write!(f, "read-back of batch {batch}"),
            Self::Slice(_) => f.write_str("read of a slice"),
            Self::Write(stream, _) => write!(f, "write on stream {stream}"),
        }
    }
}

enum State {
    Transfer(Transfer),
    Early(Early),
    Other(LocalBoxFuture<'static, Brought>),
}

/// A future that was made and has not resolved.
pub(crate) struct Waiting {
    pub(crate) kind: Kind,
    pub(crate) watch: Watch,
    pub(crate) victim: Victim,
    /// The work that it waits for, where that has a number.
    pub(crate) work: Option<u64>,
    /// Something was submitted for it.
    pub(crate) flies: bool,
    state: State,
}

impl Waiting {
    pub(crate) fn transfer(kind: Kind, victim: Victim, transfer: Transfer) -> Self {
        let flies = transfer.device().is_some();
        Self { kind, watch: Watch::default(), victim, work: None, flies, state: State::Transfer(transfer) }
    }

    pub(crate) fn other(kind: Kind, victim: Victim, future: impl Future<Output = Brought> + 'static) -> Self {
        let state = State::Other(future.boxed_local());
        Self { kind, watch: Watch::default(), victim, work: None, flies: false, state }
    }

    /// Hands a transfer over early. The waker that was left with it means nothing to the early one.
    pub(crate) fn early(self) -> Self {
        match (self.state, self.kind) {
            (State::Transfer(transfer), Kind::Transfer(number)) => {
                let (kind, watch, state) = (Kind::Early(number), Watch::default(), State::Early(transfer.early()));
                Self { kind, watch, state, ..self }
            }
            (state, kind) => Self { state, kind, ..self },
        }
    }

    pub(crate) fn poll(&mut self, fresh: bool) -> Poll<Brought> {
        let Self { kind, watch, state, .. } = self;
        watch.poll(fresh, false, &format!("{kind:?}"), |context: &mut Context<'_>| match state {
            State::Transfer(transfer) => transfer.poll_unpin(context).map(Brought::Batch),
            State::Early(early) => early.poll_unpin(context).map(Brought::Batch),
            State::Other(future) => future.poll_unpin(context),
        })
    }
}

/// The bytes of a host batch.
pub(crate) fn bytes_of(batch: &HostBatch) -> Result<Seen> {
    let names: Vec<_> = batch.names().map(str::to_owned).collect();
    let field = |name: String| {
        let array = batch.field(&name)?.to_array::<u8>()?;
        Ok((name, array.iter().copied().collect()))
    };
    names.into_iter().map(field).collect()
}

/// Whether an error says no more than that the moment is not right.
pub(crate) const fn is_of_the_moment(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Borrowed { .. } | Error::NotQueued { .. } | Error::NotArrived { .. })
}
