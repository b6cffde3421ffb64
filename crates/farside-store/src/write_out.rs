//! When what waits is written out: who finds too many does it, and whoever makes something durable.

use farside_platform::{BlockBuffer, DeviceError};

use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::write_behind::{Promised, WrittenOut};

/// Part of the limit from which on the pool's own thread writes out.
const BEGIN_SHARE: u64 = 8;

impl Pool {
    /// Room for small writes of so many bytes to wait. Whoever finds that too many wait writes them out; of none that waits
    /// already is anything lost if that fails.
    pub(crate) fn promise_behind(&self, bytes: u64) -> Result<Promised<'_>> {
        let limit = self.options.write_behind_bytes;
        let (promised, before) = self.behind.promise(bytes);
        let (begin, now) = (limit / BEGIN_SHARE, before + bytes);
        if now > limit || (now > begin && !self.options.background) {
            self.write_out()?;
        } else if now > begin && before <= begin {
            self.wake.signal();
        }
        Ok(promised)
    }

    /// Writes out what waits. It is on the device then, and survives a power failure once that is synced.
    ///
    /// # Errors
    /// The device refuses it. It still waits, and is read from where it waits; nothing is in doubt.
    pub(crate) fn write_out(&self) -> Result<()> {
        if self.behind.bytes() == 0 {
            return Ok(());
        }
        let written = self.behind.write_out(Vec::new());
        self.note_data_write(written.data)
    }

    /// The same in one go with batches of the journal.
    ///
    /// # Errors
    /// What became of the journal is in doubt after the outer one. After the inner one nothing is.
    pub(crate) fn write_out_with(&self, batches: &[(u64, BlockBuffer)]) -> Result<Result<()>> {
        let batches = batches.iter().map(|(offset, bytes)| (*offset, vec![&bytes[..]])).collect();
        let WrittenOut { journal, data } = self.behind.write_out(batches);
        let data = self.note_data_write(data);
        journal.map_err(StoreError::from).map(|()| data)
    }

    /// The same for a write that did not wait: that one is taken says nothing of those that wait.
    pub(crate) fn note_direct_write(&self, written: std::result::Result<(), DeviceError>) -> Result<()> {
        if written.is_ok() && self.behind.bytes() > 0 {
            return Ok(());
        }
        self.note_data_write(written)
    }

    /// A consistency point was written. Where nothing waits, the device takes data again: nobody may come who would find that out.
    pub(crate) fn note_point_written(&self) {
        if self.behind.bytes() == 0 {
            *self.refused_write.lock() = None;
        }
    }

    /// Remembers, for whoever is to be told, whether the device takes data.
    fn note_data_write(&self, written: std::result::Result<(), DeviceError>) -> Result<()> {
        let mut refused = self.refused_write.lock();
        match &written {
            Ok(()) => *refused = None,
            Err(error) if refused.is_none() => {
                tracing::error!(
                    pool = %self.id(), device = self.device.name(),
                    "the device refuses data: {error}. Hosts get errors until it takes them; what they flushed is safe"
                );
                *refused = Some(error.to_string());
            }
            Err(error) => *refused = Some(error.to_string()),
        }
        written.map_err(StoreError::from)
    }
}
