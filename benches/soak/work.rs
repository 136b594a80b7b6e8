//! What is done with a batch that arrived: work on a compute stream, writes, read-backs, each compared with what was sent.

use std::sync::Arc;

use inflight::cudarc::driver::CudaStream;
use inflight::{ComputeStream, DeviceBatch, Error, Fields, FieldsMut, HostStream, Lease, LeaseStream, Result};
use rand::Rng;
use rand::rngs::StdRng;

use super::bank::Bank;
use super::cell::{Cell, Written};
use super::field::Field;
use super::parcel::Parcel;
use super::site::Site;

/// Chooses by the field's element type.
macro_rules! typed {
    ($field:expr, $name:ident, $($rest:tt)*) => {
        if $field.is_wide { $name::<u32>$($rest)* } else { $name::<u8>$($rest)* }
    };
}

pub(crate) use typed;

/// Why a run fails.
pub(crate) type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// A batch in the hands of its consumer.
pub(crate) struct Arrived<'a> {
    pub(crate) site: &'a Site,
    pub(crate) compute: &'a ComputeStream,
    pub(crate) batch: DeviceBatch,
    pub(crate) parcel: Arc<Parcel>,
}

impl Arrived<'_> {
    /// Does one of the things that users do.
    pub(crate) async fn used(self, random: &mut StdRng, is_early: bool) -> Result<(), Wrong> {
        if is_early {
            let lease = self.batch.on(self.compute)?;
            for (name, _) in self.parcel.named() {
                lease.queued(name).await?;
            }
        }
        match random.random_range(0..20) {
            // Nothing looks at it: it is dropped as it comes.
            0 => return Ok(()),
            1 => self.begun_and_dropped()?,
            2..=5 => self.read_back(Written::Nothing).await?,
            6 | 7 if self.site.is_host() => self.in_place().await?,
            _ => match self.compute {
                ComputeStream::Host(stream) => self.on_host(stream, random).await?,
                ComputeStream::Cuda(stream) => self.on_gpu(stream, random).await?,
                other => return Err(format!("no work is known for {other:?}").into()),
            },
        }
        Ok(())
    }

    fn verified(&self) {
        self.site.tally.verified.one();
        self.site.tally.bytes.add(self.parcel.bytes() as u64);
    }

    fn expect(&self, is_right: bool, name: &str, how: &str) -> Result<(), Wrong> {
        if is_right {
            return Ok(());
        }
        let number = self.parcel.number;
        let field = self.parcel.named().find(|(of, _)| *of == name);
        Err(format!("batch {number}, \"{name}\", {how}: other elements than were sent: {field:?}").into())
    }

    /// A read-back that is dropped under way, and a lease that ends before its work is done.
    fn begun_and_dropped(&self) -> Result<(), Wrong> {
        self.site.tally.uses_cancelled.one();
        drop(self.batch.read_back());
        if let ComputeStream::Host(stream) = self.compute {
            let (bank, parcel) = (self.site.bank.clone(), self.parcel.clone());
            drop(self.batch.on(stream)?.run(move |fields| Ok(all_are(fields, &parcel, &bank))));
        }
        Ok(())
    }

    async fn in_place(&self) -> Result<(), Wrong> {
        for (name, field) in self.parcel.named() {
            self.batch.field(name)?.ready().await?;
            let is_right = typed!(field, in_place, (&self.batch, name, field, &self.site.bank)?);
            self.expect(is_right, name, "in place")?;
        }
        self.verified();
        Ok(())
    }

    async fn read_back(&self, written: Written) -> Result<(), Wrong> {
        let bank = &self.site.bank;
        for (name, field) in self.parcel.named() {
            let is_right = typed!(field, read_back, (&self.batch, name, field, bank, written).await?);
            self.expect(is_right, name, "read back")?;
        }
        self.verified();
        Ok(())
    }

    async fn on_host(&self, stream: &HostStream, random: &mut StdRng) -> Result<(), Wrong> {
        let mut lease = self.batch.on(stream)?;
        let (bank, parcel) = (self.site.bank.clone(), self.parcel.clone());
        if random.random_bool(0.6) {
            let wrong = lease.run(move |fields| Ok(all_are(fields, &parcel, &bank)));
            end(lease, random)?;
            let wrong = wrong.await??;
            self.expect(wrong.is_none(), wrong.unwrap_or_default(), "on a stream")?;
            self.verified();
            return Ok(());
        }
        let work = lease.run_mut(move |fields| flip(fields, &parcel));
        self.after_write(lease, Written::Flipped, random).await?;
        Ok(work.await?)
    }

    async fn on_gpu(&self, stream: &Arc<CudaStream>, random: &mut StdRng) -> Result<(), Wrong> {
        let mut lease = self.batch.on(stream)?;
        if random.random_bool(0.3) {
            for (name, field) in self.parcel.named() {
                typed!(field, zero, (&mut lease, name)?);
            }
            return self.after_write(lease, Written::Zeroes, random).await;
        }
        for (name, field) in self.parcel.named() {
            let is_right = typed!(field, device_read, (self.site, &lease, name, field).await?);
            self.expect(is_right, name, "read from a view")?;
        }
        end(lease, random)?;
        self.verified();
        Ok(())
    }

    /// Looks at what the lease has written: through it, as long as there is room, or after its end.
    async fn after_write<S: LeaseStream>(
        &self,
        lease: Lease<S>,
        written: Written,
        random: &mut StdRng,
    ) -> Result<(), Wrong> {
        self.site.tally.written.one();
        if random.random_bool(0.5) {
            for (name, field) in self.parcel.named() {
                match typed!(field, lease_read, (&lease, name, field, &self.site.bank, written).await) {
                    Ok(is_right) => self.expect(is_right, name, "read behind a write")?,
                    Err(Error::Busy { .. }) => self.site.tally.busy.one(),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        end(lease, random)?;
        self.read_back(written).await
    }
}

/// Ends a lease in one of the two ways.
fn end<S: LeaseStream>(lease: Lease<S>, random: &mut StdRng) -> Result<()> {
    if random.random_bool(0.5) {
        return lease.end();
    }
    drop(lease);
    Ok(())
}

fn in_place<T: Cell>(batch: &DeviceBatch, name: &str, field: &Field, bank: &Bank) -> Result<bool> {
    let array = batch.field(name)?;
    let view = array.as_host::<T>()?;
    Ok(field.is(bank, view.as_slice().unwrap_or_default(), Written::Nothing))
}

async fn read_back<T: Cell>(
    batch: &DeviceBatch,
    name: &str,
    field: &Field,
    bank: &Bank,
    written: Written,
) -> Result<bool> {
    let array = batch.field(name)?.read_back::<T>()?.await?;
    Ok(field.is(bank, array.as_slice().unwrap_or_default(), written))
}

async fn lease_read<T: Cell>(
    lease: &Lease<impl LeaseStream>,
    name: &str,
    field: &Field,
    bank: &Bank,
    written: Written,
) -> Result<bool> {
    let array = lease.read_back::<T>(name)?.await?;
    Ok(field.is(bank, array.as_slice().unwrap_or_default(), written))
}

/// The first field that is not as it was sent.
fn all_are(fields: &Fields, parcel: &Parcel, bank: &Bank) -> Result<Option<&'static str>> {
    for (name, field) in parcel.named() {
        if !typed!(field, is_in, (fields, name, field, bank)?) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn is_in<T: Cell>(fields: &Fields, name: &str, field: &Field, bank: &Bank) -> Result<bool> {
    Ok(field.is(bank, fields.view::<T>(name)?.as_slice().unwrap_or_default(), Written::Nothing))
}

fn flip(fields: &mut FieldsMut, parcel: &Parcel) -> Result<()> {
    parcel.named().try_for_each(|(name, field)| typed!(field, flip_one, (fields, name)))
}

fn flip_one<T: Cell>(fields: &mut FieldsMut, name: &str) -> Result<()> {
    fields.view_mut::<T>(name)?.mapv_inplace(Cell::flipped);
    Ok(())
}

fn zero<T: Cell>(lease: &mut Lease<Arc<CudaStream>>, name: &str) -> Result<()> {
    let stream = lease.stream().clone();
    let [mut view] = lease.split_mut::<T, 1>([name])?;
    if view.is_empty() {
        return Ok(());
    }
    stream.memset_zeros(&mut view).map_err(Error::source)
}

/// Reads a lease's view as any device memory is read.
async fn device_read<T: Cell>(site: &Site, lease: &Lease<Arc<CudaStream>>, name: &str, field: &Field) -> Result<bool> {
    let read = site.device.read(&lease.view::<T>(name)?, lease.stream());
    let array = match read {
        Err(Error::Busy { .. }) => {
            site.tally.busy.one();
            lease.read_back::<T>(name)?.await?
        }
        read => read?.await?,
    };
    Ok(field.is(&site.bank, array.as_slice().unwrap_or_default(), Written::Nothing))
}
